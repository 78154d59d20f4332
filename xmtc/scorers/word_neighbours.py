"""Votes of the training documents with the most similar words: w = cos⁴.

Suffixes: B query documents, N training documents, K neighbours, V terms, F terms with a dense column.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays, SparseMatrix
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.words import Words
from xmtc.scorers.base import Features, Training, field_weights
from xmtc.scorers.config import WordNeighboursConfig
from xmtc.scorers.gram import by_frequency
from xmtc.scorers.ties import EQUAL, first_of_each
from xmtc.scorers.votes import Votes

_POWER = np.float32(4)
"""Power of a cosine in the weight of a vote."""
_MAX_DENSE = 300
"""Number of terms with a dense column at most."""
_PAIRS = 1 << 16
"""Pairs of documents whose words are multiplied at once."""


@dataclass(frozen=True)
class WordNeighbours(Votes):
    """Exact search by cosine of TF-IDF rows, with a dense product for frequent terms and a sparse one for the others.

    Attributes:
        words_NV: float32, rows of unit length.
        fields_F: float32, weight of each field; 0 if it is not read.
    """

    ARRAYS: ClassVar[Arrays | None] = {
        "labels_NL": SparseMatrix("F32", "NL", least=0),
        "k": Array("I64", least=1),
        "words_NV": SparseMatrix("F32", "NV", least=0),
        "fields_F": Array("F32", "F", least=0),
    }
    words_NV: Matrix
    fields_F: Floats

    @classmethod
    @override
    def fit(cls, training: Training, settings: WordNeighboursConfig) -> Self:
        words = training.features.words
        fields_F = field_weights(
            settings.fields, settings.kind, words.vocabulary, category=0
        )
        return cls(
            training.labels_NL.astype(np.float32),
            settings.neighbours,
            words.together(fields_F),
            fields_F,
        )

    @cached_property
    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Matrix]:
        """Frequent and rare terms, and the columns (N, F) and (R, N) of each."""
        frequent_F, rare_R = by_frequency(self.words_NV, _MAX_DENSE)
        rare_RN = sparse.csr_array(self.words_NV[:, rare_R].T.tocsr())
        dense_NF = self.words_NV[:, frequent_F].toarray()
        return frequent_F, rare_R, dense_NF, rare_RN

    @override
    def nearest(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        """Finds the nearest documents that share a word; products find them roughly, and `_cosines` exactly."""
        words_BV = features.words.together(self.fields_F)
        frequent_F, rare_R, dense_NF, rare_RN = self._parts
        rough_BN = words_BV[:, frequent_F].toarray() @ dense_NF.T
        rough_BN += (words_BV[:, rare_R] @ rare_RN).toarray()
        k = min(self.k, rough_BN.shape[1])
        best_BK = torch.from_numpy(rough_BN).topk(k, dim=1).values.numpy()
        least_B1 = np.maximum(best_BK[:, -1:] - 2 * EQUAL, 0)
        query_P, document_P = np.nonzero(rough_BN > least_B1)
        cosine_P = self._cosines(words_BV, query_P, document_P)
        return first_of_each(query_P, document_P, cosine_P, len(rough_BN), k)

    def _cosines(
        self,
        words_BV: Matrix,
        query_P: NDArray[np.integer],
        document_P: NDArray[np.integer],
    ) -> NDArray[np.float64]:
        """Compute cosines of pairs, each alone and in the order of its terms, so that no other pair changes a bit."""
        cosine_P = np.empty(len(query_P))
        words_BV = words_BV.astype(np.float64)
        for start in range(0, len(query_P), _PAIRS):
            part = slice(start, start + _PAIRS)
            queries_PV = words_BV[query_P[part]]
            products_PV = queries_PV.multiply(self.words_NV[document_P[part]])
            cosine_P[part] = np.asarray(products_PV.sum(axis=1)).ravel()
        return cosine_P

    @override
    def closeness(self, words: Words) -> Floats:
        return self.nearest(Features(words))[1][:, 0]

    @override
    def weights(self, cosines: Floats) -> Floats:
        return np.power(np.maximum(cosines, 0), _POWER, dtype=np.float32)
