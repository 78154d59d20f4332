"""Assign documents to optimizer steps and micro-batches, as a function of seed, epoch and world size alone.

B documents of a micro-batch, N documents of the split.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.errors import DataError

Ids = NDArray[np.int64]

# Documents are sorted by length inside chunks of this many steps: long enough for batches of similar lengths, short
# against an epoch, so that the order stays random.
STEPS_PER_CHUNK = 50


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
        if batch_size < 1 or tokens_per_micro_batch < 1 or not 0 <= rank < world_size:
            raise ValueError(f"batch_size {batch_size}, {tokens_per_micro_batch} tokens, rank {rank} of {world_size}")
        if len(lengths) == 0:
            raise DataError("the split has no documents to train on")
        self._lengths = np.asarray(lengths, dtype=np.int64)
        self._batch_size, self._budget, self._seed = batch_size, tokens_per_micro_batch, seed
        self._rank, self._world_size = rank, world_size

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of an epoch."""
        return -(-len(self._lengths) // self._batch_size)

    def epoch(self, epoch: int, consumed: int = 0) -> Iterator[Step]:
        """Yield the remaining steps of an epoch.

        Args:
            epoch: from 0; each has a different order.
            consumed: `Step.consumed` of the last finished step, at any world size.

        Raises:
            DataError: no step ends there, because the batch size or the corpus has changed.
        """
        done = 0
        for documents in self._steps(epoch):
            if done > consumed:
                break
            if done == consumed:
                consumed += len(documents)
                yield Step(tuple(self._micro_batches(documents, self._rank)), len(documents), consumed)
            done += len(documents)
        if done != consumed:
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
            part = order[start : start + chunk]
            part = part[np.argsort(self._lengths[part], kind="stable")]
            steps += [part[i : i + self._batch_size] for i in range(0, len(part), self._batch_size)]
        return [steps[i] for i in random.permutation(len(steps))]

    def _micro_batches(self, documents: Ids, rank: int) -> list[MicroBatch]:
        """Pack a rank's share of a step, and add fillers until every rank has equally many micro-batches."""
        shares = [documents[r :: self._world_size] for r in range(self._world_size)]
        packed = [_pack(share, self._lengths, self._budget) for share in shares]
        batches = [MicroBatch(part, np.ones(len(part), dtype=np.float32)) for part in packed[rank]]
        filler = MicroBatch(documents[:1], np.zeros(1, dtype=np.float32))
        return batches + [filler] * (max(map(len, packed)) - len(batches))


def evaluation_batches(lengths: NDArray[np.integer], tokens_per_micro_batch: int) -> list[Ids]:
    """Batch every document once, longest first, so that too little memory shows immediately.

    Args:
        lengths: (N,) tokens per document.
        tokens_per_micro_batch: maximum number of padded tokens per batch; a longer document is alone in one.

    Returns:
        Rows of the split, int64.
    """
    ordered = np.argsort(np.asarray(lengths), kind="stable").astype(np.int64)
    return _pack(ordered, np.asarray(lengths, dtype=np.int64), tokens_per_micro_batch)[::-1]


def _pack(documents: Ids, lengths: NDArray[np.int64], budget: int) -> list[Ids]:
    """Cut documents that are sorted by length in runs of at most `budget` padded tokens, the longest ones first."""
    batches: list[Ids] = []
    end = len(documents)
    while end > 0:
        longest = max(int(lengths[documents[end - 1]]), 1)
        start = max(end - max(budget // longest, 1), 0)
        batches.append(documents[start:end])
        end = start
    return batches[::-1]
