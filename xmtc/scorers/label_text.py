"""Score a label by the share of its text in the document, the only way to score labels without training documents.

s(d, l) = Σ_{t ∈ l, t ∈ d} idf_t² / (Σ_{t ∈ l} idf_t²)^¾, the greatest over the names of a label. With a power of 1,
this would be the share of the name's words that the document contains, which always favours short names. A power of ½
gives the cosine without the document's length.

Suffixes: N documents, L labels, W names of labels, V terms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.analyzer import words_of
from xmtc.data.array_contract import Array, Arrays, SparseMatrix
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.labels import LabelTable
from xmtc.data.words import Vocabulary, Words
from xmtc.errors import DataError
from xmtc.scorers.base import (
    Contribution,
    Features,
    LabelNames,
    Training,
    field_weights,
)
from xmtc.scorers.config import LabelTextConfig
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.word_weights import WordWeights

_POWER = 0.75

Embed = Callable[[Sequence[str]], Floats]
"""Computes pooled states (W, D) of texts."""


def names_of_labels(
    labels: LabelTable, vocabulary: Vocabulary, embed: Embed | None = None
) -> LabelNames:
    """Collect every name of every label, or the label itself if it has none.

    Args:
        labels: the labels.
        vocabulary: vocabulary of the documents.
        embed: given if a scorer needs states of names.
    """
    texts = []
    owners = []
    for label_id, (label, name) in enumerate(
        zip(labels.labels, labels.names, strict=True)
    ):
        alternatives = labels.alternatives[label_id] if labels.alternatives else ()
        names = (name or label, *alternatives)
        texts += names
        owners += [label_id] * len(names)
    owners_W = np.array(owners, np.int64)
    return LabelNames(
        texts,
        owners_W,
        label_words(texts, vocabulary),
        None if embed is None else embed(texts),
    )


def label_words(texts: Sequence[str], vocabulary: Vocabulary) -> Matrix:
    """Compute the weights of terms in label texts, float32 (L, V), for `LabelText`.

    Words that no training document contains count in the denominator, with the idf of a word in no document.

    Args:
        texts: texts of L labels; an empty text matches nothing.
        vocabulary: vocabulary of the documents.
    """
    rules = vocabulary.rules._replace(ngrams=1)
    square_of_unseen = float(np.log(1 + vocabulary.documents) + 1) ** 2
    squares_V = np.square(vocabulary.idf.astype(np.float64))
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    for label_id, text in enumerate(texts):
        terms = sorted(set(rules.of(words_of(text))))
        term_ids = [vocabulary.ids[term] for term in terms if term in vocabulary.ids]
        if not term_ids:
            continue
        unseen_terms = len(terms) - len(term_ids)
        total = squares_V[term_ids].sum() + square_of_unseen * unseen_terms
        rows += [label_id] * len(term_ids)
        columns += term_ids
        values += (squares_V[term_ids] / total**_POWER).tolist()
    shape = (len(texts), len(vocabulary))
    return sparse.csr_array(
        (np.array(values, np.float32), (rows, columns)), shape=shape
    )


@dataclass(frozen=True)
class LabelText(WordWeights):
    """Weights of the terms of label texts, (V, W); a term counts once, however often a document contains it.

    Attributes:
        owners_W: label of each name; every label has at least one.
    """

    ARRAYS: ClassVar[Arrays | None] = {
        "weights_WL": SparseMatrix("F32", "VW"),
        "fields_F": Array("F32", "F", least=0),
        "owners_W": Array("I64", "W", least=0, below="L", complete=True),
    }
    owners_W: NDArray[np.int64]

    @property
    @override
    def labels(self) -> int:
        return int(self.owners_W.max(initial=-1)) + 1

    @classmethod
    @override
    def fit(cls, training: Training, settings: LabelTextConfig) -> Self:
        names = training.names
        if names is None:
            raise DataError(
                f"{settings.kind} needs names or descriptions of labels, but there are none: leave it out"
            )
        fields_F = field_weights(
            settings.fields,
            settings.kind,
            training.features.words.vocabulary,
            category=0,
        )
        return cls(sparse.csr_array(names.words_WV.T.tocsr()), fields_F, names.owners_W)

    @override
    def products(self, features: Features) -> Matrix:
        """Compute scores, sparse (N, L): those of each label's best name."""
        of_names_NW = super().products(features)
        if self.labels == len(self.owners_W):
            return of_names_NW
        return self._names.columns(of_names_NW, np.maximum)

    @cached_property
    def _names(self) -> Regrouping:
        """Which names become one label."""
        order = np.argsort(self.owners_W, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(self.owners_W))[:-1])
        several = {
            label: names for label, names in enumerate(members) if len(names) > 1
        }
        return Regrouping(
            len(self.owners_W), np.array([names[0] for names in members]), several
        )

    @override
    def contributions(
        self, features: Features, labels: Sequence[int]
    ) -> list[list[Contribution]]:
        """Finds the words of each label's best name."""
        names_of_labels = [
            np.flatnonzero(self.owners_W == label).tolist() for label in labels
        ]
        all_names = [name for names in names_of_labels for name in names]
        reasons_of_name = dict(
            zip(all_names, super().contributions(features, all_names), strict=True)
        )

        def score(name: int) -> float:
            return sum(reason.value for reason in reasons_of_name[name])

        return [reasons_of_name[max(names, key=score)] for names in names_of_labels]

    @override
    def values(self, words: Words) -> Matrix:
        """Returns each field's share in the occurrences of a term, so that the values of a term sum to 1."""
        counts_NC = words.counts_NC
        terms = max(len(words.vocabulary), 1)
        is_read_T = self.fields_F[counts_NC.indices // terms] > 0
        read_T = np.where(is_read_T, counts_NC.data, 0)
        document_T = np.repeat(np.arange(len(words)), np.diff(counts_NC.indptr))
        # The same term in several fields of a document is one group, whose occurrences are summed.
        _, group_T = np.unique(
            document_T * terms + counts_NC.indices % terms, return_inverse=True
        )
        occurrences_T = np.bincount(group_T, read_T)[group_T]
        shares_T = (read_T / np.maximum(occurrences_T, 1)).astype(np.float32)
        parts = (shares_T, counts_NC.indices, counts_NC.indptr)
        shares_NC = sparse.csr_array(parts, shape=counts_NC.shape, copy=True)
        shares_NC.eliminate_zeros()
        return shares_NC

    @override
    def extended(self, new: LabelNames) -> Self:
        owners_W = np.concatenate([self.owners_W, self.labels + new.owners_W])
        weights_VW = sparse.csr_array(
            sparse.hstack([self.weights_WL, new.words_WV.T], "csr")
        )
        return replace(self, weights_WL=weights_VW, owners_W=owners_W)

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        """A merged label has the names of its parts."""
        owners_W = regrouping.new_L[self.owners_W]
        kept_W = owners_W >= 0
        weights_VW = sparse.csr_array(self.weights_WL[:, np.flatnonzero(kept_W)])
        return replace(self, weights_WL=weights_VW, owners_W=owners_W[kept_W])
