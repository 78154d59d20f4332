"""A training step of the flat head over millions of labels in which nothing but the rows is as large as the label set.

Logits, their gradient and the update exist for one chunk of labels at a time. The gradient of binary cross-entropy is
sigmoid(logit) − y, so neither the loss nor a gradient of the rows need be stored: every chunk of rows is updated in
place, by SGD, as soon as its part of the document vectors' gradient is taken (the memory plan of Renée, Jain et al.
2023, and, with bf16 rows and stochastic rounding, of ELMO, 2025).

Suffixes: B documents, P width of the document vectors, L labels, C labels of a chunk, Q positive pairs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from xmtc.distributed.rounding import rounding_noise, split_sum, stochastic_round_
from xmtc.losses.base import Targets


@dataclass(frozen=True, kw_only=True)
class RowUpdate:
    """SGD on the rows and biases.

    Attributes:
        learning_rate: of rows and biases.
        scale: one over the global number of documents, for the mean over them.
        weight_decay: decoupled, of the rows.
        momentum_LP: the rows' momentum in their dtype, updated in place, or None; as many bytes again as the rows.
        momentum: its decay.
        lacking_LP: bf16, what rows in bf16 lack: updated in place by compensated (Kahan) sums. None: such rows are
            rounded stochastically.
        chunk: labels at a time.
    """

    learning_rate: float
    scale: float = 1.0
    weight_decay: float = 0.0
    momentum_LP: Tensor | None = None
    momentum: float = 0.9
    lacking_LP: Tensor | None = None
    chunk: int = 2048


class FlatStep(NamedTuple):
    """Summed binary cross-entropy over documents and labels (0 unless asked for), and the gradient (B, P), scaled."""

    loss: Tensor
    gradient_BP: Tensor


@torch.no_grad()
def flat_step(
    pooled_BP: Tensor,
    weights_LP: Tensor,
    bias_L: Tensor,
    targets: Targets,
    update: RowUpdate,
    *,
    with_loss: bool = True,
) -> FlatStep:
    """Updates `weights_LP` (fp32 or bf16) and `bias_L` in place by one SGD step on binary cross-entropy.

    Call `pooled_BP.backward(step.gradient_BP)` for the encoder. Without `with_loss` the loss is skipped: it is no part
    of the gradient.

    Args:
        pooled_BP: document vectors; fp32.
        weights_LP: rows of the labels.
        bias_L: fp32.
        targets: positives; `columns_P` are label ids. A filler document (weight 0) counts for nothing.
        update: learning rate and the like.
        with_loss: compute the loss.
    """
    gradient_BP = torch.zeros_like(pooled_BP)
    loss = pooled_BP.new_zeros(())
    order_Q = targets.columns_P.argsort()
    rows_Q, columns_Q = targets.rows_P[order_Q], targets.columns_P[order_Q]
    workspace = _workspace(weights_LP, update)
    for start in range(0, len(weights_LP), update.chunk):
        part = slice(start, min(start + update.chunk, len(weights_LP)))
        first, last = torch.searchsorted(columns_Q, torch.tensor([part.start, part.stop], device=columns_Q.device))
        logits_BC = F.linear(pooled_BP.to(weights_LP.dtype), weights_LP[part]).float() + bias_L[part]
        positive = (rows_Q[first:last], columns_Q[first:last] - start)
        if with_loss:
            loss += F.softplus(logits_BC).sum(1) @ targets.weight_B
            loss -= logits_BC[positive] @ targets.weight_B[positive[0]]
        error_BC = logits_BC.sigmoid_()
        error_BC[positive] -= 1
        error_BC *= targets.weight_B[:, None] * update.scale
        gradient_BP += (error_BC.to(weights_LP.dtype) @ weights_LP[part]).float()
        _update_rows(weights_LP, part, error_BC, pooled_BP, update, workspace)
        bias_L[part] -= update.learning_rate * error_BC.sum(0)
    return FlatStep(loss, gradient_BP)


class _Workspace(NamedTuple):
    """For tables in bf16: one chunk of rows in fp32, one of their momentum, and the noise that rounds them.

    Reused by all chunks of a step: fresh memory for each costs more than the arithmetic. With one draw of noise for all
    of them, roundings of rows a chunk apart are tied, each still without bias.
    """

    rows_CP: Tensor
    momentum_CP: Tensor
    noise_CP: Tensor


def _workspace(weights_LP: Tensor, update: RowUpdate) -> _Workspace | None:
    if weights_LP.dtype == torch.float32:
        return None
    shape = torch.Size((min(update.chunk, len(weights_LP)), weights_LP.shape[1]))
    device = weights_LP.device
    rows_CP, momentum_CP = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))
    return _Workspace(rows_CP, momentum_CP, rounding_noise(shape, device))


def _update_rows(
    weights_LP: Tensor,
    part: slice,
    error_BC: Tensor,
    pooled_BP: Tensor,
    update: RowUpdate,
    workspace: _Workspace | None,
) -> None:
    decay, rate = 1 - update.learning_rate * update.weight_decay, update.learning_rate
    rows_CP = weights_LP[part] if workspace is None else _read(weights_LP[part], workspace.rows_CP)
    lacking_CP = None if update.lacking_LP is None else update.lacking_LP[part]
    if lacking_CP is not None:
        rows_CP += lacking_CP
    if update.momentum_LP is None:
        rows_CP.addmm_(error_BC.T, pooled_BP, beta=decay, alpha=-rate)
    else:
        table_CP = update.momentum_LP[part]
        step_CP = table_CP if workspace is None else _read(table_CP, workspace.momentum_CP)
        step_CP.addmm_(error_BC.T, pooled_BP, beta=update.momentum)
        rows_CP.mul_(decay).sub_(step_CP, alpha=rate)
        _write(table_CP, step_CP, workspace)
    if lacking_CP is None:
        _write(weights_LP[part], rows_CP, workspace)
    else:
        rounded_CP, rest_CP = split_sum(rows_CP)
        weights_LP[part].copy_(rounded_CP)
        lacking_CP.copy_(rest_CP)


def _read(table_CP: Tensor, buffer_CP: Tensor) -> Tensor:
    return buffer_CP[: len(table_CP)].copy_(table_CP)


def _write(table_CP: Tensor, values_CP: Tensor, workspace: _Workspace | None) -> None:
    if workspace is not None:  # fp32 tables were updated in place
        table_CP.copy_(stochastic_round_(values_CP, workspace.noise_CP[: len(values_CP)]))
