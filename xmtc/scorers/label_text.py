"""Score a label by the share of its text in the document, the only way to score labels without training documents.

s(d, l) = Σ_{t ∈ l, t ∈ d} idf_t² / (Σ_{t ∈ l} idf_t²)^¾. With a power of 1, this would be the share of the label's
words that the document contains, which always favours short names. A power of ½ gives the cosine without the document's
length.

Suffixes: N documents, L labels, V terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_tensors, sparse_names, sparse_tensors, to_sparse, write_tensors
from xmtc.data.words import Vocabulary, terms_of, words_of
from xmtc.errors import DataError
from xmtc.scorers.base import Contribution, Features, SparseScored, Training, greatest_first
from xmtc.scorers.config import LabelTextConfig
from xmtc.scorers.regrouping import Regrouping

_POWER = 0.75
_FILE = "label_text.safetensors"


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
class LabelText:
    """Label texts as weights of terms.

    Attributes:
        weights_VL: float32.
    """

    weights_VL: Matrix

    @property
    def labels(self) -> int:
        """L."""
        return int(self.weights_VL.shape[1])

    @property
    def reads_states(self) -> bool:
        """No: it reads words."""
        return False

    def score(self, features: Features) -> SparseScored:
        """Score how much of each label's text each document contains."""
        scores = sparse.csr_array(_presence(features.words_NV) @ self.weights_VL)
        scores.sort_indices()
        return SparseScored(scores)

    def extended(self, label_words_RV: Matrix) -> "LabelText":
        """Return the scorer with the texts of more labels."""
        return LabelText(sparse.csr_array(sparse.hstack([self.weights_VL, label_words_RV.T], format="csr")))

    def regrouped(self, regrouping: Regrouping) -> "LabelText":
        """Return the scorer with fewer labels; a merged label has all their words, with the greatest weights."""
        return LabelText(regrouping.columns(self.weights_VL, np.maximum))

    @property
    def train_counts(self) -> None:
        """None: label texts do not hold counts."""
        return None

    def contributions(self, features: Features, labels: Sequence[int]) -> list[list[Contribution]]:
        """Compute the contribution of each word of a label's text that the document contains, greatest first."""
        present = features.words_NV.indices[: features.words_NV.indptr[1]]
        values_SV = self.weights_VL[present][:, labels].toarray().T
        return [
            [
                Contribution("label_term", int(present[place]), float(values_V[place]))
                for place in greatest_first(values_V)
            ]
            for values_V in values_SV
        ]

    def save(self, folder: Path) -> None:
        """Write `label_text.safetensors`."""
        write_tensors(folder / _FILE, sparse_tensors("weights", self.weights_VL))

    @classmethod
    def load(cls, folder: Path) -> "LabelText":
        """Read saved files.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return cls(to_sparse("weights", read_tensors(folder / _FILE, sparse_names("weights"))))


def _presence(words_NV: Matrix) -> Matrix:
    ones = np.ones(words_NV.nnz, np.float32)
    return sparse.csr_array((ones, words_NV.indices, words_NV.indptr), shape=words_NV.shape)


def fit_label_text(training: Training, config: LabelTextConfig) -> LabelText:
    """Transpose the weights of the label texts.

    Raises:
        DataError: there are no label texts.
    """
    if training.label_words_LV is None:
        raise DataError(f"{config.kind} needs names or descriptions of labels, but the corpus has none: leave it out")
    return LabelText(sparse.csr_array(training.label_words_LV.T.tocsr()))
