"""Removing and merging labels: which labels remain, and which of them represent several.

Suffixes: L labels before, M labels after, K labels that are merged into one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Matrix


@dataclass(frozen=True)
class Regrouping:
    """A change of the set of labels.

    Attributes:
        before: L.
        kept_M: int64, ascending: each remaining label's id before.
        merged: for each merged label, by its id after: ids before (K,) of the labels it represents, itself first.
    """

    before: int
    kept_M: NDArray[np.int64]
    merged: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def without(cls, labels: int, removed: Sequence[int]) -> "Regrouping":
        """Remove some of L labels."""
        return cls(labels, np.delete(np.arange(labels), removed))

    @classmethod
    def merging(cls, labels: int, groups: Sequence[Sequence[int]]) -> "Regrouping":
        """Merge groups of L labels: the first label of each group represents the group."""
        merged_into_others = [label for group in groups for label in group[1:]]
        kept_M = np.delete(np.arange(labels), merged_into_others)
        merged = {}
        for group in groups:
            new_id = int(np.searchsorted(kept_M, group[0]))
            merged[new_id] = np.array(group)
        return cls(labels, kept_M, merged)

    def __len__(self) -> int:
        return len(self.kept_M)

    @cached_property
    def new_L(self) -> NDArray[np.int64]:
        """New id of each label; -1 for removed labels."""
        new_L = np.full(self.before, -1, np.int64)
        new_L[self.kept_M] = np.arange(len(self))
        for label, members_K in self.merged.items():
            new_L[members_K] = label
        return new_L

    def columns(self, matrix: Matrix, combine: np.ufunc) -> Matrix:
        """Convert a matrix with L columns to one with M columns.

        Args:
            matrix: sparse matrix.
            combine: combines the stored values of merged columns: `np.add` or `np.maximum`.
        """
        entries = matrix.tocoo()
        new_columns_E = self.new_L[entries.col]
        remains_E = new_columns_E >= 0
        places = (entries.row.astype(np.int64) * len(self) + new_columns_E)[remains_E]
        order = np.argsort(places, kind="stable")
        places = places[order]
        values = entries.data[remains_E][order]
        starts = np.flatnonzero(
            np.diff(places, prepend=-1)
        )  # where the values of another place begin
        coordinates = (places[starts] // len(self), places[starts] % len(self))
        shape = (int(matrix.shape[0]), len(self))
        return sparse.csr_array(
            (combine.reduceat(values, starts), coordinates), shape=shape
        )

    def summed(self, counts_L: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert counts to (M,); those of merged labels are added."""
        counts_M = counts_L[self.kept_M]
        for label, members_K in self.merged.items():
            counts_M[label] = counts_L[members_K].sum()
        return counts_M
