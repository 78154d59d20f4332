"""The two forms of ridge regression: over terms (primal), or over documents if they are fewer (dual).

Primal: W = (AᵀA + λI)⁻¹AᵀY. Dual: W = Aᵀ(AAᵀ + λI)⁻¹Y. Both give the same W.

Suffixes: N documents, V terms, C labels of a chunk, M = V or N.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from scipy import linalg
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.distributed.collectives import all_reduce_sum, rank_and_world_size
from xmtc.errors import DataError
from xmtc.scorers.gram import gram, kernel

_LARGEST = 60_000  # float32: 14 GB


class Factor(Protocol):
    """A factorised ridge regression of some training documents."""

    def weights(self, labels_NC: Matrix) -> Floats:
        """Compute weights (V, C) of a chunk of labels."""
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


@dataclass(frozen=True)
class Dual(Factor):
    """The Cholesky factor of AAᵀ + λI.

    Attributes:
        words_NV: A.
        lower_NN: float32; elements above the diagonal are not used.
    """

    words_NV: Matrix
    lower_NN: Floats

    @override
    def weights(self, labels_NC: Matrix) -> Floats:
        labels = labels_NC.astype(np.float32).toarray()
        solved_NC = linalg.cho_solve((self.lower_NN, True), labels, overwrite_b=True, check_finite=False)
        return self.words_NV.T @ solved_NC


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
    if documents < terms:
        return Dual(words_NV, _cholesky(kernel(words_NV), penalty))
    rank, size = rank_and_world_size()
    share = slice(rank * documents // size, (rank + 1) * documents // size)
    product_VV = all_reduce_sum(torch.from_numpy(gram(words_NV[share]))).numpy()
    return Primal(words_NV, _cholesky(product_VV, penalty))


def _cholesky(product_MM: Floats, penalty: float) -> Floats:
    """Factorise in place."""
    product_MM[np.diag_indices(len(product_MM))] += np.float32(penalty)
    try:
        return linalg.cholesky(product_MM.T, lower=True, overwrite_a=True, check_finite=False)
    except linalg.LinAlgError as error:
        raise DataError(
            f"the linear scorer's penalty {penalty} is too small to be solved in single precision ({error}): raise "
            "`penalty` in its settings"
        ) from error
