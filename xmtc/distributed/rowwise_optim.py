"""Optimizers for label tables of which a step touches few rows: an untouched row is neither read nor written.

They take the sparse gradients that a head with `sparse_gradients` gives for a shortlist (dense ones too: then every
row is touched), and tables in bfloat16, in which updates smaller than half a unit in the last place still arrive, by
stochastic rounding or by compensated sums.

Suffixes: L rows of a table, R touched rows, D width.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from xmtc.distributed.rounding import rounding_noise, split_sum, stochastic_round_
from xmtc.distributed.rowwise_config import Rounding


def store_rows(table_LD: Tensor, rows_R: Tensor, values_RD: Tensor, lacking_LD: Tensor | None = None) -> None:
    """Writes fp32 `values_RD` to the rows, where the table is bf16 rounded.

    Args:
        table_LD: float32 or bfloat16.
        rows_R: which rows.
        values_RD: overwritten.
        lacking_LD: bf16, takes what the rounded rows lack; without it, bf16 rows are rounded stochastically.
    """
    if lacking_LD is not None:
        values_RD, lacking_RD = split_sum(values_RD)
        lacking_LD.index_copy_(0, rows_R, lacking_RD)
    elif table_LD.dtype == torch.bfloat16:
        noise = rounding_noise(values_RD.shape, values_RD.device)
        values_RD = stochastic_round_(values_RD, noise).to(torch.bfloat16)
    table_LD.index_copy_(0, rows_R, values_RD)


def touched_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers, each once, and their summed gradients in fp32."""
    if not gradient.is_sparse:
        return torch.arange(len(gradient), device=gradient.device), gradient.float()
    rows_P, values = gradient._indices()[0], gradient._values()
    # A shortlist names popular labels many times. torch's own coalesce() sums bf16 in bf16; this sums in fp32.
    rows_R, position_P = rows_P.unique(return_inverse=True)
    sums = torch.zeros(len(rows_R), *values.shape[1:], dtype=torch.float32, device=values.device)
    return rows_R, sums.index_add_(0, position_P, values.float())


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> float:
    """As torch's `clip_grad_norm_`, for sparse gradients too: scales them in place, returns their global L2 norm.

    Sparse gradients come out coalesced.
    """
    parts = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.is_sparse:
            rows, values = touched_rows(gradient)
            values = values.to(gradient.dtype)
            shape = gradient.shape
            parameter.grad = torch.sparse_coo_tensor(
                rows[None], values, shape, is_coalesced=True, check_invariants=False
            )
            parts.append(parameter.grad._values())
        else:
            parts.append(gradient)
    if not parts:
        return 0.0
    norm = torch.stack([torch.linalg.vector_norm(x, dtype=torch.float32) for x in parts]).norm()
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for part in parts:
        part.mul_(factor)
    return norm.item()


class RowwiseOptimizer(Optimizer):
    """Reads and writes touched rows; subclasses say how far a row moves."""

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float, rounding: Rounding = "stochastic"
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.rounding = rounding

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step for every table that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._update(table, group["lr"], group["weight_decay"])
        return loss

    def _update(self, table: Tensor, lr: float, weight_decay: float) -> None:
        rows_R, gradient_RD = touched_rows(table.grad)  # pyright: ignore[reportArgumentType]
        self.make_state(table)
        direction_RD = self.direction(self.state[table], rows_R, gradient_RD)
        values_RD, lacking_LD = table.index_select(0, rows_R).float(), self.state[table].get("lacking")
        if lacking_LD is not None:
            values_RD += lacking_LD.index_select(0, rows_R)
        values_RD.mul_(1 - lr * weight_decay).sub_(direction_RD, alpha=lr)
        store_rows(table, rows_R, values_RD, lacking_LD)

    def make_state(self, table: Tensor) -> None:
        """Give the table the state of before its first step, where it has none yet."""
        if not self.state[table]:
            self.state[table].update(self.fresh_state(table))
            if self.rounding == "kahan" and table.dtype == torch.bfloat16:
                self.state[table]["lacking"] = torch.zeros_like(table, requires_grad=False)

    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """The state of before the first step."""
        raise NotImplementedError

    def direction(self, state: dict[str, Any], rows_R: Tensor, gradient_RD: Tensor) -> Tensor:
        """What to subtract from the rows, per unit of learning rate; updates the rows' state."""
        raise NotImplementedError


class RowwiseAdagrad(RowwiseOptimizer):
    """g / √(Σ mean(g²)), the mean over a row's elements and the sum over the steps that touched it."""

    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`sum`, fp32 (L,)."""
        return {"sum": torch.zeros(len(table), dtype=torch.float32, device=table.device)}

    def direction(self, state: dict[str, Any], rows_R: Tensor, gradient_RD: Tensor) -> Tensor:
        """See the base."""
        squares_R = gradient_RD.square().flatten(1).mean(1) if gradient_RD.dim() > 1 else gradient_RD.square()
        total_R = state["sum"].index_select(0, rows_R) + squares_R
        state["sum"].index_copy_(0, rows_R, total_R)
        scale_R = total_R.sqrt().add_(1e-10)
        return gradient_RD / scale_R.view(-1, *[1] * (gradient_RD.dim() - 1))


class LazyAdam(RowwiseOptimizer):
    """Adam (Kingma & Ba 2015) with β = (0.9, 0.999); moments, decay and bias correction count a row's own steps."""

    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`mean` and `square` in fp32 of the table's shape, `steps` int32 (L,)."""
        moments = {kind: torch.zeros(table.shape, device=table.device) for kind in ("mean", "square")}
        return moments | {"steps": torch.zeros(len(table), dtype=torch.int32, device=table.device)}

    def direction(self, state: dict[str, Any], rows_R: Tensor, gradient_RD: Tensor) -> Tensor:
        """See the base."""
        steps_R = state["steps"].index_select(0, rows_R) + 1
        state["steps"].index_copy_(0, rows_R, steps_R)
        steps = steps_R.view(-1, *[1] * (gradient_RD.dim() - 1)).float()
        mean_RD = state["mean"].index_select(0, rows_R).lerp_(gradient_RD, 0.1)
        square_RD = state["square"].index_select(0, rows_R).lerp_(gradient_RD.square(), 0.001)
        state["mean"].index_copy_(0, rows_R, mean_RD)
        state["square"].index_copy_(0, rows_R, square_RD)
        return (mean_RD / (1 - 0.9**steps)) / ((square_RD / (1 - 0.999**steps)).sqrt_().add_(1e-8))
