"""Train label tables whose rows are split over the ranks; an inner strategy trains everything else.

Each rank computes the whole gradient of its rows (`xmtc.training.label_shard`), so ranks exchange only the rows' share
of the gradient norm. The rows' gradients and optimizer state are split over the ranks with every inner strategy. A
single process has all rows.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import override

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.row_shards import DeferredGradient, RowShard, load_rows, save_rows
from xmtc.distributed.rowwise_config import AdamWConfig
from xmtc.distributed.rowwise_optim import RowwiseOptimizer, coalesce
from xmtc.distributed.strategies.base import set_learning_rates
from xmtc.distributed.strategy import ParameterGroup, Strategy


class ShardedRowsStrategy(Strategy):
    """Trains `RowShard` parameters itself and all others with an inner strategy. See `Strategy`.

    During training, the shards are plain attributes of their modules. Otherwise DDP and DeepSpeed would treat a shard
    as a replica of other ranks' shards and overwrite it.

    Args:
        inside: strategy for the parameters that are not split.
    """

    def __init__(self, inside: Strategy) -> None:
        self.rank, self.world_size, self.device = inside.rank, inside.world_size, inside.device
        self.loss_scale = inside.loss_scale
        self.keeps_freed_memory = inside.keeps_freed_memory
        self._inside = inside
        self._inside_groups: list[int] = []
        self._own_groups: list[int] = []
        self._shards: dict[str, RowShard] = {}
        self._hidden: list[tuple[nn.Module, str, RowShard]] = []
        self._optimizers: list[RowwiseOptimizer] = []

    @override
    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """If only label tables train, the inner strategy stays idle."""
        self._show()
        model.to(self.device)
        model.zero_grad(set_to_none=True)
        wanted = {id(p) for group in groups for p in group.parameters}
        self._shards = {n: p for n, p in model.named_parameters() if isinstance(p, RowShard) and id(p) in wanted}
        own, rest = _split(groups, shards=True), _split(groups, shards=False)
        self._own_groups, self._inside_groups = [i for i, _ in own], [i for i, _ in rest]
        self._optimizers = [_optimizer(group) for _, group in own]
        self._hide(model)
        if rest:
            model = self._inside.prepare(model, [group for _, group in rest])
        else:
            model.requires_grad_(False)
        for _, _, shard in self._hidden:
            shard.requires_grad_(id(shard) in wanted)
        return model

    @override
    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return self._inside.micro_batch(last=last) if self._inside_groups else nullcontext()

    @override
    def autocast(self) -> AbstractContextManager[object]:
        return self._inside.autocast()

    @override
    def backward(self, loss: Tensor) -> None:
        if self._inside_groups:
            self._inside.backward(loss)
        else:
            (loss * self.loss_scale).backward()

    @override
    def set_learning_rates(self, rates: Sequence[float]) -> None:
        if self._inside_groups:
            self._inside.set_learning_rates([rates[i] for i in self._inside_groups])
        for optimizer, i in zip(self._optimizers, self._own_groups, strict=True):
            set_learning_rates(optimizer, [rates[i]])

    @override
    def step(self, max_grad_norm: float, outside_norm: float = 0.0) -> float:
        """A `DeferredGradient` is neither part of the norm nor clipped."""
        if not self._optimizers:
            return self._inside.step(max_grad_norm, outside_norm)
        deferred = self._deferred()
        parts = self._gradients()
        norms = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in parts]
        norms += [torch.where(one.finite(), 0.0, math.inf) for one in deferred]
        squares = sum(norm**2 for norm in torch.stack(norms).tolist()) if norms else 0.0  # the host waits once
        norm = math.hypot(math.sqrt(all_reduce_sum_floats([squares])[0]), outside_norm)
        if self._inside_groups:
            norm = self._inside.step(max_grad_norm, norm)
        if math.isfinite(norm):
            for part in parts:
                part.mul_(min(1.0, max_grad_norm / (norm + 1e-6)))
            self._update(deferred)
        for shard in self._shards.values():
            shard.grad = None
        for one in deferred:
            one.discard()
        return norm

    @override
    def save(self, directory: Path) -> None:
        """Every rank writes its rows without an exchange."""
        if self._inside_groups:
            self._inside.save(directory)
        if self._shards:
            save_rows(directory, self._shards, self._states())

    @override
    def load(self, directory: Path) -> None:
        if self._shards:
            load_rows(directory, self._shards, self._states())
            for optimizer in self._optimizers:
                optimizer.resume()
        if self._inside_groups:
            self._inside.load(directory)

    @override
    def gather_trainable(self) -> dict[str, Tensor]:
        return self._inside.gather_trainable() if self._inside_groups else {}

    @override
    def checkpoint_bytes(self) -> int:
        rows = sum(
            tensor.nbytes // max(1, len(shard)) * shard.total
            for name, shard in self._shards.items()
            for tensor in (shard, *self._states()[name].values())
        )
        return rows + (self._inside.checkpoint_bytes() if self._inside_groups else 0)

    @override
    def whole(self) -> AbstractContextManager[None]:
        """Gathers all parameters except the label tables, which stay split."""
        return self._inside.whole() if self._inside_groups else nullcontext()

    @override
    def close(self) -> None:
        """The label tables stay split."""
        if self._inside_groups:
            self._inside.close()
        self._show()
        self._shards, self._optimizers, self._inside_groups = {}, [], []

    def _deferred(self) -> list[DeferredGradient]:
        found = {id(shard.deferred): shard.deferred for shard in self._shards.values() if shard.deferred is not None}
        return list(found.values())

    def _gradients(self) -> list[Tensor]:
        """Collect the shards' gradients, without the inner strategy's `loss_scale`."""
        found = [part for shard in self._shards.values() if (part := coalesce(shard)) is not None]
        return [part.div_(self.loss_scale) for part in found]

    def _update(self, deferred: Sequence[DeferredGradient]) -> None:
        of = {id(shard): optimizer for optimizer in self._optimizers for shard in optimizer.tables}
        for shard in self._shards.values():
            if shard.grad is None and shard.deferred is None:  # none of this rank's rows was scored
                nothing = torch.empty(1, 0, dtype=torch.int64, device=shard.device)
                shard.grad = torch.sparse_coo_tensor(nothing, shard.detach()[:0], shard.shape, check_invariants=False)
        for optimizer in self._optimizers:
            optimizer.step()
        for one in deferred:
            for rows, gradients in one.chunks(1 / self.loss_scale):
                for shard, gradient in zip(one.shards, gradients, strict=True):
                    if id(shard) in of:
                        of[id(shard)].update(shard, rows, gradient)

    def _states(self) -> dict[str, Mapping[str, Tensor]]:
        """Collect the optimizers' state by table name; create it if there was no step yet."""
        names, states = {id(shard): name for name, shard in self._shards.items()}, {}
        for optimizer in self._optimizers:
            for shard in optimizer.tables:
                optimizer.make_state(shard)
                states[names[id(shard)]] = optimizer.state[shard]
        return states

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


def _optimizer(group: ParameterGroup) -> RowwiseOptimizer:
    """Build the group's optimizer (default: AdamW) with the group's learning rate and decay."""
    settings = group.optimizer or AdamWConfig()
    return replace(settings, learning_rate=group.learning_rate, weight_decay=group.weight_decay).build(group.parameters)


def _split(groups: Sequence[ParameterGroup], *, shards: bool) -> list[tuple[int, ParameterGroup]]:
    """Reduce the groups to their shards, or to their other parameters. Returns each with its index."""
    parts = [[p for p in group.parameters if isinstance(p, RowShard) is shards] for group in groups]
    return [(i, replace(groups[i], parameters=part)) for i, part in enumerate(parts) if part]
