"""A column of lists that several Arrow shards hold, read in place.

N documents of all shards together.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class ListColumn:
    """Int32 lists, one for each document, memory-mapped.

    Args:
        batches: the shards in order, one record batch each.
        name: the column.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], name: str) -> None:
        self._starts = np.cumsum([0] + [batch.num_rows for batch in batches])
        self._shards = [_flat(batch, name) for batch in batches]

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) entries of each list."""
        parts = [np.diff(offsets) for _, offsets in self._shards]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def row(self, document: int) -> NDArray[np.int32]:
        """Return the list of a document as a view of the file, not a copy.

        Raises:
            IndexError: no such document.
        """
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} of {len(self)}")
        shard = int(np.searchsorted(self._starts, document, side="right")) - 1
        values, offsets = self._shards[shard]
        row = document - self._starts[shard]
        return values[offsets[row] : offsets[row + 1]]

    def blocks(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Yield (flat values, offsets (rows + 1,)) of each shard in order."""
        for values, offsets in self._shards:
            yield values, offsets.astype(np.int64)

    def values(self, documents: NDArray[np.int64] | None = None) -> NDArray[np.int32]:
        """Concatenate the lists of some documents, in the given order, into a copy.

        Args:
            documents: any order, repeats allowed; None: all N.

        Raises:
            IndexError: no such document.
        """
        if documents is None:
            return np.concatenate(
                [np.empty(0, np.int32)] + [values for values, _ in self._shards]
            )
        if len(documents) and not 0 <= documents.min() <= documents.max() < len(self):
            raise IndexError(
                f"documents {documents.min()} to {documents.max()} of {len(self)}"
            )
        lengths = self.lengths[documents]
        ends = np.cumsum(lengths)
        gathered = np.empty(int(lengths.sum()), np.int32)
        shard_of = np.searchsorted(self._starts, documents, side="right") - 1
        for shard in np.unique(shard_of):
            in_shard = shard_of == shard
            lengths_here = lengths[in_shard]
            values, offsets = self._shards[shard]
            sources = offsets[documents[in_shard] - self._starts[shard]]
            targets = ends[in_shard] - lengths_here
            gathered[_spans(targets, lengths_here)] = values[
                _spans(sources, lengths_here)
            ]
        return gathered


def _spans(
    starts: NDArray[np.integer], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Concatenate the ranges of `length` numbers from `start`, one range per pair."""
    skipped = np.cumsum(lengths) - lengths
    return np.repeat(starts - skipped, lengths) + np.arange(int(lengths.sum()))


def _flat(
    batch: pa.RecordBatch, name: str
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the values of all lists of a shard, and where each list begins, without a copy."""
    column = batch.column(name)
    values = column.values.to_numpy(zero_copy_only=True)
    offsets = column.offsets.to_numpy(zero_copy_only=True)
    return values, offsets
