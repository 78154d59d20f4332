"""Votes of the most similar training documents.

s(d, l) = Σ_j w(cos(d, j)) · Y[j, l] / Σ_j w(cos(d, j)) over the k nearest training documents j of document d.

Suffixes: B query documents, N training documents, K neighbours, L labels.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.scorers.base import (
    Contribution,
    Features,
    LabelNames,
    Scorer,
    SparseScored,
    with_empty_columns,
)
from xmtc.scorers.regrouping import Regrouping


@dataclass(frozen=True)
class Votes(Scorer):
    """Scores labels by a vote of the nearest training documents.

    Attributes:
        labels_NL: float32 ones, labels of the training documents.
        k: number of documents that vote.
    """

    labels_NL: Matrix
    k: int

    @abstractmethod
    def nearest(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        """Find rows and cosines (B, K) of the k nearest training documents, nearest first; -1 pads."""

    @abstractmethod
    def weights(self, cosines: Floats) -> Floats:
        """Compute the weights of votes, at least 0, from cosines."""

    @property
    @override
    def labels(self) -> int:
        return int(self.labels_NL.shape[1])

    @property
    @override
    def train_counts(self) -> NDArray[np.int64]:
        return np.bincount(self.labels_NL.indices, minlength=self.labels).astype(
            np.int64
        )

    @override
    def score(self, features: Features) -> SparseScored:
        """Computes each label's share of the votes."""
        voters_BK, shares_BK = self._voters(features)
        queries, places = np.nonzero(shares_BK)
        coordinates = (queries, voters_BK[queries, places])
        shape = (len(voters_BK), int(self.labels_NL.shape[0]))
        voters_BN = sparse.csr_array(
            (shares_BK[queries, places], coordinates), shape=shape
        )
        scores_BL = sparse.csr_array(voters_BN @ self.labels_NL)
        scores_BL.sort_indices()
        return SparseScored(scores_BL)

    @override
    def contributions(
        self, features: Features, labels: Sequence[int]
    ) -> list[list[Contribution]]:
        """Finds the neighbours that have a label, and the share of each in the votes."""
        (voters_K,), (shares_K,) = self._voters(features)
        has_label_KS = self.labels_NL[voters_K][:, labels].toarray() != 0
        reasons = []
        for has_label_K in has_label_KS.T:
            places = np.flatnonzero(has_label_K & (shares_K > 0))
            reasons.append(
                [
                    Contribution("document", int(voters_K[at]), float(shares_K[at]))
                    for at in places
                ]
            )
        return reasons

    def _voters(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        """Find the rows of the nearest documents, and their shares of the votes (B, K); a row of -1 has no share."""
        rows_BK, cosines_BK = self.nearest(features)
        weights_BK = np.where(rows_BK >= 0, self.weights(cosines_BK), 0)
        sums_B1 = weights_BK.sum(axis=1, keepdims=True)
        return rows_BK, weights_BK / np.maximum(sums_B1, np.finfo(np.float32).tiny)

    @override
    def extended(self, new: LabelNames) -> Self:
        """The scorer never proposes the new labels, because no training document has them."""
        return replace(self, labels_NL=with_empty_columns(self.labels_NL, len(new)))

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        """A document has a merged label if it has one of its parts."""
        return replace(self, labels_NL=regrouping.columns(self.labels_NL, np.maximum))
