"""Cross-entropy over exclusive labels. Suffixes: B documents, C labels, P (document, label) pairs."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.losses.base import LossOutput, Targets, compute_dtype


class CrossEntropy(nn.Module):
    r"""Softmax cross-entropy with label smoothing (Szegedy et al. 2016), summed over documents.

    Formula, with p = softmax(x), y the label and ε the smoothing:

        L = −(1−ε) · ln p_y − (ε/C) Σ_c ln p_c

    Inputs: see `Loss`; one positive per document.

    Prefer it for single-label tasks; a little smoothing (0.05 to 0.1) helps where annotators disagree, and keeps
    probabilities from saturating.

    Example:
        >>> loss = CrossEntropy()
        >>> loss(torch.zeros(1, 2), Targets(torch.tensor([0]), torch.tensor([1]), torch.ones(1))).sum
        tensor(0.6931)
    """

    def __init__(self, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing

    def forward(
        self,
        logits_BC: Tensor,
        targets: Targets,
        importance_BC: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> LossOutput:
        """Compute the sum; see `Loss`. Nothing is drawn.

        Args:
            logits_BC: one per label.
            targets: exactly one positive per document. Preparation guarantees it for `data.task: single_label`;
                looking here would wait for the device in every micro-batch.
            importance_BC: must be None.
            generator: not used.

        Raises:
            ValueError: `importance_BC` is given: a softmax over a sample is not a sum over labels.
        """
        if importance_BC is not None:
            raise ValueError(
                "cross_entropy takes the logits of all labels, not of a sample"
            )
        labels_B = torch.zeros(
            len(targets.weight_B), dtype=torch.int64, device=logits_BC.device
        )
        labels_B.scatter_(0, targets.rows_P, targets.columns_P)
        logits_BC = logits_BC.to(compute_dtype(logits_BC))
        loss_B = F.cross_entropy(
            logits_BC, labels_B, reduction="none", label_smoothing=self.label_smoothing
        )
        weight_B = targets.weight_B.to(loss_B.dtype)
        return LossOutput((loss_B * weight_B).sum(), weight_B.sum())
