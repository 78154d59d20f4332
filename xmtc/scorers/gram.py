"""Gram matrices of a sparse matrix with a dense part: products of all columns, or of all documents.

The Gram matrix of the columns is a sum over shards of documents.

Suffixes: N documents, V terms, F terms that are frequent enough to be dense, D dense columns, P = V + D columns.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Floats, Matrix

_DENSE_SHARE = 0.02  # for terms in a larger share of the documents, a dense product is cheaper than a sparse one
_MAX_DENSE = 2_000
_BLOCK_BYTES = 256 << 20


@dataclass(frozen=True)
class Design:
    """The columns of a linear model for N documents: sparse terms, then dense columns.

    Attributes:
        words_NV: float32.
        dense_ND: float32; D may be 0.
    """

    words_NV: Matrix
    dense_ND: Floats

    def __len__(self) -> int:
        return int(self.words_NV.indptr.size - 1)

    @property
    def columns(self) -> int:
        """P."""
        return self.words_NV.shape[1] + self.dense_ND.shape[1]

    def take(self, rows: NDArray[np.integer] | slice) -> "Design":
        """Select some of the documents."""
        return Design(self.words_NV[rows], self.dense_ND[rows])

    def toarray(self) -> Floats:
        """Make a dense array of all columns of a few documents, (N, P)."""
        return np.concatenate([self.words_NV.toarray(), self.dense_ND], axis=1)

    def targets(self, labels_NC: Matrix) -> Floats:
        """Compute AᵀY of some labels, (P, C)."""
        words_VC = (self.words_NV.T @ labels_NC.astype(np.float32)).toarray()
        return np.concatenate([words_VC, (labels_NC.T.astype(np.float32) @ self.dense_ND).T])


def gram(design: Design) -> Floats:
    """Compute AᵀA of one shard of documents, float32 (P, P). The sum over shards is AᵀA of all documents.

    Frequent terms and dense columns account for most products of pairs, so they are multiplied as a dense matrix.
    """
    terms, total = design.words_NV.shape[1], design.columns
    frequent = _frequent(design.words_NV)
    rare_V = np.setdiff1d(np.arange(terms), frequent)
    dense_F = np.concatenate([frequent, np.arange(terms, total)])
    result = np.zeros((total, total), np.float32)
    rows = max(1, _BLOCK_BYTES // (4 * max(len(dense_F), 1)))
    by_term = sparse.csc_array(design.words_NV)
    frequent_NF, rare_NR = sparse.csr_array(by_term[:, frequent]), sparse.csr_array(by_term[:, rare_V])
    dense_FF, cross_RF = np.zeros((len(dense_F),) * 2, np.float32), np.zeros((len(rare_V), len(dense_F)), np.float32)
    for start in range(0, len(design), rows):
        part = slice(start, start + rows)
        block_BF = np.concatenate([frequent_NF[part].toarray(), design.dense_ND[part]], axis=1)
        dense_FF += block_BF.T @ block_BF
        cross_RF += rare_NR[part].T @ block_BF
    result[np.ix_(dense_F, dense_F)] = dense_FF
    result[np.ix_(rare_V, dense_F)] = cross_RF
    result[np.ix_(dense_F, rare_V)] = cross_RF.T
    _add_sparse(result, rare_NR, rare_V)
    return result


def kernel(design: Design) -> Floats:
    """Compute AAᵀ, float32 (N, N): inner products of documents."""
    frequent = _frequent(design.words_NV)
    rare_V = np.setdiff1d(np.arange(design.words_NV.shape[1]), frequent)
    by_term = sparse.csc_array(design.words_NV)
    dense_NF = np.concatenate([by_term[:, frequent].toarray(), design.dense_ND], axis=1)
    result = dense_NF @ dense_NF.T
    _add_sparse(result, sparse.csr_array(by_term[:, rare_V].T.tocsr()), np.arange(len(design)))
    return result


def _frequent(words_NV: Matrix) -> NDArray[np.int64]:
    """Find the terms that get a dense column, ascending."""
    documents_V = np.bincount(words_NV.indices, minlength=words_NV.shape[1])
    most = np.argsort(-documents_V, kind="stable")[:_MAX_DENSE]
    return np.sort(most[documents_V[most] > _DENSE_SHARE * max(words_NV.indptr.size - 1, 1)])


def _add_sparse(result: Floats, rows_NR: Matrix, columns_R: NDArray[np.integer]) -> None:
    """Add RᵀR to these rows and columns of `result`, in blocks of rows."""
    by_column = sparse.csr_array(rows_NR.T)
    size = max(1, _BLOCK_BYTES // (4 * max(len(columns_R), 1)))
    for start in range(0, len(columns_R), size):
        product = (by_column[start : start + size] @ rows_NR).tocoo()
        result[columns_R[product.row + start], columns_R[product.col]] += product.data
