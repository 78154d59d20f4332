"""Optimizers for label tables. They update only the rows that a step touches, or all rows chunk by chunk.

They accept sparse gradients, dense gradients, and gradients computed for one chunk of rows at a time
(`DeferredGradient`). Tables may be bfloat16: stochastic rounding keeps updates smaller than half a unit in the last
place, on average. All state has one row per label and can be split like the tables.

Suffixes: L rows of a table, R touched rows, D width.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from xmtc.distributed.collectives import all_reduce_max_ints

Rows = slice | Tensor
_CHUNK = 1 << 20  # numbers of a table that are updated at a time


def touched_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return distinct row numbers in ascending order, and their summed gradients in fp32.

    A shortlist contains popular labels many times. torch's coalesce() sums bf16 in bf16; this function sums in fp32.
    The public `indices()` and `values()` refuse gradients that are not coalesced.
    """
    rows_P = gradient._indices()[0]
    values_PD = gradient._values()
    if gradient.is_coalesced():
        return rows_P, values_PD.float()
    rows_R, positions_P = rows_P.unique(return_inverse=True)
    sums_RD = torch.zeros(
        len(rows_R), *values_PD.shape[1:], dtype=torch.float32, device=values_PD.device
    )
    return rows_R, sums_RD.index_add_(0, positions_P, values_PD.float())


def coalesce(table: Tensor) -> Tensor | None:
    """Sum repeated rows of a table's gradient into values that can be scaled in place; None without a gradient."""
    gradient = table.grad
    if gradient is None or not gradient.is_sparse:
        return gradient
    rows_R, values_RD = touched_rows(gradient)
    values_RD = values_RD.to(gradient.dtype)
    table.grad = torch.sparse_coo_tensor(
        rows_R[None],
        values_RD,
        gradient.shape,
        is_coalesced=True,
        check_invariants=False,
    )
    return table.grad._values()


