"""Load and use pretrained weights that do not fit in one worker: partitioned on reading, gathered block by block.

`Loading.current()` is set while a model is built whose strategy partitions parameters. Code that loads pretrained
weights passes them to it one by one, and each worker keeps its share. While no DeepSpeed engine runs (before training,
in evaluation, in export), `BlockGathering` gathers the weights of each block for its forward pass only.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from xmtc.distributed.collectives import rank_and_world_size


class Loading:
    """Partitions pretrained weights under ZeRO-3 while they are loaded.

    Args:
        engine_config: DeepSpeed's configuration.
    """

    _current: ClassVar[ContextVar["Loading | None"]] = ContextVar(
        "loading", default=None
    )

    def __init__(self, engine_config: Mapping[str, Any]) -> None:
        self._config = dict(engine_config)
        self._first: nn.Parameter | None = None

    @classmethod
    def current(cls) -> "Loading | None":
        """Return the active `Loading`; None if every worker loads all weights."""
        return cls._current.get()

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make this `current` inside the context."""
        token = self._current.set(self)
        try:
            yield self
        finally:
            self._current.reset(token)

    @property
    def reads(self) -> bool:
        """Whether this worker reads the weights. The other workers receive them from it."""
        return rank_and_world_size()[0] == 0

    def partition(self, module: nn.Module, name: str, value: Tensor) -> None:
        """Replace a module's parameter on the meta device by this worker's share of `value`. Collective.

        Args:
            module: module that owns the parameter directly.
            name: name of the parameter in `module`.
            value: the whole value if this worker `reads`; otherwise any tensor of the same shape and type.
        """
        import deepspeed

        parameter = nn.Parameter(value, requires_grad=False)
        if self._first is None:
            holder = nn.Module()
            holder.register_parameter("first", parameter)
            deepspeed.zero.Init(module=holder, config_dict_or_path=self._config)
            self._first = parameter
        else:
            convert: Any = self._first.convert_to_zero_parameters  # pyright: ignore[reportAttributeAccessIssue]
            convert(param_list=[parameter])
        module.register_parameter(name, parameter)


class BlockGathering:
    """Gathers the partitioned weights of each block of a model for the block's forward pass. Collective.

    Every worker must run the same number of forward passes.

    Args:
        model: model; its new attribute `gathering` lets `gatherings` find this object.
        blocks: modules that run one after the other, such as layers. All other modules are gathered one by one.

    Attributes:
        enabled: False while DeepSpeed's engine gathers the weights.
    """

    def __init__(self, model: nn.Module, blocks: Iterable[nn.Module]) -> None:
        self.enabled = True
        self._ids = {
            id(parameter)
            for parameter in model.parameters()
            if is_partitioned(parameter)
        }
        self._open: dict[nn.Module, Any] = {}
        units = list(blocks)
        modules_of_blocks = {
            id(module) for block in units for module in block.modules()
        }
        for module in model.modules():
            has_own_parameters = (
                next(module.parameters(recurse=False), None) is not None
            )
            if has_own_parameters and id(module) not in modules_of_blocks:
                units.append(module)
        for unit in units:
            unit.register_forward_pre_hook(self._gather)
            unit.register_forward_hook(self._release, always_call=True)
        model.gathering = self  # pyright: ignore[reportArgumentType]

    def holds(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter stays partitioned when training ends."""
        return id(parameter) in self._ids

    def _gather(self, module: nn.Module, args: object) -> None:
        del args
        if not self.enabled:
            return
        import deepspeed

        parameters = [
            parameter for parameter in module.parameters() if self.holds(parameter)
        ]
        self._open[module] = deepspeed.zero.GatheredParameters(parameters)
        self._open[module].__enter__()

    def _release(self, module: nn.Module, args: object, output: object) -> None:
        del args, output
        if module in self._open:
            self._open.pop(module).__exit__(None, None, None)


def gatherings(model: nn.Module) -> list[BlockGathering]:
    """Find the `BlockGathering` of each part of a model whose weights were loaded partitioned."""
    attributes = (vars(module).get("gathering") for module in model.modules())
    return [
        gathering for gathering in attributes if isinstance(gathering, BlockGathering)
    ]


def is_partitioned(parameter: torch.Tensor) -> bool:
    """Whether this worker holds only a share of a parameter."""
    return hasattr(parameter, "ds_id")
