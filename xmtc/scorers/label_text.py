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
from xmtc.data.words import Vocabulary, Words, terms_of
from xmtc.errors import DataError
from xmtc.scorers.base import Training, field_weights
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
        fields_F = field_weights(settings.fields, settings.kind, training.features.words.vocabulary.fields)
        return cls(sparse.csr_array(training.label_words_LV.T.tocsr()), fields_F)

    @override
    def values(self, words: Words) -> Matrix:
        """Returns each field's share in the occurrences of a term, so that the values of a term sum to 1."""
        counts_NC, terms = words.counts_NC, max(len(words.vocabulary), 1)
        read_T = np.where(self.fields_F[counts_NC.indices // terms] > 0, counts_NC.data, 0)
        document_T = np.repeat(np.arange(len(words)), np.diff(counts_NC.indptr))
        _, term_T = np.unique(document_T * terms + counts_NC.indices % terms, return_inverse=True)
        shares_T = read_T / np.maximum(np.bincount(term_T, read_T)[term_T], 1)
        parts = shares_T.astype(np.float32), counts_NC.indices, counts_NC.indptr
        found_NC = sparse.csr_array(parts, shape=counts_NC.shape, copy=True)
        found_NC.eliminate_zeros()
        return found_NC

    @override
    def extended(self, label_words_RV: Matrix) -> Self:
        return replace(self, weights_WL=sparse.csr_array(sparse.hstack([self.weights_WL, label_words_RV.T], "csr")))
