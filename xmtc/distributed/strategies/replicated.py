"""A single process, and the base of strategies that keep the whole model and optimizer on every rank."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from typing_extensions import override

from xmtc.distributed.state_files import MOMENTS, VALUE, State
from xmtc.distributed.strategies.base import StrategyBase, adamw, set_learning_rates
from xmtc.distributed.strategies.settings import Precision
from xmtc.distributed.strategy import ParameterGroup


class ReplicatedStrategy(StrategyBase):
    """Runs AdamW locally; at each step, all ranks have the same gradients."""

    _optimizer: torch.optim.AdamW

    @override
    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        self._choose_trained(model, groups)
        model.to(self.device)
        model.zero_grad(set_to_none=True)
        self._optimizer = adamw(groups)
        return self._wrap(model)

    def _wrap(self, model: nn.Module) -> nn.Module:
        return model

    @override
    def backward(self, loss: Tensor) -> None:
        loss.backward()

    @override
    def set_learning_rates(self, rates: Sequence[float]) -> None:
        set_learning_rates(self._optimizer, rates)

    @override
    def step(self, max_grad_norm: float, outside_norm: float = 0.0) -> float:
        parameters = list(self._trained.values())
        for parameter in parameters:
            if parameter.grad is None:
                # AdamW would skip it, and its step count would fall behind; ZeRO does not skip it either.
                parameter.grad = torch.zeros_like(parameter)
        gradients = [
            parameter.grad for parameter in parameters if parameter.grad is not None
        ]
        own_norm = get_total_norm(gradients)
        norm = own_norm.hypot(torch.full_like(own_norm, outside_norm))
        norm_on_host = norm.item()  # the host waits once
        if math.isfinite(norm_on_host):
            clip_grads_with_norm_(parameters, max_grad_norm, norm)
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm_on_host

    def _full_parameter(self, parameter: nn.Parameter) -> Tensor:
        return parameter

    def _full_state(self, parameter: nn.Parameter) -> State:
        moments = self._optimizer.state[parameter] or fresh_moments(parameter)
        tensors = {VALUE: parameter, **moments}
        return {
            kind: tensors[kind].detach().to("cpu", copy=True)
            for kind in (VALUE, *MOMENTS)
        }

    def _set_full_state(self, parameter: nn.Parameter, state: State) -> None:
        moments = fresh_moments(parameter)
        with torch.no_grad():
            parameter.copy_(state[VALUE])
            for kind in MOMENTS:
                moments[kind].copy_(state[kind])
        self._optimizer.state[parameter] = moments

    @property
    def _steps(self) -> int:
        any_parameter = next(iter(self._trained.values()))
        state = self._optimizer.state[any_parameter]
        return int(state["step"].item()) if state else 0

    @_steps.setter
    def _steps(self, steps: int) -> None:
        for parameter in self._trained.values():
            self._optimizer.state[parameter]["step"].fill_(steps)


class SingleStrategy(ReplicatedStrategy):
    """Trains in one process, also where it belongs to a group."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self.rank = 0
        self.world_size = 1


def fresh_moments(parameter: Tensor) -> dict[str, Tensor]:
    """Make AdamW's initial state. The step count is on the parameter's device, where the fused AdamW reads it."""
    zeros = {kind: torch.zeros_like(parameter, requires_grad=False) for kind in MOMENTS}
    return {"step": torch.tensor(0.0, device=parameter.device), **zeros}


class DDPStrategy(ReplicatedStrategy):
    """DDP that sums gradients; by default DDP averages them."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self._module: DistributedDataParallel | None = None

    def _wrap(self, model: nn.Module) -> nn.Module:
        self._module = DistributedDataParallel(model, forward_sync_buffers=False)
        self._module.register_comm_hook(None, _sum_bucket)
        self._arrange_buffers(self._module)
        return self._module

    def _arrange_buffers(self, module: DistributedDataParallel) -> None:
        """Run a backward pass that reaches every parameter, and drop its gradients.

        After the first backward pass of a process, DDP arranges its buffers anew. The last bits of a sum of three or
        more gradients depend on their places, so without this, a resumed run would differ from an undisturbed one.
        """
        module.reducer.prepare_for_backward([])
        sums = [parameter.sum() for parameter in self._trained.values()]
        torch.stack(sums).sum().backward()
        module.zero_grad(set_to_none=True)

    @contextmanager
    @override
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        if last or self._module is None:
            yield
            return
        with self._module.no_sync():
            yield

    @override
    def close(self) -> None:
        super().close()
        self._module = None


def _sum_bucket(_: None, bucket: dist.GradBucket) -> Future[Tensor]:  # pyright: ignore[reportPrivateImportUsage]
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.SUM, async_op=True)
    assert work is not None  # async_op
    return work.get_future().then(lambda future: future.value()[0])
