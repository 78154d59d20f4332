"""Ridge regression in closed form: one factorisation for all labels.

W = (AᵀA + λI)⁻¹AᵀY over TF-IDF rows A (N, V) and labels Y (N, L); a term has a column for each field. If documents are
fewer than terms, the dual form W = Aᵀ(AAᵀ + λI)⁻¹Y gives the same W. Gram matrices are sums over shards (`gram`), and
chunks of labels are solved independently (`solve_labels`), so both steps can run in parallel.

Pairs of a document and a label that nobody judged are left out as the unknown part of a least-squares problem is: they
are given the value that W predicts, and W is solved again, with the same factorisation (Dempster, Laird & Rubin 1977).
At the fixed point, their error is 0, so that W fits the judged pairs alone.

W is linear in Y. If no document has both of two labels, the weights of their union are the sum of their weights. A
document with both labels counts twice in the sum.

Suffixes: N documents, V columns with weights, L labels, C columns of words or labels of a chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg, sparse
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.distributed.collectives import all_reduce_sum, rank_and_world_size
from xmtc.errors import DataError
from xmtc.scorers.base import (
    DenseScored,
    Features,
    Scored,
    SparseScored,
    Training,
    field_weights,
)
from xmtc.scorers.config import LinearConfig
from xmtc.scorers.gram import gram, kernel
from xmtc.scorers.word_weights import WordWeights, gathered

LABELS_AT_ONCE = 512
"""Number of labels solved at once."""
_ROUNDS = 10
"""Solutions after which pairs that nobody judged hardly matter."""
_LARGEST = 60_000  # rows of a Gram matrix; float32: 14 GB
_MAX_DENSE_LABELS = 50_000  # above this, scores stay sparse


@dataclass(frozen=True)
class Linear(WordWeights):
    """Pruned weights. A score is near 1 if the document has the label, and near 0 if not."""

    @classmethod
    @override
    def fit(cls, training: Training, settings: LinearConfig) -> Self:
        """Fits all labels.

        Raises:
            DataError: a penalty is too small.
        """
        words = training.features.words
        fields_F = field_weights(settings.fields, settings.kind, words.vocabulary)
        words_NC = words.apart(fields_F)
        used_V = _most_frequent(words_NC, settings.most_terms)
        words_NV = sparse.csr_array(words_NC[:, used_V])
        scale_V = np.ones(len(used_V), np.float32)
        if settings.weighting == "log_odds":
            scale_V = _log_odds(words_NV, training.labels_NL)
            words_NV = _scaled(words_NV, scale_V)
        solved = solve_labels(
            training.labels_NL,
            factorise(words_NV, settings.penalty),
            settings.prune,
            training.unjudged_NL,
        )
        weights_LV = _scaled(gathered(solved), scale_V)
        weights_LC = sparse.csr_array(
            (weights_LV.data, used_V[weights_LV.indices], weights_LV.indptr),
            (weights_LV.shape[0], words_NC.shape[1]),
        )
        return cls(sparse.csr_array(weights_LC.T.tocsr()), fields_F)

    @override
    def score(self, features: Features) -> Scored:
        scores_NL = self.products(features)
        if self.labels > _MAX_DENSE_LABELS:
            return SparseScored(scores_NL)
        return DenseScored(scores_NL.toarray())


def _most_frequent(words_NC: Matrix, most: int) -> NDArray[np.int64]:
    """Find the columns with most documents, ascending."""
    documents_C = np.bincount(words_NC.indices, minlength=words_NC.shape[1])
    in_use = np.count_nonzero(documents_C)
    most_frequent = np.argsort(-documents_C, kind="stable")[: min(most, in_use)]
    return np.sort(most_frequent)


def _scaled(matrix: Matrix, scale_V: Floats) -> Matrix:
    """Scale the columns of a matrix."""
    data = matrix.data * scale_V[matrix.indices]
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _log_odds(words_NV: Matrix, labels_NL: Matrix) -> Floats:
    """Compute max over labels |log(share of the label's documents with the term / share of the others)|, (V,).

    Counts are smoothed by one document. The mean square of a scaled row is 1, like that of an unscaled row.
    """
    documents = len(words_NV.indptr) - 1
    present_VN = sparse.csr_array(words_NV.astype(bool).T.tocsr()).astype(np.float32)
    by_label = sparse.csc_array(labels_NL.astype(np.float32))
    frequency_V1 = np.bincount(words_NV.indices, minlength=words_NV.shape[1])[:, None]
    scale_V = np.zeros(len(frequency_V1))
    for start in range(0, int(labels_NL.shape[1]), LABELS_AT_ONCE):
        labels_NC = by_label[:, start : start + LABELS_AT_ONCE]
        together_VC = np.asarray((present_VN @ labels_NC).toarray(), np.float64)
        size_C = labels_NC.sum(axis=0)
        inside_VC = (together_VC + 1) / (size_C + 2)
        outside_VC = (frequency_V1 - together_VC + 1) / (documents - size_C + 2)
        scale_V = np.maximum(
            scale_V, np.abs(np.log(inside_VC / outside_VC)).max(axis=1)
        )
    square = np.square(words_NV.data * scale_V[words_NV.indices]).sum() / documents
    return (scale_V / np.sqrt(square or 1.0)).astype(np.float32)


@dataclass(frozen=True)
class Factor:
    """A Cholesky factor.

    Attributes:
        words_NV: A.
        lower_MM: float32, of AᵀA + λI, or of AAᵀ + λI; elements above the diagonal are not used.
        dual: whether it is of the latter.
    """

    words_NV: Matrix
    lower_MM: Floats
    dual: bool

    def weights(self, labels_NC: Matrix, unjudged_NC: Matrix | None = None) -> Floats:
        """Compute weights (V, C) of a chunk of labels, for the judged pairs alone."""
        if unjudged_NC is None or unjudged_NC.nnz == 0:
            return self._solved(labels_NC.astype(np.float32))
        targets_NC = labels_NC.toarray().astype(np.float32)
        rows_J, columns_J = unjudged_NC.nonzero()
        judged_C = len(targets_NC) - np.bincount(
            columns_J, minlength=targets_NC.shape[1]
        )
        shares_C = targets_NC.sum(axis=0) / np.maximum(judged_C, 1)
        targets_NC[rows_J, columns_J] = shares_C[columns_J]
        for _ in range(_ROUNDS):
            weights_VC = self._solved(targets_NC)
            predicted_NC = self.words_NV @ weights_VC
            targets_NC[rows_J, columns_J] = predicted_NC[rows_J, columns_J]
        return self._solved(targets_NC)

    def _solved(self, targets_NC: Matrix | Floats) -> Floats:
        right_MC = targets_NC if self.dual else self.words_NV.T @ targets_NC
        dense_MC = right_MC if isinstance(right_MC, np.ndarray) else right_MC.toarray()
        solved_MC = linalg.cho_solve(
            (self.lower_MM, True),
            dense_MC,
            overwrite_b=dense_MC is not targets_NC,
            check_finite=False,
        )
        return self.words_NV.T @ solved_MC if self.dual else solved_MC


def factorise(words_NV: Matrix, penalty: float) -> Factor:
    """Factorise in the smaller of the two forms. Ranks share a Gram matrix: collective.

    Raises:
        DataError: the matrix is not positive definite in float32, because a penalty is too small.
    """
    documents, terms = words_NV.shape
    if min(documents, terms) > _LARGEST:
        raise DataError(
            f"the linear scorer would factorise a matrix of {min(documents, terms):,} rows; the maximum is "
            f"{_LARGEST:,}: lower its most_terms"
        )
    rank, size = rank_and_world_size()
    dual = documents < terms
    if dual:
        product_MM = kernel(words_NV)
    else:
        share = slice(rank * documents // size, (rank + 1) * documents // size)
        product_MM = all_reduce_sum(torch.from_numpy(gram(words_NV[share]))).numpy()
    product_MM[np.diag_indices(len(product_MM))] += np.float32(penalty)
    try:  # in place: the transpose of a symmetric matrix is the same one in the order that LAPACK wants
        lower_MM = linalg.cholesky(
            product_MM.T, lower=True, overwrite_a=True, check_finite=False
        )
    except linalg.LinAlgError as error:
        raise DataError(
            f"the linear scorer's penalty {penalty} is too small to be solved in single precision ({error}): raise "
            "`penalty` in its settings"
        ) from error
    return Factor(words_NV, lower_MM, dual)


def solve_labels(
    labels_NL: Matrix,
    factor: Factor,
    prune: float,
    unjudged_NL: Matrix | None = None,
) -> Iterator[tuple[int, Matrix]]:
    """Solve this rank's share of the labels, chunk by chunk: yield the first label, and pruned weights (C, V).

    Args:
        labels_NL: boolean labels of the training documents.
        factor: of the words of these.
        prune: see `LinearConfig.prune`.
        unjudged_NL: see `Training`.
    """
    by_label = sparse.csc_array(labels_NL)
    unjudged_by_label = None if unjudged_NL is None else sparse.csc_array(unjudged_NL)
    rank, size = rank_and_world_size()  # ranks take chunks in turn
    for start in range(
        rank * LABELS_AT_ONCE, labels_NL.shape[1], size * LABELS_AT_ONCE
    ):
        chunk = slice(start, start + LABELS_AT_ONCE)
        unjudged_NC = None if unjudged_by_label is None else unjudged_by_label[:, chunk]
        yield start, pruned(factor.weights(by_label[:, chunk], unjudged_NC), prune)


def pruned(weights_VC: Floats, share: float) -> Matrix:
    """Drop each label's smallest weights, (C, V), while their norm is below this share of the norm of all.

    The score of a row of unit length then changes by at most `share` times the norm of the label's weights
    (Cauchy-Schwarz).
    """
    squares_CP = np.square(weights_VC.T)
    order_CP = np.argsort(squares_CP, axis=1)
    lost_CP = np.cumsum(np.take_along_axis(squares_CP, order_CP, axis=1), axis=1)
    dropped_CP = lost_CP <= share**2 * lost_CP[:, -1:]
    kept_CP = np.empty_like(dropped_CP)
    np.put_along_axis(kept_CP, order_CP, ~dropped_CP, axis=1)
    return sparse.csr_array(np.where(kept_CP, weights_VC.T, 0))
