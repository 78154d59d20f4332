"""Score a label by the share of its text in the document, the only way to score labels without training documents.

s(d, l) = Σ_{t ∈ l, t ∈ d} idf_t² / (Σ_{t ∈ l} idf_t²)^¾. With a power of 1, this would be the share of the label's
words that the document contains, which always favours short names. A power of ½ gives the cosine without the document's
length.

Suffixes: N documents, L labels, V terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy import sparse
from typing_extensions import override

from xmtc.data.analyzer import words_of
from xmtc.data.arrays import Matrix
from xmtc.data.words import Vocabulary, terms_of
from xmtc.errors import DataError
from xmtc.scorers.base import Training
from xmtc.scorers.config import LabelTextConfig
from xmtc.scorers.word_weights import WordWeights

_POWER = 0.75


def label_words(texts: Sequence[str], vocabulary: Vocabulary) -> Matrix:
    """Compute the weights of terms in label texts, float32 (L, V), for `LabelText`.

    Words that no training document contains count in the denominator, with the idf of a word in no document.

    Args:
        texts: texts of L labels; an empty text matches nothing.
        vocabulary: vocabulary of the documents.
    """
    unseen = float(np.log(1 + vocabulary.documents) + 1) ** 2
    squares_V = np.square(vocabulary.idf.astype(np.float64))
    rows, columns, values = [], [], []
    for label, text in enumerate(texts):
        terms = sorted(set(terms_of(words_of(text), 1)))
        known = [vocabulary.ids[term] for term in terms if term in vocabulary.ids]
        total = squares_V[known].sum() + unseen * (len(terms) - len(known))
        rows += [label] * len(known)
        columns += known
        values += (squares_V[known] / total**_POWER).tolist() if known else []
    shape = (len(texts), len(vocabulary))
    return sparse.csr_array((np.array(values, np.float32), (rows, columns)), shape=shape)


@dataclass(frozen=True)
class LabelText(WordWeights):
    """Weights of the terms of label texts; a term counts once, however often a document contains it."""

    merge: ClassVar[np.ufunc] = np.maximum

    @classmethod
    @override
    def fit(cls, training: Training, settings: LabelTextConfig) -> Self:
        if training.label_words_LV is None:
            raise DataError(
                f"{settings.kind} needs names or descriptions of labels, but the corpus has none: leave it out"
            )
        return cls(sparse.csr_array(training.label_words_LV.T.tocsr()))

    @override
    def values(self, words_NV: Matrix) -> Matrix:
        ones = np.ones(words_NV.nnz, np.float32)
        return sparse.csr_array((ones, words_NV.indices, words_NV.indptr), shape=words_NV.shape)

    @override
    def extended(self, label_words_RV: Matrix) -> Self:
        return replace(self, weights_VL=sparse.csr_array(sparse.hstack([self.weights_VL, label_words_RV.T], "csr")))
