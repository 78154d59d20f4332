"""Ranks of all tokens for a handful of labels, fast enough for every training step.

Suffixes: V token vocabulary, L labels, K ranked tokens per label, S selected labels.
"""

import numpy as np
from numpy.typing import NDArray


class RankTable:
    """A (S, V) table with a value for the rank of each token, in a buffer that every call overwrites.

    Only entries that change are written, so a call costs S·K and not S·V. Not to be shared between threads: each makes
    its own, which costs one buffer.

    Args:
        token_ids_LK: int32, ranked tokens, best first, -1 behind the last.
        vocab_size: V, columns of the table.
        values_K1: value of each rank; the last one stands for "not ranked". Its type is the table's.
    """

    def __init__(
        self, token_ids_LK: NDArray[np.int32], vocab_size: int, values_K1: NDArray
    ) -> None:
        if len(values_K1) != token_ids_LK.shape[1] + 1:
            raise ValueError(
                f"{len(values_K1)} values for {token_ids_LK.shape[1]} ranks and 'not ranked'"
            )
        self.vocab_size = vocab_size
        self._token_ids_LK = token_ids_LK
        self._values_K = values_K1[:-1]
        self._unranked = values_K1[-1]
        self._allocate(0)

    def __call__(self, label_ids_S: NDArray[np.integer]) -> NDArray:
        """Return the table of the selected labels, a (S, V) view that the next call overwrites."""
        selected = len(label_ids_S)
        if selected > len(self._table_SV):
            self._allocate(selected)
        flat = self._table_SV.reshape(-1)
        flat[self._places_SK[: self._used]] = self._unranked
        self._used = selected
        places_SK = self._places_SK[:selected]
        np.add(
            self._token_ids_LK.take(label_ids_S, axis=0),
            self._row_starts_S1[:selected],
            out=places_SK,
        )
        flat[places_SK] = self._values_SK[:selected]
        return self._table_SV[:selected, : self.vocab_size]

    def _allocate(self, rows: int) -> None:
        """Allocate buffers for `rows` labels, "not ranked" everywhere.

        The column behind the vocabulary takes what the padding writes: -1 is the last column of the row above.
        """
        width = self.vocab_size + 1
        k = len(self._values_K)
        self._used = 0
        self._table_SV = np.full((rows, width), self._unranked)
        self._places_SK = np.zeros((rows, k), np.int64)
        self._values_SK = np.tile(
            self._values_K, (rows, 1)
        )  # writing from a broadcast view takes half as long again
        self._row_starts_S1 = np.arange(rows, dtype=np.int64)[:, None] * width
