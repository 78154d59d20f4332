"""Binary cross-entropy."""

import torch
from torch import Tensor
from torch.nn import functional as F

from xmtc.losses.binary import BinaryLoss


class BinaryCrossEntropy(BinaryLoss):
    r"""Binary cross-entropy, summed over labels and documents.

    Formula: L+ = −w · ln σ(x), L− = −ln(1 − σ(x)).

    Inputs: see `Loss`.

    Prefer it when calibrated probabilities matter, or labels are few and balanced. With thousands of rare labels the
    asymmetric focal loss learns the tail faster.

    Example:
        >>> loss = BinaryCrossEntropy()
        >>> loss(torch.zeros(1, 2), Targets(torch.tensor([0]), torch.tensor([1]), torch.ones(1))).sum
        tensor(1.3863)
    """

    def __init__(self, positive_weight: float = 1.0) -> None:
        super().__init__()
        self.positive_weight = positive_weight

    def negative(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute L− and its derivative."""
        return F.softplus(logits), torch.sigmoid(logits)

    def slope(self, logits: Tensor) -> Tensor:
        """Compute the derivative of L−."""
        return torch.sigmoid(logits)

    def positive(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute L+ and its derivative."""
        loss = self.positive_weight * F.softplus(-logits)
        slope = -self.positive_weight * torch.sigmoid(-logits)
        return loss, slope
