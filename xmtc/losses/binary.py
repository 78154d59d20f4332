"""Binary losses over very many labels: loss and gradient together, a block of labels at a time.

A binary loss is a function of one logit, once as a negative and once as a positive. Positives are few, so the code
treats all logits as negatives first and then corrects the positives. It allocates nothing of size (B, C) but the
gradient.

Suffixes: B documents, C columns (all labels, or sampled ones), P positive pairs.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from xmtc.losses.base import LossOutput, Targets, compute_dtype

# Logits per block: large enough for few kernel launches on a GPU, small enough to stay in a CPU's cache.
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 23}


class BinaryLoss(nn.Module, ABC):
    """A sum of binary decisions, one per document and label; subclasses give the loss of one logit.

    Formula: Σ_b weight_b (Σ_{c positive} positive(x_bc) + Σ_{c negative} importance_bc · negative(x_bc)).
    """

    @abstractmethod
    def negative(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss of each logit as a negative, and its derivative; elementwise, in fp32 or fp64."""

    def slope(self, logits: Tensor) -> Tensor:
        """Compute only the derivative that `negative` gives, as a new tensor."""
        return self.negative(logits)[1]

    @abstractmethod
    def positive(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss of each logit as a positive, and its derivative; elementwise, in fp32 or fp64."""

    def forward(
        self,
        logits_BC: Tensor,
        targets: Targets,
        importance_BC: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> LossOutput:
        """Compute the sum; see `Loss`. Nothing is drawn; the gradient has the dtype of the logits."""
        weight_B = targets.weight_B.to(logits_BC.device)
        total = _Sum.apply(
            logits_BC, self, targets.rows_P, targets.columns_P, weight_B, importance_BC
        )
        return LossOutput(total, weight_B.sum())  # pyright: ignore[reportArgumentType]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits_BC: Tensor,
        loss: BinaryLoss,
        rows_P: Tensor,
        columns_P: Tensor,
        weight_B: Tensor,
        importance_BC: Tensor | None,
    ) -> Tensor:
        gradient_BC = torch.empty_like(logits_BC) if ctx.needs_input_grad[0] else None
        total = _all_as_negatives(loss, logits_BC, weight_B, importance_BC, gradient_BC)
        pairs = (rows_P, columns_P)
        total = total + _corrected_positives(
            loss, logits_BC, pairs, weight_B, importance_BC, gradient_BC
        )
        if gradient_BC is not None:
            ctx.save_for_backward(gradient_BC)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        (gradient_BC,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        return (
            gradient_BC * grad_outputs[0].to(gradient_BC.dtype),
            None,
            None,
            None,
            None,
            None,
        )


def _all_as_negatives(
    loss: BinaryLoss,
    logits_BC: Tensor,
    weight_B: Tensor,
    importance_BC: Tensor | None,
    gradient_BC: Tensor | None,
) -> Tensor:
    documents, columns = logits_BC.shape
    logits_per_block = _BLOCK.get(logits_BC.device.type, _BLOCK["cuda"])
    width = max(1, logits_per_block // max(1, documents))
    dtype = compute_dtype(logits_BC)
    weight_B1 = weight_B.to(dtype).unsqueeze(1)
    total = torch.zeros((), dtype=dtype, device=logits_BC.device)
    for start in range(0, columns, width):
        block = slice(start, start + width)
        value, slope = loss.negative(logits_BC[:, block].to(dtype))
        scale = weight_B1
        if importance_BC is not None:
            scale = weight_B1 * importance_BC[:, block].to(dtype)
        total += (value * scale).sum()
        if gradient_BC is not None:
            gradient_BC[:, block] = slope * scale
    return total


def _corrected_positives(
    loss: BinaryLoss,
    logits_BC: Tensor,
    pairs: tuple[Tensor, Tensor],
    weight_B: Tensor,
    importance_BC: Tensor | None,
    gradient_BC: Tensor | None,
) -> Tensor:
    """Compute what positives add to the sum that counted them as negatives, and overwrite their gradients."""
    rows_P, _ = pairs
    logits_P = logits_BC[pairs].to(compute_dtype(logits_BC))
    weight_P = weight_B[rows_P].to(logits_P.dtype)
    loss_as_negative_P, _ = loss.negative(logits_P)
    if importance_BC is not None:
        loss_as_negative_P = loss_as_negative_P * importance_BC[pairs].to(
            logits_P.dtype
        )
    loss_P, slope_P = loss.positive(logits_P)
    if gradient_BC is not None:
        gradient_BC[pairs] = (slope_P * weight_P).to(gradient_BC.dtype)
    correction_P = loss_P - loss_as_negative_P
    return (correction_P * weight_P).sum()
