"""Pairwise learning to rank with nDCG weights. Suffixes: N lists, T items, P best-graded items, K ranks."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.losses.config import LambdaRankConfig


class LambdaRank(nn.Module):
    r"""Σ_{i,j: g_i>g_j} |ΔnDCG_ij| · log(1+exp(s_j−s_i)): Burges, "From RankNet to LambdaRank" (2010).

    |ΔnDCG_ij| = |gain_i−gain_j| · |1/log2(1+π_i) − 1/log2(1+π_j)| / idealDCG, gain = 2^g − 1, π the rank by current
    score, the discount 0 beyond rank k. Prefer it over ListNet when the top of the ranking matters most and lists
    carry several grades; it costs P times as much.

    Example:
        >>> loss = LambdaRankConfig(cutoff=2).build()
        >>> loss(torch.tensor([[3.0, 1.0]]), torch.tensor([[1, 0]]), torch.tensor([[True, True]])).shape
        torch.Size([1])
    """

    def __init__(self, config: LambdaRankConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, scores_NT: Tensor, grades_NT: Tensor, mask_NT: Tensor) -> Tensor:
        """Compute the loss of each list (N,), in fp32; 0 if nothing in it is graded.

        Args:
            scores_NT: float, higher is better.
            grades_NT: int, 0 is irrelevant.
            mask_NT: bool, False on padding.
        """
        scores_NT = scores_NT.float().masked_fill(~mask_NT, -1e4)
        gains_NT = torch.exp2(grades_NT.float()).sub(1).masked_fill(~mask_NT, 0)
        discounts_NT, ideal_N1 = self._discounts(scores_NT.detach(), gains_NT)
        best_NP = gains_NT.topk(
            min(self.config.graded_items, gains_NT.shape[1])
        ).indices

        def minus_each_item(values_NT: Tensor) -> Tensor:
            """Subtract the value of each item from those of the best-graded items: (N, P, T)."""
            return values_NT.gather(1, best_NP).unsqueeze(2) - values_NT.unsqueeze(1)

        better_by_NPT = minus_each_item(gains_NT).clamp(min=0)
        change_of_ndcg_NPT = (
            better_by_NPT * minus_each_item(discounts_NT).abs() / ideal_N1.unsqueeze(2)
        )
        weight_NPT = change_of_ndcg_NPT * mask_NT.unsqueeze(1)
        loss_NPT = F.softplus(-minus_each_item(scores_NT))
        return (weight_NPT * loss_NPT).sum((1, 2))

    def _discounts(self, scores_NT: Tensor, gains_NT: Tensor) -> tuple[Tensor, Tensor]:
        """Compute each item's discount at its current rank (N, T), and the DCG of the ideal order (N, 1)."""
        count = scores_NT.shape[1]
        positions_T = torch.arange(
            1, count + 1, device=scores_NT.device, dtype=torch.float32
        )
        counts_T = positions_T <= self.config.cutoff
        by_rank_T = torch.where(counts_T, 1 / torch.log2(1 + positions_T), 0.0)
        order_NT = scores_NT.argsort(1, descending=True)
        discounts_NT = torch.empty_like(scores_NT).scatter_(
            1, order_NT, by_rank_T.expand_as(scores_NT)
        )
        k = min(self.config.cutoff, count)
        best_gains_NK = gains_NT.topk(k).values
        ideal_N1 = (best_gains_NK * by_rank_T[:k]).sum(1, keepdim=True)
        return discounts_NT, ideal_N1.clamp(min=1e-9)
