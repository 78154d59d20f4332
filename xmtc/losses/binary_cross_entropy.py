"""Binary cross-entropy. Suffixes: B documents, C columns (all labels, or a shortlist)."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.chunked import binary_loss


@config
class BinaryCrossEntropyConfig:
    """Binary cross-entropy of every label."""

    kind: Literal["binary_cross_entropy"] = "binary_cross_entropy"
    """Which loss."""
    positive_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of positives against negatives; above 1 trades precision for recall."""

    def build(self) -> nn.Module:
        """The loss module."""
        return BinaryCrossEntropy(self.positive_weight)


class BinaryCrossEntropy(nn.Module):
    r"""Binary cross-entropy, summed over labels and documents.

    Formula: L+ = −w · ln σ(x), L− = −ln(1 − σ(x)).

    Inputs: logits (B, C), the sparse positives.

    Prefer it when calibrated probabilities matter, or labels are few and balanced; with thousands of rare labels the
    asymmetric focal loss learns the tail faster.

    Example:
        >>> loss = BinaryCrossEntropyConfig().build()
        >>> loss(torch.zeros(1, 2), Targets(torch.tensor([0]), torch.tensor([1]), torch.ones(1))).sum
        tensor(1.3863)
    """

    def __init__(self, positive_weight: float = 1.0) -> None:
        super().__init__()
        self.positive_weight = positive_weight

    def forward(
        self,
        logits_BC: Tensor,
        targets: Targets,
        generator: torch.Generator | None = None,
        importance_BC: Tensor | None = None,
    ) -> LossOutput:
        """Summed loss, in fp32.

        Args:
            logits_BC: one a column.
            targets: the positives, each pair once.
            generator: not needed here: nothing is drawn.
            importance_BC: how many labels each column of a drawn shortlist stands for as a negative.
        """
        return binary_loss(self, logits_BC, targets, importance_BC)

    def negative(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """L− and its derivative."""
        return F.softplus(logits), torch.sigmoid(logits)

    def positive(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """L+ and its derivative."""
        return self.positive_weight * F.softplus(-logits), -self.positive_weight * torch.sigmoid(-logits)
