"""One process, no exchange."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from xmtc.distributed.row_tables import RowTables
from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.distributed.rowwise_optim import clip_gradients
from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategies.settings import Precision
from xmtc.distributed.strategy import ParameterGroup


class SingleStrategy(ReplicatedStrategy):
    """A process on its own; the only one that updates label tables row by row."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self.rank, self.world_size = 0, 1
        self._row_wise: list[bool] = []
        self._rows = RowTables({}, [])

    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """See `Strategy.prepare`."""
        self._row_wise = [group.optimizer is not None for group in groups]
        dense = [group for group in groups if group.optimizer is None]
        if dense:
            model = super().prepare(model, dense)
        else:  # nothing but tables, as with a flat head over a frozen encoder
            self._trained = {}
            model.to(self.device).requires_grad_(False).zero_grad(set_to_none=True)
        row_wise = [(group.parameters, config) for group in groups if (config := _optimizer(group))]
        wanted = {id(p) for parameters, _ in row_wise for p in parameters}
        self._rows = RowTables({n: p for n, p in model.named_parameters() if id(p) in wanted}, row_wise)
        return model

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """See `Strategy.set_learning_rates`."""
        of_rows = [rate for rate, row_wise in zip(rates, self._row_wise, strict=True) if row_wise]
        self._rows.set_learning_rates(of_rows)
        if self._trained:
            super().set_learning_rates(
                [rate for rate, row_wise in zip(rates, self._row_wise, strict=True) if not row_wise]
            )

    def step(self, max_grad_norm: float, beside: float = 0.0) -> float:
        """See `Strategy.step`."""
        if not self._rows.tables:
            return super().step(max_grad_norm, beside)
        for parameter in self._trained.values():
            if parameter.grad is None:  # as without tables
                parameter.grad = torch.zeros_like(parameter)
        parameters = [*self._trained.values(), *self._rows.tables.values()]
        norm = clip_gradients(parameters, max_grad_norm)
        if math.isfinite(norm):
            if self._trained:
                self._optimizer.step()
            self._rows.step()
        for parameter in parameters:
            parameter.grad = None
        return norm

    def save(self, directory: Path) -> None:
        """See `Strategy.save`; label tables in a file of their own."""
        if self._trained:
            super().save(directory)
        if self._rows.tables:
            self._rows.save(directory)

    def load(self, directory: Path) -> None:
        """See `Strategy.load`."""
        if self._trained:
            super().load(directory)
        if self._rows.tables:
            self._rows.load(directory)

    def gather_trainable(self) -> dict[str, Tensor]:
        """See `Strategy.gather_trainable`."""
        tables = {name: p.detach().to("cpu", copy=True) for name, p in self._rows.tables.items()}
        return super().gather_trainable() | tables

    def checkpoint_bytes(self) -> int:
        """See `Strategy.checkpoint_bytes`."""
        return super().checkpoint_bytes() + self._rows.bytes()

    def close(self) -> None:
        """See `Strategy.close`."""
        super().close()
        self._rows = RowTables({}, [])


def _optimizer(group: ParameterGroup) -> RowwiseOptimizerConfig | None:
    """The group's row-wise optimizer, with the group's learning rate and decay."""
    if group.optimizer is None:
        return None
    return replace(group.optimizer, learning_rate=group.learning_rate, weight_decay=group.weight_decay)
