"""Listwise learning to rank. Suffixes: N lists, T items."""

import torch
from torch import Tensor, nn


class ListNet(nn.Module):
    r"""−Σ_t p_t · log softmax(s)_t with p_t = gain_t / Σ gain, gain = 2^g − 1 (Cao et al. 2007, top-one).

    The softmax over a document's tokens is the very attention that the scores become, so the loss asks the attention
    to spread over the graded tokens in proportion to their gains. Prefer it where speed matters: O(T) per list.

    Example:
        >>> loss = ListNetConfig().build()
        >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]), torch.tensor([[True, True]]))
        tensor([0.6931])
    """

    def forward(self, scores_NT: Tensor, grades_NT: Tensor, mask_NT: Tensor) -> Tensor:
        """Compute the loss of each list (N,), in fp32; 0 if nothing in it is graded. Arguments as `LambdaRank`."""
        scores_NT = scores_NT.float().masked_fill(~mask_NT, -1e4)
        log_p_NT = scores_NT.log_softmax(1)
        gains_NT = torch.exp2(grades_NT.float()).sub(1).masked_fill(~mask_NT, 0)
        sums_N1 = gains_NT.sum(1, keepdim=True)
        target_NT = gains_NT / sums_N1.clamp(min=1e-9)
        return -(target_NT * log_p_NT).sum(1)
