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
        self.rank = inside.rank
        self.world_size = inside.world_size
        self.device = inside.device
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
        trained = {id(parameter) for group in groups for parameter in group.parameters}
        self._shards = {}
        for name, parameter in model.named_parameters():
            if isinstance(parameter, RowShard) and id(parameter) in trained:
                self._shards[name] = parameter
        groups_of_shards = _reduced(groups, to_shards=True)
        other_groups = _reduced(groups, to_shards=False)
        self._own_groups = list(groups_of_shards)
        self._inside_groups = list(other_groups)
        self._optimizers = [_optimizer(group) for group in groups_of_shards.values()]
        self._hide(model)
        if other_groups:
            model = self._inside.prepare(model, list(other_groups.values()))
        else:
            model.requires_grad_(False)
        for _, _, shard in self._hidden:
            shard.requires_grad_(id(shard) in trained)
        return model

    @override
    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return (
            self._inside.micro_batch(last=last)
            if self._inside_groups
            else nullcontext()
        )

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
            self._inside.set_learning_rates(
                [rates[place] for place in self._inside_groups]
            )
        for optimizer, place in zip(self._optimizers, self._own_groups, strict=True):
            set_learning_rates(optimizer, [rates[place]])

    @override
    def step(self, max_grad_norm: float, outside_norm: float = 0.0) -> float:
        """A `DeferredGradient` is neither part of the norm nor clipped."""
        if not self._optimizers:
            return self._inside.step(max_grad_norm, outside_norm)
        deferred = self._deferred()
        gradients = self._gradients()
        norm = math.hypot(_norm_over_ranks(gradients, deferred), outside_norm)
        if self._inside_groups:
            norm = self._inside.step(max_grad_norm, norm)
        if math.isfinite(norm):
            factor = min(1.0, max_grad_norm / (norm + 1e-6))
            for gradient in gradients:
                gradient.mul_(factor)
            self._update(deferred)
        for shard in self._shards.values():
            shard.grad = None
        for source in deferred:
            source.discard()
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
        total = self._inside.checkpoint_bytes() if self._inside_groups else 0
        states = self._states()
        for name, shard in self._shards.items():
            for tensor in (shard, *states[name].values()):
                bytes_per_row = tensor.nbytes // max(1, len(shard))
                total += bytes_per_row * shard.total
        return total

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
        self._shards = {}
        self._optimizers = []
        self._inside_groups = []

    def _deferred(self) -> list[DeferredGradient]:
        """List the sources of gradients, each once: several shards can share one."""
        sources = (shard.deferred for shard in self._shards.values())
        return list(
            {id(source): source for source in sources if source is not None}.values()
        )

    def _gradients(self) -> list[Tensor]:
        """Collect the shards' gradients, without the inner strategy's `loss_scale`."""
        gradients = [coalesce(shard) for shard in self._shards.values()]
        return [
            gradient.div_(self.loss_scale)
            for gradient in gradients
            if gradient is not None
        ]

    def _update(self, deferred: Sequence[DeferredGradient]) -> None:
        for shard in self._shards.values():
            if (
                shard.grad is None and shard.deferred is None
            ):  # none of this rank's rows was scored
                no_rows = torch.empty(1, 0, dtype=torch.int64, device=shard.device)
                no_values = shard.detach()[:0]
                shard.grad = torch.sparse_coo_tensor(
                    no_rows, no_values, shard.shape, check_invariants=False
                )
        for optimizer in self._optimizers:
            optimizer.step()
        optimizers = {
            id(shard): optimizer
            for optimizer in self._optimizers
            for shard in optimizer.tables
        }
        for source in deferred:
            for rows, gradients in source.chunks(1 / self.loss_scale):
                for shard, gradient in zip(source.shards, gradients, strict=True):
                    if id(shard) in optimizers:
                        optimizers[id(shard)].update(shard, rows, gradient)

    def _states(self) -> dict[str, Mapping[str, Tensor]]:
        """Collect the optimizers' state by table name; create it if there was no step yet."""
        names = {id(shard): name for name, shard in self._shards.items()}
        states = {}
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
    return replace(
        settings, learning_rate=group.learning_rate, weight_decay=group.weight_decay
    ).build(group.parameters)


def _reduced(
    groups: Sequence[ParameterGroup], *, to_shards: bool
) -> dict[int, ParameterGroup]:
    """Reduce the groups to their shards, or to their other parameters: those that have some, by their place."""
    reduced = {}
    for place, group in enumerate(groups):
        parameters = [
            parameter
            for parameter in group.parameters
            if isinstance(parameter, RowShard) is to_shards
        ]
        if parameters:
            reduced[place] = replace(group, parameters=parameters)
    return reduced


def _norm_over_ranks(
    gradients: Sequence[Tensor], deferred: Sequence[DeferredGradient]
) -> float:
    """Compute the norm of all ranks' gradients; infinite if a deferred gradient is not finite. Collective."""
    norms = [
        torch.linalg.vector_norm(gradient, dtype=torch.float32)
        for gradient in gradients
    ]
    norms += [torch.where(source.finite(), 0.0, math.inf) for source in deferred]
    sum_of_squares = 0.0
    if norms:
        norms_on_host = torch.stack(norms).tolist()  # the host waits once
        sum_of_squares = sum(norm**2 for norm in norms_on_host)
    (total,) = all_reduce_sum_floats([sum_of_squares])
    return math.sqrt(total)
