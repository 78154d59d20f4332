"""A score that is a sum over the words of a document.

Suffixes: N documents, L labels, V terms with weights (the first ones of the vocabulary), R more labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from scipy import sparse
from typing_extensions import override

from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_tensors, sparse_names, sparse_tensors, to_sparse, write_tensors
from xmtc.scorers.base import Contribution, Features, Scored, Scorer, SparseScored, with_empty_columns
from xmtc.scorers.regrouping import Regrouping

_FILE = "weights.safetensors"


@dataclass(frozen=True)
class WordWeights(Scorer):
    """A sparse table of weights.

    Attributes:
        weights_VL: float32.
        merge: how weights of merged labels are combined.
    """

    weights_VL: Matrix
    merge: ClassVar[np.ufunc] = np.add

    @property
    @override
    def labels(self) -> int:
        return int(self.weights_VL.shape[1])

    def values(self, words_NV: Matrix) -> Matrix:
        """Return what the weights are multiplied by, sparse (N, V): the TF-IDF rows."""
        return words_NV[:, : self.weights_VL.shape[0]]

    def products(self, features: Features) -> Matrix:
        """Compute scores, sparse (N, L)."""
        scores_NL = sparse.csr_array(self.values(features.words_NV) @ self.weights_VL)
        scores_NL.sort_indices()
        return scores_NL

    @override
    def score(self, features: Features) -> Scored:
        return SparseScored(self.products(features))

    @override
    def contributions(self, features: Features, labels: Sequence[int]) -> list[list[Contribution]]:
        values_1V = self.values(features.words_NV)
        # A slice of these rows is cheap; a slice of the labels' columns would read all weights.
        weights_TS = self.weights_VL[values_1V.indices][:, labels].toarray()
        found = []
        for weights_T in weights_TS.T:
            shares_T = values_1V.data * weights_T
            greatest = np.argsort(-np.abs(shares_T), kind="stable")[: np.count_nonzero(shares_T)]
            found.append([Contribution("term", int(values_1V.indices[at]), float(shares_T[at])) for at in greatest])
        return found

    @override
    def extended(self, label_words_RV: Matrix) -> Self:
        """The scorer never proposes the new labels, because they have no weights."""
        return replace(self, weights_VL=with_empty_columns(self.weights_VL, len(label_words_RV.indptr) - 1))

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        return replace(self, weights_VL=regrouping.columns(self.weights_VL, self.merge))

    @override
    def save(self, folder: Path) -> None:
        write_tensors(folder / _FILE, sparse_tensors("weights", self.weights_VL))

    @classmethod
    @override
    def load(cls, folder: Path) -> Self:
        return cls(to_sparse("weights", read_tensors(folder / _FILE, sparse_names("weights"))))
