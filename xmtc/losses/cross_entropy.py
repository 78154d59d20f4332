"""Cross-entropy over exclusive labels. Suffixes: B documents, C labels."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.errors import ConfigError
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.chunked import compute_dtype


@config
class CrossEntropyConfig:
    """Softmax cross-entropy, for tasks in which a document has exactly one label."""

    kind: Literal["cross_entropy"] = "cross_entropy"
    """Which loss."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target that is spread evenly over all labels."""

    def build(self) -> nn.Module:
        """The loss module."""
        return CrossEntropy(self.label_smoothing)


class CrossEntropy(nn.Module):
    r"""Softmax cross-entropy with label smoothing (Szegedy et al. 2016), summed over documents.

    Formula, with p = softmax(x), y the label and ε the smoothing:

        L = −(1−ε) · ln p_y − (ε/C) Σ_c ln p_c

    Inputs: logits (B, C), one positive a document.

    Prefer it for single-label tasks; a little smoothing (0.05 to 0.1) helps where annotators disagree, and keeps
    probabilities from saturating.

    Example:
        >>> loss = CrossEntropyConfig().build()
        >>> loss(torch.zeros(1, 2), Targets(torch.tensor([0]), torch.tensor([1]), torch.ones(1))).sum
        tensor(0.6931)
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(self, logits_BC: Tensor, targets: Targets, generator: torch.Generator | None = None) -> LossOutput:
        """Summed loss, in fp32.

        Args:
            logits_BC: one a label.
            targets: one positive a document.
            generator: not needed here: nothing is drawn.

        Raises:
            ConfigError: a document has no label, or several.
        """
        labels_B = _only_label(targets)
        logits_BC = logits_BC.to(compute_dtype(logits_BC))
        loss_B = F.cross_entropy(logits_BC, labels_B, reduction="none", label_smoothing=self.label_smoothing)
        weight_B = targets.weight_B.to(loss_B.dtype)
        return LossOutput((loss_B * weight_B).sum(), weight_B.sum())


def _only_label(targets: Targets) -> Tensor:
    labels = targets.rows_P.bincount(minlength=len(targets.weight_B))
    if not bool((labels == 1).all()):
        raise ConfigError(
            "finetune.loss: cross_entropy needs exactly one label on each document, and this batch has one with "
            f"{int(labels.min())} and one with {int(labels.max())}: set finetune.loss.kind to binary_cross_entropy or "
            "asymmetric_focal, or data.task to single_label"
        )
    return torch.empty_like(labels).scatter_(0, targets.rows_P, targets.columns_P)
