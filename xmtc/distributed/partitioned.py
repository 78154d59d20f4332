"""Pretrained weights that no worker ever holds whole: partitioned while they are read, gathered block by block.

`Loading.current()` is set around the building of a model whose strategy partitions parameters. Whoever loads pretrained
weights then hands them over one by one, and each worker keeps its share. While no engine of DeepSpeed runs (before
training, in evaluation, in export), `BlockGathering` makes the weights of a block whole for its forward pass alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from xmtc.distributed.collectives import rank_and_world_size


class Loading:
    """How pretrained weights arrive under ZeRO-3.

    Args:
        engine_config: DeepSpeed's configuration.
    """

    _current: ClassVar[ContextVar["Loading | None"]] = ContextVar("loading", default=None)

    def __init__(self, engine_config: Mapping[str, Any]) -> None:
        self._config = dict(engine_config)
        self._first: nn.Parameter | None = None

    @classmethod
    def current(cls) -> "Loading | None":
        """What holds now; None where every worker loads all weights."""
        return cls._current.get()

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Within it, this is `current`."""
        token = self._current.set(self)
        try:
            yield self
        finally:
            self._current.reset(token)

    @property
    def reads(self) -> bool:
        """Whether this worker reads weights; the others receive them from it."""
        return rank_and_world_size()[0] == 0

    def partition(self, module: nn.Module, name: str, value: Tensor) -> None:
        """Put this worker's share of a parameter into a module, instead of one on the meta device. Collective.

        Args:
            module: that owns the parameter itself.
            name: of the parameter in it.
            value: all of it where this worker `reads`; elsewhere any tensor of that shape and type.
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
    """Gathers the partitioned weights of a model's blocks, each for its own forward pass. Collective.

    Every worker must run the same number of forward passes.

    Args:
        model: gets the attribute `gathering`, by which `gatherings` finds this.
        blocks: modules that are run one after the other, such as layers; the rest is gathered module by module.

    Attributes:
        enabled: off while DeepSpeed's engine gathers.
    """

    def __init__(self, model: nn.Module, blocks: Iterable[nn.Module]) -> None:
        self.enabled = True
        self._ids = {id(p) for p in model.parameters() if is_partitioned(p)}
        self._open: dict[nn.Module, Any] = {}
        units = list(blocks)
        inside = {id(module) for unit in units for module in unit.modules()}
        rest = (module for module in model.modules() if id(module) not in inside)
        units += [module for module in rest if next(module.parameters(recurse=False), None) is not None]
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

        parameters = [p for p in module.parameters() if id(p) in self._ids]
        self._open[module] = deepspeed.zero.GatheredParameters(parameters)
        self._open[module].__enter__()

    def _release(self, module: nn.Module, args: object, output: object) -> None:
        del args, output
        if module in self._open:
            self._open.pop(module).__exit__(None, None, None)


def gatherings(model: nn.Module) -> list[BlockGathering]:
    """Those of a model's parts whose weights arrived partitioned."""
    found = (vars(module).get("gathering") for module in model.modules())
    return [one for one in found if isinstance(one, BlockGathering)]


def is_partitioned(parameter: torch.Tensor) -> bool:
    """Whether this worker holds a share of a parameter alone."""
    return hasattr(parameter, "ds_id")
