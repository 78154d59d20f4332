"""Train a flat head over millions of labels; only the rows themselves take memory in proportion to the label set.

A step computes the logits of each chunk of labels twice. The forward pass uses them for the loss and the gradient of
the document vectors. The optimizer step computes them again to get the gradient of a chunk of rows, and updates that
chunk immediately (the memory plan of Renée, Jain et al. 2023, and, with bf16 rows and stochastic rounding, of ELMO,
2025). This works for sums of binary losses, because their derivative depends on one logit only.

Suffixes: B documents, P width of the document vectors, L labels, C labels of a chunk, Q positive pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override

from xmtc.distributed.row_shards import DeferredGradient, RowShard
from xmtc.errors import ConfigError
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.binary import BinaryLoss
from xmtc.models.kernels.products import CHUNK
from xmtc.training.label_shard import GatheredDocuments


class FlatStep(DeferredGradient):
    """Computes the loss of all labels, and the gradient of their rows on demand (`DeferredGradient`).

    The strategy neither includes this gradient in its norm nor clips it.

    Args:
        loss: loss of the logits.
        rows: (L, P), float32 or bfloat16.
        bias: (L,).

    Attributes:
        shards: rows and bias.
        chunk: number of labels in a chunk.
    """

    chunk = CHUNK

    def __init__(self, loss: BinaryLoss, rows: RowShard, bias: RowShard) -> None:
        self.loss = loss
        self.shards = (rows, bias)
        self._pending: list[_Pending] = []
        rows.deferred = self
        bias.deferred = self

    def __call__(self, documents: GatheredDocuments, seed: int = 0) -> LossOutput:
        """Compute the summed loss of a micro-batch. Its backward pass records the inputs of the rows' gradient."""
        (pooled_BP,) = documents.read
        targets = documents.targets
        if targets.unjudged_rows_J is not None:
            raise ConfigError(
                "finetune.label_optimizer: labels that nobody judged are in the corpus, and updating label rows apart "
                "from the others cannot leave them out; remove finetune.label_optimizer"
            )
        with torch.autocast(pooled_BP.device.type, enabled=False):
            total = _Loss.apply(pooled_BP, self.shards[1], self, targets)
        return LossOutput(total, targets.weight_B.sum())  # pyright: ignore[reportArgumentType]

    def note(self, pooled_BP: Tensor, targets: Targets, scale: Tensor) -> None:
        """Record a micro-batch whose loss has the weight `scale`."""
        self._pending.append(
            _Pending(pooled_BP.detach(), targets.on_host, targets.weight_B * scale)
        )

    @override
    def finite(self) -> Tensor:
        """Derivatives of binary losses are finite if the document vectors are."""
        if not self._pending:
            return torch.ones((), dtype=torch.bool, device=self.shards[1].device)
        return torch.stack(
            [micro_batch.pooled_BP.isfinite().all() for micro_batch in self._pending]
        ).all()

    @override
    def discard(self) -> None:
        self._pending = []

    @torch.no_grad()
    @override
    def chunks(self, scale: float) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        pending = self._pending
        self._pending = []
        if not pending:
            return
        step = _concatenate(pending)
        pooled_BP = step.pooled_BP.float()
        positives = _Positives.of(step.targets, step.pooled_BP.device)
        for part in self._parts():
            logits_BC = self.logits(step.pooled_BP, part)
            pairs = positives.within(part)
            error_BC = self.loss.slope(logits_BC)
            error_BC[pairs] = self.loss.positive(logits_BC[pairs])[1]
            error_BC *= step.weight_B[:, None] * scale
            yield part, (error_BC.T @ pooled_BP, error_BC.sum(0))

    def _parts(self) -> Iterator[slice]:
        labels = len(self.shards[1])
        for start in range(0, labels, self.chunk):
            yield slice(start, min(start + self.chunk, labels))

    def logits(self, pooled_BP: Tensor, part: slice) -> Tensor:
        """Compute logits (B, C) of a chunk of labels, in float32."""
        rows, bias = self.shards
        rows_CP = rows.detach()[part].to(pooled_BP.dtype)
        logits_BC = F.linear(pooled_BP, rows_CP).float()
        return logits_BC.add_(bias.detach()[part])

    def loss_and_gradient(
        self, pooled_BP: Tensor, targets: Targets
    ) -> tuple[Tensor, Tensor]:
        """Compute the summed loss and its gradient (B, P) in float32."""
        rows = self.shards[0].detach()
        weight_B1 = targets.weight_B[:, None]
        gradient_BP = torch.zeros(pooled_BP.shape, device=pooled_BP.device)
        loss = pooled_BP.new_zeros((), dtype=torch.float32)
        positives = _Positives.of(targets.on_host, pooled_BP.device)
        for part in self._parts():
            logits_BC = self.logits(pooled_BP, part)
            pairs = positives.within(part)
            value_BC, slope_BC = self.loss.negative(logits_BC)
            value_BC[pairs], slope_BC[pairs] = self.loss.positive(logits_BC[pairs])
            loss += value_BC.sum(1) @ targets.weight_B
            slope_BC *= weight_B1
            gradient_BP += slope_BC.to(pooled_BP.dtype) @ rows[part].to(pooled_BP.dtype)
        return loss, gradient_BP


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pooled_BP: Tensor, bias_L: Tensor, step: FlatStep, targets: Targets
    ) -> Tensor:
        del bias_L  # an input only so that the loss requires a gradient even if the document vectors do not
        loss, gradient_BP = step.loss_and_gradient(pooled_BP, targets)
        ctx.save_for_backward(pooled_BP, gradient_BP)
        ctx.step = step
        ctx.targets = targets
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        pooled_BP, gradient_BP = ctx.saved_tensors
        ctx.step.note(pooled_BP, ctx.targets, gradients[0])
        return (gradient_BP * gradients[0]).to(pooled_BP.dtype), None, None, None


