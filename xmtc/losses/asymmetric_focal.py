"""Asymmetric focal loss, with hard-negative augmentation.

Suffixes: B documents, C columns (all labels, or a shortlist), P positive pairs, K hardest negatives, M sampled.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.chunked import binary_loss
from xmtc.losses.hard_negatives import draw_negatives


@config
class AsymmetricFocalConfig:
    """Asymmetric focal loss (Ridnik et al. 2021), optionally on the hardest negatives and a sample of the rest."""

    kind: Literal["asymmetric_focal"] = "asymmetric_focal"
    """Which loss."""
    gamma_positive: Annotated[float, Field(ge=0)] = 0.0
    """γ+: how strongly positives that are already right are discounted; 0 to 1."""
    gamma_negative: Annotated[float, Field(ge=0)] = 4.0
    """γ−: how strongly easy negatives are discounted."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Negatives with a probability below this count nothing at all."""
    hard_negatives: Annotated[int, Field(ge=1)] | None = None
    """K: train on the K highest-scored negatives of each document and on a sample of the rest; all when absent."""
    sampled_negatives: Annotated[int, Field(ge=1)] = 256
    """M: columns drawn uniformly for each document to stand for the rest; only with `hard_negatives`."""

    def build(self) -> nn.Module:
        """The loss module."""
        return AsymmetricFocal(self)


class AsymmetricFocal(nn.Module):
    r"""Asymmetric focal loss over binary decisions (Ridnik et al., "Asymmetric Loss", 2021; METHOD.md §4).

    Formula, with p = σ(x) and p_m = max(p − margin, 0):

        L+ = −(1−p)^γ+ · ln p        L− = −p_m^γ− · ln(1−p_m)

    summed over labels and documents. With `hard_negatives` K, a document's negatives are its K highest-scored ones
    with weight 1 and M columns drawn uniformly with replacement; a drawn column that is neither positive nor among
    the K weighs C/M, so that the expectation over draws is the loss over all negatives. From K + M ≥ C on, the loss
    over all negatives is computed. γ+ = γ− = margin = 0 is binary cross-entropy.

    Inputs: logits (B, C), the sparse positives, a generator for the draws.

    Prefer it over binary cross-entropy when labels are many and rare: the sum over mostly easy negatives would drown
    the positives. It distorts probabilities (they are no longer calibrated), so tune thresholds.

    Example:
        >>> loss = AsymmetricFocalConfig(gamma_negative=2.0).build()
        >>> targets = Targets(torch.tensor([0]), torch.tensor([1]), torch.ones(1))
        >>> loss(torch.tensor([[-2.0, 1.0, 0.0]]), targets).count
        tensor(1.)
    """

    def __init__(self, config: AsymmetricFocalConfig) -> None:
        super().__init__()
        self.config = config

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
            generator: for the draws of `hard_negatives`, on the device of the logits.
            importance_BC: how many labels each column stands for as a negative, where the logits are of a shortlist
                that was drawn already; `hard_negatives` then does nothing.
        """
        hard, sampled = self.config.hard_negatives, self.config.sampled_negatives
        if hard is None or importance_BC is not None or hard + sampled >= logits_BC.shape[1]:
            return binary_loss(self, logits_BC, targets, importance_BC)
        drawn = draw_negatives(logits_BC.detach(), targets, hard, sampled, generator)
        nothing = targets.rows_P[:0]
        negatives = Targets(nothing, nothing, targets.weight_B)
        on_negatives = binary_loss(self, logits_BC.gather(1, drawn.columns_BS), negatives, drawn.importance_BS)
        # one pair a row, so that the positives need nothing but the rows and columns that they are at
        logits_P1 = logits_BC[targets.rows_P, targets.columns_P].unsqueeze(1)
        pairs = torch.arange(len(logits_P1), device=logits_BC.device)
        weight_P = targets.weight_B[targets.rows_P]
        on_positives = binary_loss(self, logits_P1, Targets(pairs, torch.zeros_like(pairs), weight_P), None)
        return LossOutput(on_negatives.sum + on_positives.sum, on_negatives.count)

    def negative(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """L− and its derivative."""
        gamma, margin = self.config.gamma_negative, self.config.margin
        p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
        if margin == 0:
            log_q = -F.softplus(logits)
            ratio = p  # p(1−p)/(1−p_m); also where 1−p underflows
            p_m = p
        else:
            p_m = (p - margin).clamp_(min=0)
            log_q = torch.log1p(-p_m)
            ratio = p * q / (q + margin)
        if gamma == 0:
            return -log_q, ratio * (p_m > 0)
        power = _power(p_m, gamma)
        # d/dx p_m^γ · −ln(1−p_m); −ln(1−p_m)/p_m → 1 for p_m → 0, where the quotient itself would be 0/0
        quotient = -log_q / p_m.clamp(min=torch.finfo(p.dtype).tiny)
        return -power * log_q, power * (gamma * quotient * p * q + ratio)

    def positive(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """L+ and its derivative."""
        gamma = self.config.gamma_positive
        p, q = torch.sigmoid(logits), torch.sigmoid(-logits)
        log_p = -F.softplus(-logits)
        power = _power(q, gamma)
        return -power * log_p, power * (gamma * p * log_p - q)


def _power(base: Tensor, exponent: float) -> Tensor:
    """base^exponent, for the usual small whole exponents without a call of pow for each element."""
    if exponent == 4:
        return base.square().square_()
    return base.pow(exponent)
