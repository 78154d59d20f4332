"""What routes share: a version of a model and its labels; queue, annotations, and documents to annotate."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import numpy as np
from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from joblib import cpu_count

from xmtc.data.readers.columns import DocumentColumns
from xmtc.desk.annotate.annotations import AnnotatedDocument, Annotations
from xmtc.desk.annotate.worklist import TOP_K, Worklist, order_by, read_documents
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.batcher import Batcher, PredictOptions
from xmtc.desk.serve.label_search import LabelSearch
from xmtc.desk.serve.metrics import Metrics, dev_means
from xmtc.desk.serve.refusals import RETRY_SECONDS, RequestError
from xmtc.errors import XmtcError
from xmtc.fusion.decision import released
from xmtc.predict.predictions import Predictions
from xmtc.predict.predictor import Model

_RANKED_AT_ONCE = 16
_TRIAL = "A text."
_NOT_KEPT = "annotations are not kept: start the server with --annotations FILE"


@dataclass(frozen=True)
class SentDocument:
    """A document with its labels, as a client sends it.

    Attributes:
        id: its identifier; None: it gets one.
        text: its text, or its fields and categories.
        labels: its labels.
        complete: whether no other label fits it; if not, other labels were not judged.
    """

    id: str | None
    text: str | Mapping[str, Any]
    labels: Sequence[str]
    complete: bool


class Service:
    """A version of a model that is served.

    Args:
        model: loaded model.
        config: settings of the server.
        version: its version.
        name: name of the model. Default: that of its run.
        stamp: what changes with its files.
        beside: another version or model, whose queue, metrics and annotations are also this one's.

    Raises:
        ConfigError: the model does not support the shortlist.
        DataError: the annotations or queue file has the wrong content.
        StorageError: the annotations cannot be written, or another server writes them.
    """

    def __init__(
        self,
        model: Model,
        config: ServeConfig,
        version: str = "",
        *,
        name: str | None = None,
        stamp: object = None,
        beside: "Service | None" = None,
    ) -> None:
        self.model = model
        self.config = config
        self.limits = config.limits
        self.name = re.sub(r"[^\w.-]+", "-", name or model.info.name)
        self.version = version
        self.stamp = stamp
        vocabulary = (
            f"{model.info.vocabulary.rpartition('sha256:')[0]}{model.labels.version}"
        )
        rule = model.decision.rule
        self.about = {
            "model": self.name,
            "version": version,
            "vocabulary": vocabulary,
            "rule": rule,
        }
        self.headers = {
            f"Xmtc-{key.title()}": quote(value, safe=" :=")
            for key, value in self.about.items()
        }
        if config.shortlist is not None:
            model.predict(
                [_TRIAL], 1, shortlist=config.shortlist
            )  # to fail now rather than in every request
        self.search = LabelSearch(model.labels)
        self.gives_evidence = _gives_evidence(model)
        self._dev_means = dev_means(model)
        self._ranking: asyncio.Task[None] | None = None
        if beside is not None:
            self.metrics = beside.metrics
            self.batcher = beside.batcher
            self.annotations = beside.annotations
            self.worklist = beside.worklist
            return
        self.metrics = Metrics()
        self.batcher = Batcher(
            config, self.metrics, model.scorer.batches_at_once(cpu_count())
        )
        self.annotations = self._opened_annotations()
        self.worklist: Worklist | None = None
        if config.queue is not None:
            documents = read_documents(
                config.queue, self._columns, self.limits.characters
            )
            self.worklist = Worklist(
                documents, self.annotations.ids if self.annotations else ()
            )

    def _opened_annotations(self) -> Annotations | None:
        if self.config.annotations is None:
            return None
        one_label = self.model.info.task == "single_label"
        return Annotations(
            self.config.annotations,
            self.model.labels,
            one_label=one_label,
            columns=self._columns,
        )

    def take_over(self) -> None:
        """Accept the annotations from now on: they have this version's labels. Metrics have its figures of dev."""
        self.metrics.show_dev(self.name, self._dev_means)
        if self.annotations is not None:
            self.annotations.labels = self.model.labels
            self.annotations.columns = self._columns
            self.annotations.one_label = self.model.info.task == "single_label"

    @property
    def _columns(self) -> DocumentColumns:
        """The columns of documents in training, or what stands for them."""
        return self.model.info.columns or self.model.info.named

    async def start(self) -> None:
        """Start answering, and start ranking the documents to annotate."""
        self.batcher.start()
        if self.worklist is not None:
            self._ranking = asyncio.create_task(self._rank(self.worklist))

    async def stop(self) -> None:
        """Stop answering and ranking, and let other processes write the annotations."""
        if self._ranking is not None:
            self._ranking.cancel()
            await asyncio.wait([self._ranking])
        await self.batcher.stop()
        if self.annotations is not None:
            self.annotations.close()

    async def predict(
        self, texts: Sequence[str], options: PredictOptions
    ) -> list[Predictions]:
        """Find the labels of texts, after checking their number and lengths.

        Raises:
            RequestError: there are too many texts, one is too long, or the server is busy.
            XmtcError: the model refuses the texts or the filters.
        """
        self.check_texts(texts)
        return await self.batcher.predict(self.model, texts, options)

    def released(self, predictions: Sequence[Predictions]) -> list[bool]:
        """Say which texts are released; empty without a bar."""
        if self.config.release is None:
            return []
        expected = np.array(
            [[value or 0.0 for value in labels.expected] for labels in predictions]
        )
        return released(expected, self.config.release).tolist()

    async def save(
        self,
        documents: Sequence[SentDocument],
        request: Request,
        review: dict[str, Any] | None = None,
    ) -> tuple[list[str], int]:
        """Append documents to the annotations, if training can read them; see `Annotations.save`.

        Args:
            documents: documents with their labels.
            request: says who annotates: by a header that a proxy sets, or by the name of the token.
            review: what the person saw.

        Returns:
            Their identifiers, and the number of annotations now.

        Raises:
            RequestError: annotations are not kept, there are too many documents, or one is too long or empty.
            XmtcError: a text has no tokens, or the annotations refuse a document.
        """
        if self.annotations is None:
            raise RequestError(HTTPStatus.FORBIDDEN, _NOT_KEPT)
        texts = self.model.scorer.texts([document.text for document in documents])
        self.check_texts(texts)
        if texts:
            await run_in_threadpool(
                self.model.scorer.tokenise, texts
            )  # refuses what training would refuse
        annotated = [
            AnnotatedDocument(document.id, text, document.labels, document.complete)
            for document, text in zip(documents, texts, strict=True)
        ]
        version = (review or {}).pop("version", None) or self.version
        model = {"name": self.name, "version": version}
        saving = self._save(
            self.annotations, annotated, model, self._person(request), review
        )
        return await asyncio.shield(saving)

    def _person(self, request: Request) -> str | None:
        """Return the name of the person who sends a request, if it is known."""
        if self.config.user_header is None:
            return getattr(request.state, "by", None) or None
        name = request.headers.get(self.config.user_header, "")
        # Headers are read as Latin-1, and proxies write UTF-8.
        return name.encode("latin-1").decode(errors="backslashreplace") or None

    async def _save(
        self,
        annotations: Annotations,
        documents: Sequence[AnnotatedDocument],
        model: Mapping[str, str],
        by: str | None,
        review: Mapping[str, Any] | None,
    ) -> tuple[list[str], int]:
        """Append documents; this happens as a whole even if the client leaves."""
        ids = await run_in_threadpool(
            annotations.save, documents, model=model, by=by, review=review
        )
        if self.worklist is not None:
            for document in documents:
                self.worklist.done(document.id or "")
        return ids, len(annotations)

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise RequestError if there are too many texts, or one is too long or empty."""
        if len(texts) > self.limits.texts:
            message = f"{len(texts)} texts, more than {self.limits.texts}: send them in several requests"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        for row, text in enumerate(texts):
            if len(text) > self.limits.characters:
                message = f"text {row} has {len(text):,} characters, more than {self.limits.characters:,}: shorten it"
                raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
            if not text.strip():
                raise RequestError(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    f"text {row} is empty: leave it out",
                )

    async def _rank(self, worklist: Worklist) -> None:
        """Rank all documents, a few at a time, so that clients need not wait."""
        rank = order_by(self.config.order, self.model.labels)
        documents = worklist.unranked()
        for start in range(0, len(documents), _RANKED_AT_ONCE):
            batch = documents[start : start + _RANKED_AT_ONCE]
            answers = await asyncio.gather(
                *(self._predict_when_free(text) for _, text in batch)
            )
            for (doc_id, _), labels in zip(batch, answers, strict=True):
                if labels is None or any(self.released([labels])):
                    worklist.leave_out(doc_id)
                else:
                    worklist.rank(doc_id, rank(labels))

    async def _predict_when_free(self, text: str) -> Predictions | None:
        """Find the labels of a text once the queue has room; None if no client may send it, or the model fails."""
        while True:
            try:
                (labels,) = await self.predict([text], PredictOptions(TOP_K))
            except RequestError as refusal:
                if refusal.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                    return None
                await asyncio.sleep(RETRY_SECONDS)
            except XmtcError:
                return None
            else:
                return labels


def _gives_evidence(model: Model) -> bool:
    """Whether the model gives evidence. This tries it, which also warms up the model."""
    try:
        model.predict([_TRIAL], top_k=1, evidence=True)
    except XmtcError:
        return False
    return True
