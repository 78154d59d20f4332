"""Assign documents to optimizer steps and micro-batches, as a function of seed, epoch and world size alone.

B documents of a micro-batch, N documents of the split.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.errors import DataError

Ids = NDArray[np.int64]

STEPS_PER_CHUNK = 50
"""Documents are sorted by length inside chunks of this many steps: long enough for batches of similar lengths, short
against an epoch, so that the order stays random."""


@dataclass(frozen=True)
class MicroBatch:
    """The documents that one rank processes in one pass.

    Attributes:
        documents: int64 (B,), rows of the split.
        weights: float32 (B,), 1, or 0 for a filler: a document that another rank counts, computed here so that all
            ranks have equally many micro-batches and meet in every collective.
    """

    documents: Ids
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class Step:
    """One optimizer step of one rank.

    Attributes:
        micro_batches: equally many on every rank.
        documents: real documents of the step over all ranks: what the summed loss is divided by.
        consumed: documents of the epoch that are done after this step; a resume starts here.
    """

    micro_batches: tuple[MicroBatch, ...]
    documents: int
    consumed: int


class Sampler:
    """Visits every document once per epoch, in steps of `batch_size` documents of similar length.

    The documents of a step depend on lengths, seed and epoch; the world size only determines which rank computes
    which of them.

    Args:
        lengths: (N,) tokens per document.
        batch_size: documents of an optimizer step over all ranks; the last step of an epoch may have fewer.
        tokens_per_micro_batch: maximum number of padded tokens per micro-batch; a longer document is alone in one.
        seed: seed of the order.
        rank, world_size: this rank, and the number of ranks.
    """

    def __init__(
        self,
        lengths: NDArray[np.integer],
        *,
        batch_size: int,
        tokens_per_micro_batch: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
    ):
        if batch_size < 1 or tokens_per_micro_batch < 1:
            raise ValueError(
                f"batch_size {batch_size} and {tokens_per_micro_batch} tokens must be at least 1"
            )
        if not 0 <= rank < world_size:
            raise ValueError(
                f"rank {rank} of {world_size}: a rank is from 0 to one below the number of ranks"
            )
        if len(lengths) == 0:
            raise DataError("the split has no documents to train on")
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size = batch_size
        self._tokens_per_micro_batch = tokens_per_micro_batch
        self._seed = seed
        self._rank = rank
        self._world_size = world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch."""
        return math.ceil(len(self._lengths) / self._batch_size)

    def epoch(self, epoch: int, consumed: int = 0) -> Iterator[Step]:
        """Yield the remaining steps of an epoch.

        Args:
            epoch: from 0; each has a different order.
            consumed: `Step.consumed` of the last finished step, at any world size.

        Raises:
            DataError: no step ends there, because the batch size or the corpus has changed.
        """
        passed = 0  # documents of the steps so far, skipped ones included
        for documents in self._steps(epoch):
            if passed > consumed:
                break
            if passed == consumed:
                consumed += len(documents)
                micro_batches = self._micro_batches(documents, self._rank)
                yield Step(tuple(micro_batches), len(documents), consumed)
            passed += len(documents)
        if passed != consumed:
            raise DataError(
                f"no step of epoch {epoch} ends after {consumed} documents: the checkpoint was written with another "
                f"batch_size than {self._batch_size}, or another corpus"
            )

    def _steps(self, epoch: int) -> list[Ids]:
        """List the documents of each step, shortest first."""
        random = np.random.default_rng([self._seed, epoch])
        order = random.permutation(len(self._lengths))
        chunk = self._batch_size * STEPS_PER_CHUNK
        steps: list[Ids] = []
        for start in range(0, len(order), chunk):
            documents = order[start : start + chunk]
            documents = documents[np.argsort(self._lengths[documents], kind="stable")]
            for first in range(0, len(documents), self._batch_size):
                steps.append(documents[first : first + self._batch_size])
        return [steps[number] for number in random.permutation(len(steps))]

    def _micro_batches(self, documents: Ids, rank: int) -> list[MicroBatch]:
        """Pack a rank's share of a step, and add fillers until every rank has equally many micro-batches."""
        packed_by_rank = [
            _pack(
                documents[first :: self._world_size],
                self._lengths,
                self._tokens_per_micro_batch,
            )
            for first in range(self._world_size)
        ]
        batches = [
            MicroBatch(packed, np.ones(len(packed), dtype=np.float32))
            for packed in packed_by_rank[rank]
        ]
        most_batches = max(len(packed) for packed in packed_by_rank)
        filler = MicroBatch(documents[:1], np.zeros(1, dtype=np.float32))
        return batches + [filler] * (most_batches - len(batches))


def evaluation_batches(
    lengths: NDArray[np.integer], tokens_per_micro_batch: int
) -> list[Ids]:
    """Batch every document once, longest first, so that too little memory shows immediately.

    Args:
        lengths: (N,) tokens per document.
        tokens_per_micro_batch: maximum number of padded tokens per batch; a longer document is alone in one.

    Returns:
        Rows of the split, int64.
    """
    lengths_N = np.asarray(lengths, dtype=np.int64)
    shortest_first = np.argsort(lengths_N, kind="stable").astype(np.int64)
    batches = _pack(shortest_first, lengths_N, tokens_per_micro_batch)
    return batches[::-1]


def _pack(documents: Ids, lengths: NDArray[np.int64], most_tokens: int) -> list[Ids]:
    """Cut documents that are sorted by length in runs of at most `most_tokens` padded tokens, from the end on."""
    batches: list[Ids] = []
    end = len(documents)
    while end > 0:
        longest = max(int(lengths[documents[end - 1]]), 1)
        documents_that_fit = max(most_tokens // longest, 1)
        start = max(end - documents_that_fit, 0)
        batches.append(documents[start:end])
        end = start
    return batches[::-1]