def chunks_of(table: Tensor) -> Iterator[slice]:
    """Yield slices that cover a table's rows."""
    rows_per_chunk = max(1, _CHUNK * len(table) // max(1, table.numel()))
    for start in range(0, len(table), rows_per_chunk):
        yield slice(start, min(start + rows_per_chunk, len(table)))


def rounding_noise(shape: torch.Size, device: torch.device) -> Tensor:
    """Draw random 16-bit integers, as int32, for `stochastic_round_`."""
    return torch.randint(0, 1 << 16, shape, dtype=torch.int32, device=device)


def stochastic_round_(values: Tensor, noise: Tensor) -> Tensor:
    """Round fp32 values in place to bf16 values, up or down with the probabilities that keep the expected value.

    The noise (from `rounding_noise`, in the shape of the values) is added to the bits that bf16 drops; then these bits
    are cut off. If values share noise, each rounding is unbiased, but the roundings depend on each other. Finite values
    only.
    """
    values.view(torch.int32).add_(noise).bitwise_and_(-(1 << 16))
    return values


class RowwiseOptimizer(Optimizer):
    """Reads and writes touched rows. Subclasses compute how far a row moves.

    Attributes:
        touches_all: whether rows without a gradient move too.
    """

    touches_all: bool = False

    def __init__(
        self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.tables: list[Tensor] = self.param_groups[0]["params"]
        self._noise: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update every table that has a gradient. Nothing is evaluated again."""
        for table in self.tables:
            if table.grad is not None:
                self._take(table, table.grad)

    def _take(self, table: Tensor, gradient: Tensor) -> None:
        if not gradient.is_sparse:
            for rows in chunks_of(table):
                self.update(table, rows, gradient[rows].float())
            return
        rows_R, gradient_RD = touched_rows(gradient)
        if not self.touches_all:
            self.update(table, rows_R, gradient_RD)
            return
        for rows in chunks_of(table):
            bounds = torch.tensor([rows.start, rows.stop], device=rows_R.device)
            first, last = torch.searchsorted(rows_R, bounds).tolist()
            chunk_RD = torch.zeros(
                rows.stop - rows.start,
                *table.shape[1:],
                dtype=torch.float32,
                device=table.device,
            )
            chunk_RD[rows_R[first:last] - rows.start] = gradient_RD[first:last]
            self.update(table, rows, chunk_RD)

    @torch.no_grad()
    def update(self, table: Tensor, rows: Rows, gradient_RD: Tensor) -> None:
        """Move these rows of a table.

        Args:
            table: a table of this optimizer.
            rows: a slice, or distinct row numbers.
            gradient_RD: gradient of these rows, fp32.
        """
        self.make_state(table)
        state = self.state[table]
        state_of_rows = {kind: _read(tensor, rows) for kind, tensor in state.items()}
        direction_RD = self.direction(state_of_rows, gradient_RD)
        learning_rate = self.param_groups[0]["lr"]
        weight_decay = self.param_groups[0]["weight_decay"]
        values_RD = _read(table, rows)
        values_RD.mul_(1 - learning_rate * weight_decay)
        values_RD.sub_(direction_RD, alpha=learning_rate)
        for kind, values in state_of_rows.items():
            self._write(state[kind], rows, values)
        self._write(table, rows, values_RD)

    def _write(self, table: Tensor, rows: Rows, values_RD: Tensor) -> None:
        if table.dtype == torch.bfloat16:
            values_RD = stochastic_round_(
                values_RD, self._noise_of(values_RD, rows)
            ).to(torch.bfloat16)
        elif isinstance(rows, slice):
            return  # `values_RD` is a view
        table[rows] = values_RD

    def _noise_of(self, values_RD: Tensor, rows: Rows) -> Tensor:
        """Return noise in the shape of `values_RD`.

        All chunks of a step share one draw, because a draw per chunk costs more than the chunk's arithmetic. Rows one
        chunk apart then round with the same noise; each rounding is still unbiased.
        """
        if not isinstance(rows, slice):
            return rounding_noise(values_RD.shape, values_RD.device)
        begins_table = rows.start == 0
        if (
            begins_table
            or self._noise is None
            or self._noise.shape[1:] != values_RD.shape[1:]
        ):
            self._noise = rounding_noise(values_RD.shape, values_RD.device)
        return self._noise[: len(values_RD)]

    def make_state(self, table: Tensor) -> None:
        """Initialise the table's state if it has none yet."""
        if not self.state[table]:
            self.state[table].update(self.fresh_state(table))

    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """Return the initial state. Every tensor has one row per label."""
        raise NotImplementedError

    def resume(self) -> None:
        """Derive from the state, which has been loaded, what is not kept for each label. Collective."""

    def direction(self, state: dict[str, Tensor], gradient_RD: Tensor) -> Tensor:
        """Compute what to subtract from the rows, per unit of learning rate.

        Args:
            state: state of these rows, floats in fp32; updated in place.
            gradient_RD: gradient of these rows.
        """
        raise NotImplementedError


def _read(table: Tensor, rows: Rows) -> Tensor:
    """Read rows for arithmetic: floats in fp32. Returns a view if `rows` is a slice of an fp32 table."""
    values = table[rows]
    return values.float() if values.dtype == torch.bfloat16 else values


class RowwiseAdagrad(RowwiseOptimizer):
    """g / √(Σ mean(g²)), the mean over a row's elements and the sum over the steps that touched it."""

    @override
    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`sum`, fp32 (L,)."""
        return {
            "sum": torch.zeros(len(table), dtype=torch.float32, device=table.device)
        }

    @override
    def direction(self, state: dict[str, Tensor], gradient_RD: Tensor) -> Tensor:
        squares_R = gradient_RD.square()
        if gradient_RD.dim() > 1:
            squares_R = squares_R.flatten(1).mean(1)
        scale_R = state["sum"].add_(squares_R).sqrt().add_(1e-10)
        return gradient_RD / _by_row(scale_R, gradient_RD)


class RowAdamW(RowwiseOptimizer):
    """AdamW (Loshchilov & Hutter 2019), β = (0.9, 0.999). All rows move; without a gradient, by their moments."""

    touches_all = True

    @override
    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`mean` and `square` in fp32 of the table's shape, `steps` int32 (L,)."""
        return {
            "mean": torch.zeros(table.shape, dtype=torch.float32, device=table.device),
            "square": torch.zeros(
                table.shape, dtype=torch.float32, device=table.device
            ),
            "steps": torch.zeros(len(table), dtype=torch.int32, device=table.device),
        }

    @override
    def direction(self, state: dict[str, Tensor], gradient_RD: Tensor) -> Tensor:
        steps = _by_row(state["steps"].add_(1), gradient_RD).float()
        mean_RD = state["mean"].lerp_(gradient_RD, 0.1)
        square_RD = state["square"].lerp_(gradient_RD.square(), 0.001)
        unbiased_mean_RD = mean_RD / (1 - 0.9**steps)
        unbiased_square_RD = square_RD / (1 - 0.999**steps)
        return unbiased_mean_RD / unbiased_square_RD.sqrt_().add_(1e-8)


class LazyAdam(RowAdamW):
    """Adam (Kingma & Ba 2015) that reads and writes only touched rows.

    The mean counts a row's own steps. The mean square counts all of them, those without a gradient as zeros, as Adam on
    all rows does. Had it a row's own steps too, a label that few steps touch would move several times less than in
    training on all labels, and rare labels would not be learned.

    Attributes:
        clock: steps so far.
    """

    touches_all = False

    def __init__(self, parameters: Iterable[Tensor], **settings: Any) -> None:
        super().__init__(parameters, **settings)
        self.clock = 0

    @override
    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`last` int32 (L,), the step that touched a row last."""
        last_L = torch.zeros(len(table), dtype=torch.int32, device=table.device)
        return super().fresh_state(table) | {"last": last_L}

    @override
    def step(self, closure: None = None) -> None:
        self.clock += 1
        super().step(closure)

    @override
    def resume(self) -> None:
        """Some row was touched by the last step."""
        newest = [
            int(state["last"].max())
            for state in self.state.values()
            if len(state["last"])
        ]
        (self.clock,) = all_reduce_max_ints([max(newest, default=0)])

    @override
    def direction(self, state: dict[str, Tensor], gradient_RD: Tensor) -> Tensor:
        steps = _by_row(state["steps"].add_(1), gradient_RD).float()
        passed = _by_row(self.clock - state["last"], gradient_RD).float()
        state["last"].fill_(self.clock)
        mean_RD = state["mean"].lerp_(gradient_RD, 0.1)
        square_RD = (
            state["square"]
            .mul_(0.999**passed)
            .addcmul_(gradient_RD, gradient_RD, value=0.001)
        )
        unbiased_mean_RD = mean_RD / (1 - 0.9**steps)
        unbiased_square_RD = square_RD / (1 - 0.999**self.clock)
        return unbiased_mean_RD / unbiased_square_RD.sqrt_().add_(1e-8)


class RowSGD(RowwiseOptimizer):
    """SGD with heavy-ball momentum in the dtype of the table.

    Args:
        momentum: decay of the momentum; 0: no momentum.
    """

    def __init__(
        self, parameters: Iterable[Tensor], *, momentum: float, **settings: Any
    ) -> None:
        super().__init__(parameters, **settings)
        self.momentum = momentum
        self.touches_all = momentum > 0

    @override
    def fresh_state(self, table: Tensor) -> dict[str, Tensor]:
        """`momentum` of the table's shape and dtype."""
        if self.momentum == 0:
            return {}
        return {"momentum": torch.zeros_like(table, requires_grad=False)}

    @override
    def direction(self, state: dict[str, Tensor], gradient_RD: Tensor) -> Tensor:
        if self.momentum == 0:
            return gradient_RD
        return state["momentum"].mul_(self.momentum).add_(gradient_RD)


def _by_row(values_R: Tensor, like_RD: Tensor) -> Tensor:
    """Reshape one value per row so that it multiplies rows of `like_RD`, which may have no dimension D."""
    further_dimensions = [1] * (like_RD.dim() - 1)
    return values_R.view(-1, *further_dimensions)
