"""DeepSpeed ZeRO (Rajbhandari et al. 2020): optimizer state, gradients and parameters partitioned over the ranks.

Weights, gradients and optimizer state are float32 at every precision; bfloat16 is autocast inside the engine.
DeepSpeed's bf16 mode would round the weights to 8 bits of mantissa (and keep no float32 copy at stage 0), so its losses
would differ from the other strategies. Frozen weights may have any floating type.

xmtc handles learning rates, clipping, accumulation and checkpoints, so all strategies behave alike. DeepSpeed's
checkpoints cannot be loaded with another number of ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.distributed.memory import release_freed_memory
from xmtc.distributed.state_files import MOMENTS, VALUE, State
from xmtc.distributed.strategies.base import StrategyBase, adamw, set_learning_rates
from xmtc.distributed.strategies.deepspeed_support import (
    Attributes,
    counted_in,
    gathered,
    share_timeout,
)
from xmtc.distributed.strategies.replicated import ReplicatedStrategy, fresh_moments
from xmtc.distributed.strategies.settings import Precision
from xmtc.distributed.strategy import ParameterGroup
from xmtc.distributed.zero3 import gatherings
from xmtc.errors import ConfigError


class _EngineStrategy(StrategyBase):
    """Base of all stages: wraps the model in an engine.

    Args:
        stage: what is partitioned: 0 nothing, 1 optimizer state, 2 also gradients, 3 also parameters.
        engine_config: DeepSpeed's configuration.
        precision: whether products are computed in bfloat16.
        device: device of this process.
    """

    def __init__(
        self,
        stage: int,
        engine_config: Mapping[str, Any],
        precision: Precision,
        device: torch.device,
    ) -> None:
        super().__init__(precision, device)
        self._stage = stage
        self._engine_config = dict(engine_config)
        self._engine: Any = None
        self._attributes = Attributes()
        if stage == 3 and device.type == "cpu":
            # The holes between gathered weights would take more memory than the weights.
            self.keeps_freed_memory = False
            release_freed_memory()
        self.loss_scale = float(self.world_size)  # undoes the average over ranks

    @contextmanager
    @override
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(last)
        yield

    @override
    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss * self.loss_scale, scale_wrt_gas=False)

    @override
    def close(self) -> None:
        self._stop()
        if self._model is not None:
            if self._stage == 3:
                for parameter in self._made_whole():
                    parameter.data = self._full_parameter(parameter)
            self._attributes.restore(self._model)
        super().close()

    def _made_whole(self) -> list[nn.Parameter]:
        """List the parameters that are whole before and after training."""
        assert self._model is not None
        gathered_by_block = gatherings(self._model)

        def stays_partitioned(parameter: nn.Parameter) -> bool:
            return any(gathering.holds(parameter) for gathering in gathered_by_block)

        return [
            parameter
            for parameter in self._model.parameters()
            if not stays_partitioned(parameter)
        ]

    def _gather_blocks(self, *, enabled: bool) -> None:
        """Let `BlockGathering` gather weights that were loaded partitioned, or leave it to the engine."""
        if self._model is None:
            return
        for gathering in gatherings(self._model):
            gathering.enabled = enabled

    def _start(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module:
        import deepspeed

        self._attributes.note(model)
        self._engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=self._engine_config
        )
        share_timeout(self.device)
        self._gather_blocks(enabled=False)
        return self._engine

    def _stop(self) -> None:
        """Remove the engine's hooks from the model; the parameters do not change.

        When Python collects an engine, it destroys its optimizer once more. This would detach the moments of parameters
        that the next engine trains, and they would be saved as zeros.
        """
        if self._engine is not None:
            self._engine.destroy()
            self._engine.optimizer = None
            self._engine.module_forward_pre_hook.remove()
            self._engine.module_forward_post_hook.remove()
            self._engine = None
        self._gather_blocks(enabled=True)


class ZeroStage0Strategy(_EngineStrategy, ReplicatedStrategy):
    """Stage 0: DeepSpeed exchanges the gradients; everything else works as with DDP."""

    @override
    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        self._stop()
        return super().prepare(model, groups)

    def _wrap(self, model: nn.Module) -> nn.Module:
        return self._start(model, self._optimizer)


class ZeroStrategy(_EngineStrategy):
    """Stages 1 to 3: each rank updates its partition of the flattened parameters."""

    _optimizer: torch.optim.AdamW
    _linked = False

    @override
    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """Under stage 3, parameters stay partitioned from the first call."""
        self._stop()
        self._choose_trained(model, groups)
        for name, parameter in model.named_parameters():
            if self._stage == 3 and not parameter.is_floating_point():
                raise ConfigError(
                    f"{name} is quantised, and distributed.strategy.stage: 3 partitions quantised weights wrongly, and "
                    "trains wrongly without an error; use stage 2"
                )
        model.zero_grad(set_to_none=True)
        self._optimizer = adamw(groups)
        self._linked = False
        return self._start(model, self._optimizer)

    @override
    def set_learning_rates(self, rates: Sequence[float]) -> None:
        set_learning_rates(self._optimizer, rates)

    @override
    def step(self, max_grad_norm: float, outside_norm: float = 0.0) -> float:
        """A norm that is not finite is returned as infinity."""
        self._engine.optimizer.clip_grad = max_grad_norm
        with counted_in(self._engine.optimizer, outside_norm):
            self._engine.step()
        return float(self._engine.get_global_grad_norm())

    @contextmanager
    @override
    def whole(self) -> Iterator[None]:
        if self._stage != 3 or self._engine is None:
            yield
            return
        import deepspeed

        offload = self._engine.optimizer.parameter_offload
        with deepspeed.zero.GatheredParameters(self._made_whole()):
            for parameter in self._engine.module.parameters():
                parameter.ds_active_sub_modules.clear()
            # The hooks would partition the parameters again. DeepSpeed has no public call to remove or register them.
            for hook in (*offload.forward_hooks, *offload.backward_hooks):
                hook.remove()
            offload.forward_hooks = []
            offload.backward_hooks = []
            self._gather_blocks(enabled=True)
            try:
                yield
            finally:
                self._gather_blocks(enabled=False)
                offload._register_deepspeed_module(offload.module)

    def _shape(self, parameter: nn.Parameter) -> torch.Size:
        return getattr(parameter, "ds_shape", parameter.shape)

    def _full_parameter(self, parameter: nn.Parameter) -> Tensor:
        with gathered(parameter):
            full = parameter.detach().clone()
        return full

    def _full_state(self, parameter: nn.Parameter) -> State:
        from deepspeed.utils import safe_get_full_optimizer_state

        tensors: dict[str, Any] = {VALUE: self._full_parameter(parameter)}
        self._link_moments()
        for kind in MOMENTS:
            tensors[kind] = safe_get_full_optimizer_state(parameter, kind)
        return {
            kind: tensor.detach().to("cpu", copy=True)
            for kind, tensor in tensors.items()
        }

    def _set_full_state(self, parameter: nn.Parameter, state: State) -> None:
        from deepspeed.utils import (
            safe_set_full_fp32_param,
            safe_set_full_optimizer_state,
            safe_set_local_fp32_param,
            safe_set_local_optimizer_state,
        )

        self._link_moments()
        with gathered(parameter, modifier_rank=0), torch.no_grad():
            parameter.copy_(state[VALUE])
        if self._stage == 3:
            safe_set_local_fp32_param(
                parameter, self._partition(parameter, state[VALUE])
            )
            for kind in MOMENTS:
                safe_set_local_optimizer_state(
                    parameter, self._partition(parameter, state[kind]), kind
                )
        else:
            safe_set_full_fp32_param(parameter, state[VALUE])
            for kind in MOMENTS:
                safe_set_full_optimizer_state(parameter, state[kind], kind)

    def _partition(self, parameter: nn.Parameter, full: Tensor) -> Tensor:
        """Cut this rank's share of a stage-3 parameter, padded with zeros like DeepSpeed's."""
        size = parameter.ds_tensor.numel()  # pyright: ignore[reportAttributeAccessIssue]
        padding = size * self.world_size - full.numel()
        flat = F.pad(full.flatten(), (0, padding))
        return flat[self.rank * size : (self.rank + 1) * size]

    def _flats(self) -> list[Tensor]:
        """List this rank's flattened float32 partitions, which AdamW updates."""
        zero = self._engine.optimizer
        if self._stage == 3:
            return zero.fp32_partitioned_groups_flat
        return zero.single_partition_of_fp32_groups

    def _link_moments(self) -> None:
        """Create the state that AdamW would create at its first step, and link it to DeepSpeed's parameters."""
        if self._linked:
            return
        zero = self._engine.optimizer
        for flat in self._flats():
            if not zero.optimizer.state[flat]:
                zero.optimizer.state[flat] = fresh_moments(flat)
        if self._stage != 3:
            # After its first step, DeepSpeed links only the first group.
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()
        self._linked = True

    @property
    def _steps(self) -> int:
        states = self._engine.optimizer.optimizer.state
        state = states[self._flats()[0]]
        return int(state["step"].item()) if state else 0

    @_steps.setter
    def _steps(self, steps: int) -> None:
        for flat in self._flats():
            self._engine.optimizer.optimizer.state[flat]["step"].fill_(steps)
