"""Code that all strategies share: freezing, AdamW, precision, and the format of saved state."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import override

from xmtc.distributed import state_files as files
from xmtc.distributed.collectives import rank_and_world_size
from xmtc.distributed.strategies.settings import Precision
from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.errors import CheckpointError, ConfigError


class StrategyBase(Strategy):
    """Base class of strategies. Subclasses add the exchange of gradients and the placement of optimizer state.

    Attributes:
        part_bytes: maximum size of a saved file, and the CPU memory that a rank needs to save one.
    """

    part_bytes = 2 * 1024**3
    loss_scale: float = 1.0

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.rank, self.world_size = rank_and_world_size()
        self.device = device
        self.keeps_freed_memory = device.type == "cpu"
        self._precision: Precision = precision
        self._model: nn.Module | None = None
        self._trained: dict[str, nn.Parameter] = {}

    @abstractmethod
    def _full_parameter(self, parameter: nn.Parameter) -> Tensor:
        """Gather the whole parameter on every rank. Collective."""

    @abstractmethod
    def _full_state(self, parameter: nn.Parameter) -> files.State:
        """Gather the whole parameter and its moments (zero before the first step) on every rank's CPU. Collective."""

    @abstractmethod
    def _set_full_state(self, parameter: nn.Parameter, state: files.State) -> None:
        """Overwrite parameter and moments. Collective."""

    @property
    @abstractmethod
    def _steps(self) -> int:
        """Number of steps that AdamW has taken since `prepare`."""

    @_steps.setter
    @abstractmethod
    def _steps(self, steps: int) -> None: ...

    @override
    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self._precision == "bf16"
        )

    @contextmanager
    @override
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        yield

    @override
    def save(self, directory: Path) -> None:
        parameters = list(self._trained.items())
        sizes = [self._bytes(parameter) for _, parameter in parameters]
        parts = files.plan_parts(sizes, self.part_bytes)
        failure: OSError | None = None
        for number, part in enumerate(parts):
            writes = number % self.world_size == self.rank
            states = {}
            for name, parameter in parameters[part.start : part.stop]:
                state = self._full_state(parameter)
                _check_not_empty(name, state[files.VALUE])
                if writes:
                    states[name] = state
            if writes and failure is None:
                try:
                    files.write_part(
                        directory / files.part_name(number, len(parts)), states
                    )
                except (
                    OSError
                ) as error:  # other ranks still gather: to raise here would hang them
                    failure = error
        if failure is not None:
            raise failure
        if self.rank == 0:
            files.write_state_index(directory, len(parts), self._steps)

    @override
    def load(self, directory: Path) -> None:
        parts, steps = files.read_state_index(directory)
        shapes = {
            name: self._shape(parameter) for name, parameter in self._trained.items()
        }
        for name, state in files.read_states(directory, parts, shapes):
            self._set_full_state(self._trained[name], state)
        self._steps = steps

    @override
    def gather_trainable(self) -> dict[str, Tensor]:
        gathered = {}
        for name, parameter in self._trained.items():
            value = self._full_parameter(parameter).detach().to("cpu", copy=True)
            _check_not_empty(name, value)
            gathered[name] = value
        return gathered

    @override
    def checkpoint_bytes(self) -> int:
        return sum(self._bytes(parameter) for parameter in self._trained.values())

    @contextmanager
    @override
    def whole(self) -> Iterator[None]:
        yield

    @override
    def close(self) -> None:
        self._model = None
        self._trained = {}

    def _shape(self, parameter: nn.Parameter) -> torch.Size:
        return parameter.shape

    def _bytes(self, parameter: nn.Parameter) -> int:
        bytes_of_moments = 8  # two in float32
        return math.prod(self._shape(parameter)) * (
            parameter.element_size() + bytes_of_moments
        )

    def _choose_trained(
        self, model: nn.Module, groups: Sequence[ParameterGroup]
    ) -> None:
        """Freeze the parameters that are in no group, and check those that are."""
        for group in groups:
            if not group.parameters:
                raise ConfigError(f"parameter group {group.name!r} has no parameters")
            if group.optimizer is not None:
                raise ConfigError(
                    f"{group.name}: row-wise optimizers are for label rows; leave the optimizer out"
                )
        ids = {id(parameter) for group in groups for parameter in group.parameters}
        self._model = model
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in ids)
        self._trained = {
            name: parameter
            for name, parameter in model.named_parameters()
            if id(parameter) in ids
        }
        count = sum(len(group.parameters) for group in groups)
        if not self._trained or len(self._trained) != count:
            raise ConfigError(
                f"{count} parameters to train, {len(self._trained)} of them in the model: every one must belong to the "
                "model and to exactly one group"
            )
        for name, parameter in self._trained.items():
            if parameter.dtype != torch.float32:
                raise ConfigError(
                    f"{name} is {parameter.dtype}: trained parameters must be float32 "
                    "(set the dtype of this component to float32, or do not train it)"
                )


def adamw(groups: Sequence[ParameterGroup]) -> torch.optim.AdamW:
    """Make AdamW (Loshchilov & Hutter 2019) over `groups`, in their order, with PyTorch's betas and epsilon.

    The fused version makes one pass over parameters, gradients and moments. It is several times as fast as the default
    on CPU and CUDA.
    """
    settings = [
        {
            "params": list(group.parameters),
            "lr": group.learning_rate,
            "weight_decay": group.weight_decay,
        }
        for group in groups
    ]
    return torch.optim.AdamW(settings, fused=True)


def set_learning_rates(
    optimizer: torch.optim.Optimizer, rates: Sequence[float]
) -> None:
    """Set one learning rate per group, in the order of the groups."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _check_not_empty(name: str, value: Tensor) -> None:
    if value.numel() == 0:
        raise CheckpointError(
            f"{name} was empty after its partitions were gathered; nothing was saved"
        )
