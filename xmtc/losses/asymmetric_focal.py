"""Asymmetric focal loss, with hard negatives.

Suffixes: B documents, C columns (all labels, or sampled ones), P positive pairs, K hardest negatives, M sampled.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.binary import BinaryLoss
from xmtc.losses.config import AsymmetricFocalConfig
from xmtc.losses.hard_negatives import draw_negatives


class AsymmetricFocal(BinaryLoss):
    r"""Asymmetric focal loss over binary decisions (Ridnik et al., "Asymmetric Loss", 2021).

    Formula, with p = σ(x) and p_m = max(p − margin, 0):

        L+ = −(1−p)^γ+ · ln p        L− = −p_m^γ− · ln(1−p_m)

    summed over labels and documents. With `hard_negatives` K, a document's negatives are its K highest-scored ones
    with weight 1 and M columns drawn uniformly with replacement. A drawn column that is neither positive nor among
    the K weighs C/M, so that the expectation over draws is the loss over all negatives. Where K + M ≥ C, the loss
    uses all negatives. γ+ = γ− = margin = 0 is binary cross-entropy.

    Inputs: see `Loss`.

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
        importance_BC: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> LossOutput:
        """Compute the sum; see `Loss`. `hard_negatives` has no effect on sampled columns (`importance_BC`)."""
        hardest = self.config.hard_negatives
        sampled = self.config.sampled_negatives
        labels = logits_BC.shape[1] if targets.others is None else targets.others.total
        if hardest is None or importance_BC is not None or hardest + sampled >= labels:
            return super().forward(logits_BC, targets, importance_BC)
        columns_BS, importance_BS = draw_negatives(
            logits_BC.detach(), targets, hardest, sampled, generator
        )
        no_pairs = targets.rows_P[:0]
        only_negatives = Targets(no_pairs, no_pairs, targets.weight_B)
        negative_loss = super().forward(
            logits_BC.gather(1, columns_BS), only_negatives, importance_BS
        )
        # One pair per row, so that the positives need nothing but their own logits.
        logits_P1 = logits_BC[targets.rows_P, targets.columns_P].unsqueeze(1)
        pairs_P = torch.arange(len(logits_P1), device=logits_BC.device)
        weight_P = targets.weight_B[targets.rows_P]
        only_positives = Targets(pairs_P, torch.zeros_like(pairs_P), weight_P)
        positive_loss = super().forward(logits_P1, only_positives)
        return LossOutput(negative_loss.sum + positive_loss.sum, negative_loss.count)

    def negative(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute L− and its derivative."""
        gamma = self.config.gamma_negative
        margin = self.config.margin
        p = torch.sigmoid(logits)
        q = torch.sigmoid(-logits)
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
        slope = power * (gamma * quotient * p * q + ratio)
        return -power * log_q, slope

    def positive(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute L+ and its derivative."""
        gamma = self.config.gamma_positive
        p = torch.sigmoid(logits)
        q = torch.sigmoid(-logits)
        log_p = -F.softplus(-logits)
        power = _power(q, gamma)
        return -power * log_p, power * (gamma * p * log_p - q)


def _power(base: Tensor, exponent: float) -> Tensor:
    """Compute base^exponent; for the default exponent, without calling pow for each element, which takes far longer."""
    if exponent == 4:
        return base.square().square_()
    return base.pow(exponent)
