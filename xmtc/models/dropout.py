"""Dropout with masks that are cheap to draw on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 2**16  # values of a 16-bit random number


class Dropout(nn.Module):
    """x ⊙ mask / (1 − rate) in training and x in evaluation (Srivastava et al., 2014).

    On a CPU, each value draws 16 random bits instead of a floating-point number, which takes a quarter of the time. The
    rate is then the nearest multiple of 1/65,536; remaining values are scaled accordingly.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout with PyTorch's default generator."""
        if not self.training or x.device.type != "cpu":
            return F.dropout(x, self.rate, self.training)
        dropped_levels = min(round(self.rate * _LEVELS), _LEVELS - 1)
        if dropped_levels == 0:
            return x
        words = (
            x.numel() + 3
        ) // 4  # of 64 bits, each of which is four draws of 16 bits
        draws = (
            torch.empty(words, dtype=torch.int64)
            .random_(-(2**63), None)
            .view(torch.int16)
        )
        lowest_retained = dropped_levels - _LEVELS // 2  # a draw has a sign
        is_retained = draws[: x.numel()].view(x.shape) >= lowest_retained
        scale = _LEVELS / (_LEVELS - dropped_levels)
        return x * is_retained.to(x.dtype).mul_(scale)
