"""Linear algebra that the closed forms of attention and values share.

Suffixes: D hidden width, k directions, d head width.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

RIDGE = 1e-3
"""λ as a share of the mean eigenvalue of a covariance."""
_UNDECIDED = 1e-3
"""Share of a moment's trace with which the covariance decides."""
_SMALLEST = 1e-12
"""Keeps divisions finite where all states are equal."""


def moment(parts: Iterable[Tensor], like_DD: Tensor) -> Tensor:
    """Compute Σ xᵀx over blocks x (S, D), with the type and device of `like_DD`."""
    total_DD = torch.zeros_like(like_DD)
    for part_SD in parts:
        total_DD = total_DD + part_SD.T @ part_SD
    return total_DD


def oas(covariance_DD: Tensor, count: float) -> Tensor:
    """Shrink a covariance of `count` documents towards a multiple of the identity (Chen et al. 2010)."""
    width = len(covariance_DD)
    trace = covariance_DD.trace()
    squares = covariance_DD.square().sum()
    share = (squares + trace**2) / ((count + 1) * (squares - trace**2 / width))
    share = share.nan_to_num(nan=1.0).clamp(0, 1)
    mean = (trace / width).clamp(min=_SMALLEST)
    return (1 - share) * covariance_DD + share * mean * torch.eye(width).to(
        covariance_DD
    )


def ridged(covariance_DD: Tensor, share: float = RIDGE) -> Tensor:
    """Add this share of the mean eigenvalue to the diagonal."""
    width = len(covariance_DD)
    mean = (covariance_DD.trace() / width).clamp(min=_SMALLEST)
    return covariance_DD + share * mean * torch.eye(width).to(covariance_DD)


def inverse_root(covariance_DD: Tensor) -> Tensor:
    """Compute Σ^(−1/2) of a positive definite matrix, which whitens what has this covariance."""
    values_D, vectors_DD = torch.linalg.eigh(covariance_DD)
    return (vectors_DD * values_D.clamp(min=_SMALLEST).rsqrt()) @ vectors_DD.T


def leading(moment_DD: Tensor, covariance_DD: Tensor, width: int) -> Tensor:
    """Select the eigenvectors of the largest eigenvalues, as rows (≤ width, D).

    A little of the covariance decides where labels do not, as when they are fewer than `width`.
    """
    smallest = _SMALLEST
    share = (
        _UNDECIDED
        * moment_DD.trace().clamp(min=smallest)
        / covariance_DD.trace().clamp(min=smallest)
    )
    eigenvectors_DD = torch.linalg.eigh(moment_DD + share * covariance_DD).eigenvectors
    return eigenvectors_DD.T[-width:]


def spread(directions_kD: Tensor, whiten_DD: Tensor, width: int, seed: int) -> Tensor:
    """Rotate directions (k, D) at random into `width` dimensions, so that every attention head has a share of each.

    The result depends only on the span of the directions: their signs, and the order of equal ones, are rounding.

    Args:
        directions_kD: orthonormal directions of whitened states.
        whiten_DD: whitens states; it comes first in the returned projection.
        width: d, total width of the attention heads.
        seed: determines the rotation.
    """
    generator = torch.Generator().manual_seed(seed)
    normal_dD = torch.randn(
        width, directions_kD.shape[1], dtype=torch.float64, generator=generator
    )
    products_dk = normal_dD.to(directions_kD.device) @ directions_kD.T
    left_dk, _, right_kk = torch.linalg.svd(products_dk, full_matrices=False)
    return left_dk @ right_kk @ directions_kD @ whiten_DD