@dataclass(frozen=True)
class _Positives:
    """Positive pairs in the order of their labels; `sorted_Q` are the labels on the CPU."""

    rows_Q: Tensor
    columns_Q: Tensor
    sorted_Q: Tensor

    @classmethod
    def of(cls, targets: Targets, device: torch.device) -> "_Positives":
        """Sort targets that are on the CPU."""
        sorted_Q, order_Q = targets.columns_P.sort()
        rows_Q = targets.rows_P[order_Q].to(device, non_blocking=True)
        columns_Q = sorted_Q.to(device, non_blocking=True)
        return cls(rows_Q, columns_Q, sorted_Q)

    def within(self, part: slice) -> tuple[Tensor, Tensor]:
        """Select the pairs of a chunk of labels, with labels numbered from the first of the chunk."""
        ends = torch.tensor([part.start, part.stop])
        first, last = torch.searchsorted(self.sorted_Q, ends).tolist()
        return self.rows_Q[first:last], self.columns_Q[first:last] - part.start


@dataclass(frozen=True)
class _Pending:
    """A micro-batch with its documents' weights in the loss; the targets are on the CPU."""

    pooled_BP: Tensor
    targets: Targets
    weight_B: Tensor


def _concatenate(pending: list[_Pending]) -> _Pending:
    """Concatenate the micro-batches of a step."""
    rows = []
    documents = 0
    for micro_batch in pending:
        rows.append(micro_batch.targets.rows_P + documents)
        documents += len(micro_batch.weight_B)
    columns_P = torch.cat([micro_batch.targets.columns_P for micro_batch in pending])
    weight_B = torch.cat([micro_batch.weight_B for micro_batch in pending])
    pooled_BP = torch.cat([micro_batch.pooled_BP for micro_batch in pending])
    return _Pending(pooled_BP, Targets(torch.cat(rows), columns_P, weight_B), weight_B)
