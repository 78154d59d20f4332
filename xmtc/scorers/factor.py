"""The two forms of ridge regression: over terms (primal), or over documents if they are fewer (dual).

Primal: W = (AᵀA + λI)⁻¹AᵀY. Dual: W = Aᵀ(AAᵀ + λI)⁻¹Y. Both give the same W. The leverage of training document i is
hᵢ = aᵢᵀ(AᵀA + λI)⁻¹aᵢ = 1 − λ[(AAᵀ + λI)⁻¹]ᵢᵢ. Its score by a model that was fitted without it is
(ŷᵢ − hᵢyᵢ)/(1 − hᵢ) (Allen 1974, PRESS), for all labels at once.

Suffixes: N documents, V terms, C labels of a chunk, S sampled documents, M = V or N.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.distributed.collectives import all_reduce_sum, rank_and_world_size
from xmtc.errors import DataError
from xmtc.scorers.base import BLOCK
from xmtc.scorers.gram import gram, kernel

_LARGEST = 60_000  # float32: 14 GB


class Factor(Protocol):
    """A factorised ridge regression of some training documents."""

    def weights(self, labels_NC: Matrix) -> Floats:
        """Compute weights (V, C) of a chunk of labels."""
        ...

    def leverages(self, rows_S: NDArray[np.integer]) -> Floats:
        """Compute hᵢ (S,) of some of the training documents, in blocks."""
        ...


@dataclass(frozen=True)
class Primal(Factor):
    """The Cholesky factor of AᵀA + λI.

    Attributes:
        words_NV: A.
        lower_VV: float32; elements above the diagonal are not used.
    """

    words_NV: Matrix
    lower_VV: Floats

    @override
    def weights(self, labels_NC: Matrix) -> Floats:
        targets_VC = (self.words_NV.T @ labels_NC.astype(np.float32)).toarray()
        return linalg.cho_solve((self.lower_VV, True), targets_VC, overwrite_b=True, check_finite=False)

    @override
    def leverages(self, rows_S: NDArray[np.integer]) -> Floats:
        """Computes ‖L⁻¹aᵢ‖²."""
        blocks = (self.words_NV[rows_S[start : start + BLOCK]].toarray().T for start in range(0, len(rows_S), BLOCK))
        return _norms(self.lower_VV, list(blocks))


@dataclass(frozen=True)
class Dual(Factor):
    """The Cholesky factor of AAᵀ + λI.

    Attributes:
        words_NV: A.
        lower_NN: float32; elements above the diagonal are not used.
        penalty: λ.
    """

    words_NV: Matrix
    lower_NN: Floats
    penalty: float

    @override
    def weights(self, labels_NC: Matrix) -> Floats:
        labels = labels_NC.astype(np.float32).toarray()
        solved_NC = linalg.cho_solve((self.lower_NN, True), labels, overwrite_b=True, check_finite=False)
        return self.words_NV.T @ solved_NC

    @override
    def leverages(self, rows_S: NDArray[np.integer]) -> Floats:
        """Computes 1 − λ‖L⁻¹eᵢ‖²."""
        return (1 - self.penalty * _norms(self.lower_NN, self._units(rows_S))).astype(np.float32)

    def _units(self, rows_S: NDArray[np.integer]) -> list[Floats]:
        found = []
        for start in range(0, len(rows_S), BLOCK):
            rows = rows_S[start : start + BLOCK]
            unit_NB = np.zeros((len(self.lower_NN), len(rows)), np.float32)
            unit_NB[rows, np.arange(len(rows))] = 1
            found.append(unit_NB)
        return found


def factorise(words_NV: Matrix, penalties: tuple[float, ...]) -> list[Factor]:
    """Factorise for each penalty, in the smaller of the two forms. Ranks share a Gram matrix: collective.

    Raises:
        DataError: the matrix is not positive definite in float32, because a penalty is too small.
    """
    documents, terms = words_NV.shape
    if min(documents, terms) > _LARGEST:
        raise DataError(
            f"the linear scorer would factorise a matrix of {min(documents, terms):,} rows; the maximum is "
            f"{_LARGEST:,}: lower its most_terms"
        )
    if documents < terms:
        product_NN = kernel(words_NV)
        return [Dual(words_NV, _cholesky(product_NN, penalty), penalty) for penalty in penalties]
    rank, size = rank_and_world_size()
    share = slice(rank * documents // size, (rank + 1) * documents // size)
    product_VV = all_reduce_sum(torch.from_numpy(gram(words_NV[share]))).numpy()
    return [Primal(words_NV, _cholesky(product_VV, penalty)) for penalty in penalties]


def leave_one_out(fitted: Floats, truth: NDArray[np.floating | np.bool_], leverages: Floats) -> Floats:
    """Compute the scores of documents by a model fitted without them: (ŷ − h·y)/(1 − h)."""
    rest = np.maximum(1 - leverages, 1e-3)  # nearer to 0, single precision has no digits left
    return ((fitted - leverages * truth) / rest).astype(np.float32)


def _cholesky(product_MM: Floats, penalty: float) -> Floats:
    shifted_MM = product_MM.copy(order="F")
    shifted_MM[np.diag_indices(len(product_MM))] += np.float32(penalty)
    try:
        return linalg.cholesky(shifted_MM, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as error:
        raise DataError(
            f"the linear scorer's penalty {penalty} is too small to be solved in single precision ({error}): raise "
            "`penalties` in its settings"
        ) from error


def _norms(lower_MM: Floats, blocks: list[Floats]) -> Floats:
    solved = (linalg.solve_triangular(lower_MM, block_MB, lower=True, check_finite=False) for block_MB in blocks)
    found = [np.einsum("mb,mb->b", solved_MB, solved_MB) for solved_MB in solved]
    return np.concatenate(found or [np.zeros(0, np.float32)])
