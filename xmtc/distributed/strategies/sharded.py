"""Label tables whose rows are split over the ranks, around any strategy for everything else.

A rank's rows get their whole gradient on that rank (`xmtc.training.sharded_head`), so nothing of them is exchanged but
their part of the gradient norm: gradients and AdamW's moments are divided by the ranks, whatever the strategy inside.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.row_shards import RowShard, load_rows, save_rows, whole_table
from xmtc.distributed.strategies.base import adamw, set_learning_rates
from xmtc.distributed.strategies.replicated import fresh_moments
from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.errors import ConfigError


class ShardedRowsStrategy:
    """See `Strategy`. Parameters that are `RowShard`s train here, all others in the strategy inside.

    While it trains, the shards are plain attributes of their modules: DDP and DeepSpeed would take each for a replica
    of the other ranks' and overwrite it.

    Args:
        inside: for what every rank has whole.
    """

    def __init__(self, inside: Strategy) -> None:
        self.rank, self.world_size, self.device = inside.rank, inside.world_size, inside.device
        self.loss_scale = inside.loss_scale
        self._inside = inside
        self._inside_groups: list[int] = []
        self._own_groups: list[int] = []
        self._shards: dict[str, RowShard] = {}
        self._hidden: list[tuple[nn.Module, str, RowShard]] = []
        self._optimizer: torch.optim.AdamW | None = None

    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """See `Strategy.prepare`; where nothing but label tables trains, the strategy inside stays idle."""
        self._show()
        model.to(self.device)
        model.zero_grad(set_to_none=True)
        wanted = {id(p) for group in groups for p in group.parameters}
        self._shards = {n: p for n, p in model.named_parameters() if isinstance(p, RowShard) and id(p) in wanted}
        if problem := self._problem():
            raise ConfigError(problem)
        own, rest = _split(groups, shards=True), _split(groups, shards=False)
        self._own_groups, self._inside_groups = [i for i, _ in own], [i for i, _ in rest]
        self._optimizer = adamw([group for _, group in own]) if own else None
        self._hide(model)
        if rest:
            model = self._inside.prepare(model, [group for _, group in rest])
        for _, _, shard in self._hidden:
            shard.requires_grad_(id(shard) in wanted)
        return model

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """See `Strategy.micro_batch`."""
        return self._inside.micro_batch(last=last) if self._inside_groups else nullcontext()

    def autocast(self) -> AbstractContextManager[object]:
        """See `Strategy.autocast`."""
        return self._inside.autocast()

    def backward(self, loss: Tensor) -> None:
        """See `Strategy.backward`."""
        if self._inside_groups:
            self._inside.backward(loss)
        else:
            (loss * self.loss_scale).backward()

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """See `Strategy.set_learning_rates`."""
        if self._inside_groups:
            self._inside.set_learning_rates([rates[i] for i in self._inside_groups])
        if self._optimizer is not None:
            set_learning_rates(self._optimizer, [rates[i] for i in self._own_groups])

    def step(self, max_grad_norm: float, beside: float = 0.0) -> float:
        """See `Strategy.step`."""
        if self._optimizer is None:
            return self._inside.step(max_grad_norm, beside)
        gradients = self._gradients()
        norm = math.hypot(math.sqrt(all_reduce_sum_floats([float(get_total_norm(gradients)) ** 2])[0]), beside)
        if self._inside_groups:
            norm = self._inside.step(max_grad_norm, norm)
        if math.isfinite(norm):
            clip_grads_with_norm_(self._shards.values(), max_grad_norm, torch.tensor(norm, device=self.device))
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def save(self, directory: Path) -> None:
        """See `Strategy.save`; every rank writes its own rows, without an exchange."""
        if self._inside_groups:
            self._inside.save(directory)
        if self._optimizer is not None:
            save_rows(directory, self._shards, self._moments(), self._steps())

    def load(self, directory: Path) -> None:
        """See `Strategy.load`."""
        if self._optimizer is not None:
            moments = self._moments()
            steps = load_rows(directory, self._shards, moments)
            for state in moments.values():
                state["step"].fill_(steps)
        if self._inside_groups:
            self._inside.load(directory)

    def gather_trainable(self) -> dict[str, Tensor]:
        """See `Strategy.gather_trainable`: tables with the rows of all ranks."""
        tables = {name: whole_table(shard) for name, shard in self._shards.items()}
        return (self._inside.gather_trainable() if self._inside_groups else {}) | tables

    def checkpoint_bytes(self) -> int:
        """See `Strategy.checkpoint_bytes`."""
        rows = sum(12 * shard.numel() // max(1, len(shard)) * shard.total for shard in self._shards.values())
        return rows + (self._inside.checkpoint_bytes() if self._inside_groups else 0)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """See `Strategy.whole`: all but the label tables, which stay split."""
        with self._inside.whole() if self._inside_groups else nullcontext():
            yield

    def close(self) -> None:
        """See `Strategy.close`; the label tables stay split."""
        if self._inside_groups:
            self._inside.close()
        self._show()
        self._shards, self._optimizer, self._inside_groups = {}, None, []

    def _problem(self) -> str | None:
        few = [shard.total for shard in self._shards.values() if shard.total < self.world_size]
        if not few:
            return None
        return f"distributed.shard_labels: {few[0]} labels for {self.world_size} workers; train with fewer, or unsplit"

    def _gradients(self) -> list[Tensor]:
        """As the loss gives them: without the factor that the strategy inside has put on it."""
        for shard in self._shards.values():
            shard.grad = torch.zeros_like(shard) if shard.grad is None else shard.grad.div_(self.loss_scale)
        return [shard.grad for shard in self._shards.values() if shard.grad is not None]

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        """AdamW's state by name of the table; made where there has been no step yet."""
        assert self._optimizer is not None  # the caller asked
        for shard in self._shards.values():
            if not self._optimizer.state[shard]:
                self._optimizer.state[shard] = fresh_moments(shard)
        return {name: self._optimizer.state[shard] for name, shard in self._shards.items()}

    def _steps(self) -> int:
        return int(next(iter(self._moments().values()))["step"].item())

    def _hide(self, model: nn.Module) -> None:
        for module in model.modules():
            for name, parameter in list(module._parameters.items()):
                if isinstance(parameter, RowShard):
                    del module._parameters[name]
                    vars(module)[name] = parameter
                    self._hidden.append((module, name, parameter))

    def _show(self) -> None:
        for module, name, shard in self._hidden:
            del vars(module)[name]
            module.register_parameter(name, shard)
        self._hidden = []


def _split(groups: Sequence[ParameterGroup], *, shards: bool) -> list[tuple[int, ParameterGroup]]:
    """The groups with their shards alone, or with all else alone, and the number of each."""
    parts = [[p for p in group.parameters if isinstance(p, RowShard) is shards] for group in groups]
    return [(i, replace(groups[i], parameters=part)) for i, part in enumerate(parts) if part]
