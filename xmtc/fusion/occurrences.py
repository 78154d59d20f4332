"""How often labels occur together in training documents, and the score of a label that follows from the others.

The score of label l in document d is Σ_{l' ≠ l} p(l' | d) · n(l, l') / (n(l') + 2), where n counts training documents
with one label or with both, and p are probabilities by the other scorers. Each factor after p estimates the probability
of l given l', as if two more documents had l' without l.

Suffixes: N documents, K candidates, L labels, M labels after regrouping.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.array_contract import Array, Arrays, SparseMatrix
from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_fields, write_fields
from xmtc.scorers.regrouping import Regrouping

CO_OCCURRENCE = "co_occurrence"
"""Name of the score in a fusion."""
_PSEUDO_DOCUMENTS = 2
OCCURRENCES = "occurrences.safetensors"


@dataclass(frozen=True)
class Occurrences:
    """Training documents of labels and of pairs of labels.

    Attributes:
        counts_L: int64, documents of each label.
        together_LL: int32, documents of each pair; nothing on the diagonal.
    """

    ARRAYS: ClassVar[Arrays] = {
        "counts_L": Array("I64", "L", least=0),
        "together_LL": SparseMatrix("I32", "LL", least=0),
    }
    counts_L: NDArray[np.int64]
    together_LL: Matrix

    @classmethod
    def of(cls, labels_NL: Matrix) -> "Occurrences":
        """Count the labels of documents.

        Args:
            labels_NL: boolean.
        """
        ones_NL = labels_NL.astype(np.int32)
        counts_L = np.bincount(labels_NL.indices, minlength=labels_NL.shape[1]).astype(
            np.int64
        )
        return cls(counts_L, _without_diagonal(ones_NL.T @ ones_NL))

    @classmethod
    def without_pairs(cls, counts_L: NDArray[np.int64]) -> "Occurrences":
        """Return the counts of labels alone."""
        return cls(
            counts_L, sparse.csr_array((len(counts_L), len(counts_L)), dtype=np.int32)
        )

    @property
    def any_together(self) -> bool:
        """Whether a document has several labels."""
        return self.together_LL.nnz > 0

    @cached_property
    def given_LL(self) -> Matrix:
        """Estimated probability of the column's label given the row's, float32."""
        together_LL = self.together_LL
        row_counts_P = np.repeat(self.counts_L, np.diff(together_LL.indptr))
        values_P = (together_LL.data / (row_counts_P + _PSEUDO_DOCUMENTS)).astype(
            np.float32
        )
        return sparse.csr_array(
            (values_P, together_LL.indices, together_LL.indptr), shape=together_LL.shape
        )

    def between(self, label_ids_NK: NDArray[np.int32]) -> Matrix:
        """Select the probabilities of each candidate given each other candidate of its document, (P, P) of P pairs.

        Args:
            label_ids_NK: candidates; -1 pads rows.
        """
        values = [np.empty(0, np.float32)]
        columns = [np.empty(0, np.int64)]
        row_sizes = [np.zeros(1, np.int64)]
        pair_count = 0
        for ids_K in label_ids_NK:
            candidates = ids_K[ids_K >= 0]
            given_KK = self.given_LL[candidates][:, candidates]
            values.append(given_KK.data)
            columns.append(given_KK.indices + pair_count)
            row_sizes.append(np.diff(given_KK.indptr))
            pair_count += len(candidates)
        starts_P = np.concatenate(row_sizes).cumsum()
        content = (np.concatenate(values), np.concatenate(columns), starts_P)
        return sparse.csr_array(content, shape=(pair_count, pair_count))

    def extended(self, labels: int) -> "Occurrences":
        """Return the counts with this many more labels, which no document has."""
        total = len(self.counts_L) + labels
        together_LL = self.together_LL.copy()
        together_LL.resize((total, total))
        counts_L = np.concatenate([self.counts_L, np.zeros(labels, np.int64)])
        return Occurrences(counts_L, together_LL)

    def regrouped(
        self, regrouping: Regrouping, counts_M: NDArray[np.int64]
    ) -> "Occurrences":
        """Return the counts of fewer labels; a merged label has the sum of its parts.

        Args:
            regrouping: change of the labels.
            counts_M: documents of the labels afterwards.
        """
        columns_LM = regrouping.columns(self.together_LL, np.add)
        together_MM = regrouping.columns(columns_LM.T.tocsr(), np.add)
        row_counts_P = np.repeat(counts_M, np.diff(together_MM.indptr))
        together_MM.data = np.minimum(together_MM.data, row_counts_P).astype(np.int32)
        return Occurrences(counts_M, _without_diagonal(together_MM))

    def save(self, folder: Path) -> None:
        """Write `occurrences.safetensors`."""
        write_fields(folder / OCCURRENCES, self)

    @classmethod
    def load(cls, folder: Path) -> "Occurrences":
        """Read a saved file.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return read_fields(folder / OCCURRENCES, cls)


def _without_diagonal(pairs_LL: Matrix) -> Matrix:
    pairs_LL = sparse.csr_array(pairs_LL)
    rows = np.repeat(np.arange(pairs_LL.shape[0]), np.diff(pairs_LL.indptr))
    pairs_LL.data[rows == pairs_LL.indices] = 0
    pairs_LL.eliminate_zeros()
    pairs_LL.sort_indices()
    return pairs_LL
