"""A score that is a sum over the words of a document.

Suffixes: N documents, L labels, F fields, V terms, C = F · V columns of words, W rows of weights.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy import sparse
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays, SparseMatrix
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.words import Words
from xmtc.distributed.collectives import all_gather_object
from xmtc.scorers.base import (
    Contribution,
    Features,
    LabelNames,
    Scored,
    Scorer,
    SparseScored,
    with_empty_columns,
)
from xmtc.scorers.regrouping import Regrouping


def gathered(own: Iterable[tuple[int, Matrix]]) -> Matrix:
    """Stack the weights (labels, C) of all ranks' chunks of labels, each with its first label: collective."""
    chunks = [chunk for of_rank in all_gather_object(list(own)) for chunk in of_rank]
    chunks.sort(key=lambda chunk: chunk[0])
    return sparse.vstack([rows for _, rows in chunks], format="csr")


@dataclass(frozen=True)
class WordWeights(Scorer):
    """A sparse table of weights.

    Attributes:
        weights_WL: float32; a row for each column of words, or for each term if fields share their weights.
        fields_F: float32, weight of each field; 0 if the scorer does not read it.
    """

    ARRAYS: ClassVar[Arrays | None] = {
        "weights_WL": SparseMatrix("F32", "CL"),
        "fields_F": Array("F32", "F", least=0),
    }
    weights_WL: Matrix
    fields_F: Floats

    @property
    @override
    def labels(self) -> int:
        return int(self.weights_WL.shape[1])

    def values(self, words: Words) -> Matrix:
        """Return what the weights are multiplied by, sparse (N, C): the TF-IDF rows."""
        return words.apart(self.fields_F)

    def products(self, features: Features) -> Matrix:
        """Compute scores, sparse (N, L)."""
        values_NC = self.values(features.words)
        rows = self.weights_WL.shape[0]
        parts = (values_NC.data, values_NC.indices % rows, values_NC.indptr)
        values_NW = sparse.csr_array(parts, shape=(len(features), rows))
        scores_NL = sparse.csr_array(values_NW @ self.weights_WL)
        scores_NL.sort_indices()
        return scores_NL

    @override
    def score(self, features: Features) -> Scored:
        return SparseScored(self.products(features))

    @override
    def contributions(
        self, features: Features, labels: Sequence[int]
    ) -> list[list[Contribution]]:
        values_1C = self.values(features.words)
        # A slice of these rows is cheap; a slice of the labels' columns would read all weights.
        weights_TS = self.weights_WL[values_1C.indices % self.weights_WL.shape[0]][
            :, labels
        ].toarray()
        reasons = []
        for weights_T in weights_TS.T:
            shares_T = values_1C.data * weights_T
            greatest = np.argsort(-np.abs(shares_T), kind="stable")[
                : np.count_nonzero(shares_T)
            ]
            reasons.append(
                [
                    Contribution(
                        "term", int(values_1C.indices[at]), float(shares_T[at])
                    )
                    for at in greatest
                ]
            )
        return reasons

    @override
    def extended(self, new: LabelNames) -> Self:
        """The scorer never proposes the new labels, because they have no weights."""
        return replace(self, weights_WL=with_empty_columns(self.weights_WL, len(new)))

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        return replace(self, weights_WL=regrouping.columns(self.weights_WL, np.add))
