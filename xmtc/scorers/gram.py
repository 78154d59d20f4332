"""Gram matrices of a sparse matrix: products of all columns, or of all documents.

The Gram matrix of the columns is a sum over shards of documents.

Suffixes: N documents, V terms, F terms that are frequent enough to be dense, R the other terms.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Floats, Matrix

_DENSE_SHARE = 0.02  # for terms in a larger share of the documents, a dense product is cheaper than a sparse one
_MAX_DENSE = 2_000
_BLOCK_BYTES = 256 << 20


def gram(words_NV: Matrix) -> Floats:
    """Compute AᵀA of one shard of documents, float32 (V, V). The sum over shards is AᵀA of all documents.

    Frequent terms account for most products of pairs, so they are multiplied as a dense matrix.
    """
    documents, terms = words_NV.shape
    frequent_F, rare_R = by_frequency(words_NV, _MAX_DENSE)
    result = np.zeros((terms, terms), np.float32)
    rows = max(1, _BLOCK_BYTES // (4 * max(len(frequent_F), 1)))
    by_term = sparse.csc_array(words_NV)
    frequent_NF = sparse.csr_array(by_term[:, frequent_F])
    rare_NR = sparse.csr_array(by_term[:, rare_R])
    dense_FF = np.zeros((len(frequent_F), len(frequent_F)), np.float32)
    cross_RF = np.zeros((len(rare_R), len(frequent_F)), np.float32)
    for start in range(0, documents, rows):
        part = slice(start, start + rows)
        block_BF = frequent_NF[part].toarray()
        dense_FF += block_BF.T @ block_BF
        cross_RF += rare_NR[part].T @ block_BF
    result[np.ix_(frequent_F, frequent_F)] = dense_FF
    result[np.ix_(rare_R, frequent_F)] = cross_RF
    result[np.ix_(frequent_F, rare_R)] = cross_RF.T
    _add_sparse(result, rare_NR, rare_R)
    return result


def kernel(words_NV: Matrix) -> Floats:
    """Compute AAᵀ, float32 (N, N): inner products of documents."""
    frequent_F, rare_R = by_frequency(words_NV, _MAX_DENSE)
    by_term = sparse.csc_array(words_NV)
    dense_NF = by_term[:, frequent_F].toarray()
    result = dense_NF @ dense_NF.T
    _add_sparse(
        result, sparse.csr_array(by_term[:, rare_R].T.tocsr()), np.arange(len(result))
    )
    return result


def by_frequency(
    words_NV: Matrix, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Part the terms, at most `most`, that are better multiplied as a dense matrix, from the others; ascending."""
    documents_V = np.bincount(words_NV.indices, minlength=words_NV.shape[1])
    most_frequent = np.argsort(-documents_V, kind="stable")[:most]
    enough = _DENSE_SHARE * max(words_NV.shape[0], 1)
    frequent_F = np.sort(most_frequent[documents_V[most_frequent] > enough])
    rare_R = np.setdiff1d(np.arange(len(documents_V)), frequent_F)
    return frequent_F, rare_R


def _add_sparse(
    result: Floats, rows_NR: Matrix, columns_R: NDArray[np.integer]
) -> None:
    """Add RᵀR to these rows and columns of `result`, in blocks of rows."""
    by_column = sparse.csr_array(rows_NR.T)
    size = max(1, _BLOCK_BYTES // (4 * max(len(columns_R), 1)))
    for start in range(0, len(columns_R), size):
        product = (by_column[start : start + size] @ rows_NR).tocoo()
        result[columns_R[product.row + start], columns_R[product.col]] += product.data
