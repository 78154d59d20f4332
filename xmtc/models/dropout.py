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
        dropped = min(round(self.rate * _LEVELS), _LEVELS - 1)
        if dropped == 0:
            return x
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        kept = draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - _LEVELS // 2
        return x * kept.to(x.dtype).mul_(_LEVELS / (_LEVELS - dropped))
