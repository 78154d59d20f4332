"""Combine the texts of several requests in one pass through the model.

Requests wait in a bounded queue. A batch is an idle worker's share of the queue, within the token budget. At the last
idle worker, the first request waits a few milliseconds for others, if others were there before; if all are busy,
requests accumulate anyway. On a CPU a worker computes with one thread, as in `xmtc score`: several small passes in
parallel take less time than one pass whose threads wait for each other. Only a pass that begins while nothing else runs
or waits has up to four, if there are as many workers. A long request is cut into pieces, which wait one after the
other: others get their turn in between, and a request that nobody waits for any more ends with the current piece. Only
the event loop's thread accesses the state.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus

import torch

from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.metrics import Metrics
from xmtc.desk.serve.refusals import RequestError
from xmtc.errors import XmtcError
from xmtc.predict.filters import Threshold
from xmtc.predict.predictions import Predictions
from xmtc.predict.predictor import Model
from xmtc.predict.request import Request
from xmtc.predict.text_scorer import NoTokensError

logger = logging.getLogger(__name__)

MAX_TOP_K = 1000
"""Labels of a text that a client may ask for."""
_CHARACTERS_PER_TOKEN = 4
_BATCH_TOKENS = 8192
"""Estimated from characters. A batch with this many tokens does not wait for more."""
_PIECE_CHARACTERS = _BATCH_TOKENS * _CHARACTERS_PER_TOKEN
_PATIENCE_S = 0.003
"""Time that a text waits for others at the last idle worker."""
_QUEUE_TEXTS = 512
"""Texts that may wait for the model."""


@dataclass(frozen=True)
class PredictOptions:
    """The options of a request.

    Attributes:
        top_k: maximum number of labels per text.
        threshold: see `Model.predict`.
        evidence: whether to return what supports each label.
        include: see `Model.predict`.
        exclude: see `Model.predict`.
    """

    top_k: int
    threshold: Threshold = None
    evidence: bool = False
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    @property
    def pass_key(self) -> tuple[bool, tuple[str, ...] | None, tuple[str, ...]]:
        """Requests with the same key can share a pass."""
        return self.evidence, self.include, self.exclude


@dataclass(frozen=True, eq=False)
class Piece:
    """Texts of a request that are answered together."""

    model: Model
    texts: Sequence[str]
    options: PredictOptions
    tokens: int
    answer: asyncio.Future[list[Predictions]]
    queued_s: float = field(default_factory=time.monotonic)


Answers = dict[Piece, list[Predictions] | XmtcError]


class Batcher:
    """Answers requests in batches. A request is answered by one model, whatever happens meanwhile.

    Args:
        config: workers, shortlist, and the time that a request may wait.
        metrics: metrics of batches and queue.
        workers: number of concurrent passes, unless the settings say another.
    """

    def __init__(self, config: ServeConfig, metrics: Metrics, workers: int) -> None:
        self.metrics, self.shortlist = metrics, config.shortlist
        self._wait_seconds = config.limits.wait_seconds
        self._queue: deque[Piece] = deque()
        self._untaken: set[Piece] = set()
        metrics.waiting.set_function(lambda: self._texts)
        self._arrived = asyncio.Event()
        self._workers = config.workers or workers
        self._threads = ThreadPoolExecutor(self._workers, "xmtc-model")
        self._alone = ThreadPoolExecutor(
            1, "xmtc-model-alone"
        )  # the only one that starts threads of OpenMP
        self._idle = asyncio.Semaphore(self._workers)
        self._passes: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._shared = False  # whether the last pass answered several requests

    def start(self) -> None:
        """Start answering, on the event loop."""
        self._loop = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop answering, after the current pass."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait([self._loop])
            self._loop = None
        if self._passes:
            await asyncio.wait(self._passes)
        self._threads.shutdown()
        self._alone.shutdown()

    @property
    def ready(self) -> bool:
        """Whether the batcher runs and would accept another request."""
        return (
            self._loop is not None
            and not self._loop.done()
            and self._texts < _QUEUE_TEXTS
        )

    async def predict(
        self, model: Model, texts: Sequence[str], options: PredictOptions
    ) -> list[Predictions]:
        """Find the labels of texts.

        Raises:
            RequestError: the queue is full, or the model took too long.
            XmtcError: the model refuses the texts or the filters.
        """
        if self._texts + len(texts) > _QUEUE_TEXTS and self._texts:
            self.metrics.refused.inc()
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._texts} texts are waiting: try again later",
            )
        loop = asyncio.get_running_loop()
        pieces = [
            Piece(model, some, options, _tokens(model, some), loop.create_future())
            for some in _pieces(texts, options)
        ]
        self._untaken.update(pieces)
        found: list[Predictions] = []
        try:
            async with asyncio.timeout(self._wait_seconds):
                for piece in pieces:
                    self._queue.append(piece)
                    self._arrived.set()
                    found += await piece.answer
        except TimeoutError:
            self.metrics.refused.inc()
            message = f"no answer within {self._wait_seconds:g} seconds: send fewer texts, or try again later"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, message) from None
        except NoTokensError as error:
            raise NoTokensError(len(found) + error.row) from None
        finally:
            self._untaken.difference_update(pieces)
            self._queue = deque(
                piece for piece in self._queue if piece in self._untaken
            )
        return found

    @property
    def _texts(self) -> int:
        return sum(len(piece.texts) for piece in self._untaken)

    async def _run(self) -> None:
        while True:
            await self._idle.acquire()
            await self._gather()
            batch, alone = self._take(), not (self._passes or self._queue)
            self._shared = len(batch) > 1
            threads = (
                min(self._workers, 4) if alone else 1
            )  # a layer of one text is too little work for more
            one_pass = asyncio.create_task(self._compute(batch, threads))
            self._passes.add(one_pass)
            one_pass.add_done_callback(self._passes.discard)

    async def _compute(self, batch: Sequence[Piece], threads: int) -> None:
        """Run one pass of a worker."""
        started_s = time.perf_counter()
        executor = self._threads if threads == 1 else self._alone
        call = asyncio.get_running_loop().run_in_executor(
            executor, self._answer, batch, threads
        )
        await asyncio.wait([call])
        self._idle.release()
        self.metrics.batch_seconds.observe(time.perf_counter() - started_s)
        self.metrics.batch_texts.observe(sum(len(one.texts) for one in batch))
        _deliver(batch, call)

    async def _gather(self) -> None:
        """Wait for a request and, at the last idle worker, for more within the waiting time and the token budget."""
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        if len(self._passes) + 1 < self._workers or not (self._passes or self._shared):
            return
        end_s = self._queue[0].queued_s + _PATIENCE_S
        while sum(one.tokens for one in self._queue) < _BATCH_TOKENS:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left_s)
            except TimeoutError:
                return

    def _take(self) -> list[Piece]:
        """Take an idle worker's share of the waiting pieces, within the budget but at least one.

        Words of evidence are found text by text, so these pieces share no pass.
        """
        batch: list[Piece] = []
        idle = self._workers - len(self._passes)
        budget = min(
            _BATCH_TOKENS, -(-sum(one.tokens for one in self._queue) // max(1, idle))
        )
        tokens = 0
        while self._queue and (not batch or tokens + self._queue[0].tokens <= budget):
            one = self._queue.popleft()
            self._untaken.discard(one)
            batch.append(one)
            tokens += _BATCH_TOKENS if one.options.evidence else one.tokens
        return batch

    def _answer(self, batch: Sequence[Piece], threads: int) -> Answers:
        """Compute the answer to each request, in the model's thread."""
        torch.set_num_threads(threads)
        groups: dict[object, list[Piece]] = {}
        for one in batch:
            groups.setdefault((id(one.model), one.options.pass_key), []).append(one)
        return {
            one: answer
            for group in groups.values()
            for one, answer in self._answer_group(group).items()
        }

    def _answer_group(self, group: Sequence[Piece]) -> Answers:
        """Answer requests that share a pass. If the model refuses a text, only that text's request fails."""
        try:
            return dict(zip(group, self._score(group), strict=True))
        except XmtcError as error:
            if len(group) == 1:
                return {group[0]: error}
        return {
            one: answer
            for some in group
            for one, answer in self._answer_group([some]).items()
        }

    def _score(self, group: Sequence[Piece]) -> list[list[Predictions]]:
        scorer = group[0].model.scorer
        options = group[0].options
        request = Request(
            top_k=max(piece.options.top_k for piece in group),
            threshold=options.threshold,  # of the words that evidence explains: of several pieces, none asks for them
            evidence=options.evidence,
            include=options.include,
            exclude=options.exclude,
            shortlist=self.shortlist if options.include is None else None,
        )
        documents = scorer.tokenise([text for piece in group for text in piece.texts])
        answer = scorer.score(documents, request)
        if options.include is None and not options.exclude:
            self.metrics.measure(
                group[0].model, documents, answer.label_ids_NK, answer.scores_NK
            )
        answers = []
        start = 0
        for piece in group:
            stop = start + len(piece.texts)
            wanted = Request(
                top_k=piece.options.top_k, threshold=piece.options.threshold
            )
            answers.append(scorer.predictions(answer.rows(start, stop), wanted))
            start = stop
        return answers


def _tokens(model: Model, texts: Sequence[str]) -> int:
    return sum(
        min(model.info.max_length, len(text) // _CHARACTERS_PER_TOKEN + 1)
        for text in texts
    )


def _pieces(texts: Sequence[str], options: PredictOptions) -> Iterator[list[str]]:
    """Cut texts into pieces that bound the time of a pass."""
    piece: list[str] = []
    for text in texts:
        if piece and (
            options.evidence or sum(map(len, piece)) + len(text) > _PIECE_CHARACTERS
        ):
            yield piece
            piece = []
        piece.append(text)
    if piece:
        yield piece


def _deliver(batch: Sequence[Piece], call: asyncio.Future[Answers]) -> None:
    """Give every request its answer. If the pass failed, log the failure and tell the clients."""
    if (failure := call.exception()) is not None:
        logger.error(
            "a pass through the model failed: %s: %s", type(failure).__name__, failure
        )
        refusal = RequestError(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "the model failed; the server's log says why",
        )
        answers = dict.fromkeys(batch, refusal)
    else:
        answers = call.result()
    for one, answer in answers.items():
        if one.answer.done():  # the request has timed out in the meantime
            continue
        if isinstance(answer, BaseException):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)
