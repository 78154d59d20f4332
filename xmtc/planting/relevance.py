"""How relevant a token is for a label, by its rank; and how well an attention ranks a document's tokens.

Suffixes: N (document, label) lists, T tokens, K counted ranks.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GRADES = 5
"""Number of relevance grades, spaced by the logarithm of a token's rank for the label. The gain is 2^grade − 1."""


def grades_by_rank(k: int) -> NDArray[np.uint8]:
    """Compute the grade of each rank, uint8 (k + 1,). Index k means "not ranked" and has grade 0."""
    ranks = np.arange(k)
    grades = GRADES - np.floor(np.log1p(ranks) / np.log1p(k) * GRADES)
    return np.append(grades, 0).astype(np.uint8)


def gains_by_rank(k: int) -> NDArray[np.float32]:
    """Compute the gain 2^grade − 1 of each rank, float32 (k,)."""
    grades = grades_by_rank(k)[:-1]
    return np.exp2(grades.astype(np.float32)) - 1


def ndcg_of_lists(
    scores_NT: Tensor, grades_NT: Tensor, mask_NT: Tensor, cutoff: int
) -> Tensor:
    """Compute nDCG@cutoff (N,) with gain 2^g − 1 and discount 1/log2(1 + rank) (Järvelin & Kekäläinen 2002).

    Args:
        scores_NT: scores that rank the tokens of each list.
        grades_NT: their grades.
        mask_NT: bool, False on padding.
        cutoff: number of ranks that count.
    """
    gains_NT = torch.exp2(grades_NT.float()).sub(1).masked_fill(~mask_NT, 0)
    counted = min(cutoff, gains_NT.shape[1])
    ranks_K = torch.arange(2, counted + 2, device=gains_NT.device, dtype=torch.float32)
    discounts_K = 1 / torch.log2(ranks_K)
    best_NK = scores_NT.masked_fill(~mask_NT, -torch.inf).topk(counted).indices
    reached_N = (gains_NT.gather(1, best_NK) * discounts_K).sum(1)
    ideal_N = (gains_NT.topk(counted).values * discounts_K).sum(1)
    return reached_N / ideal_N.clamp(min=1e-9)
