"""What DeepSpeed needs around it: its compiler, outputs it can see into, and a way back to an ordinary model."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import distributed_c10d


def import_deepspeed(device: torch.device) -> None:
    """Import DeepSpeed, quietly, with what its compiler calls need, and join the process group."""
    tools = str(Path(sys.executable).parent)
    if tools not in os.environ.get("PATH", "").split(os.pathsep):
        # DeepSpeed calls `ninja` by name; an environment that is not activated is not on the path.
        os.environ["PATH"] = os.pathsep.join([tools, os.environ.get("PATH", "")])
    if os.access(sys.prefix, os.W_OK):
        # Compiled once for each environment: a cache shared between them would mix versions of PyTorch.
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / ".torch_extensions"))
    # DeepSpeed insists on launchers that set it; it takes the device from it.
    os.environ.setdefault("LOCAL_RANK", str(device.index or 0))
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        # Thousands of lines: DeepSpeed calls two collectives by names that PyTorch 2.13 deprecates.
        warnings.filterwarnings("ignore", message=f"`torch.distributed.{name}` is deprecated", category=FutureWarning)
    deepspeed.init_distributed(dist_backend="nccl" if device.type == "cuda" else "gloo", verbose=False)


def can_swap() -> bool:
    """Whether DeepSpeed can build what it writes to disks with."""
    from deepspeed.ops.op_builder import AsyncIOBuilder  # pyright: ignore[reportAttributeAccessIssue]

    return AsyncIOBuilder().is_compatible(verbose=False)


def share_timeout(device: torch.device) -> None:
    """Give every process group the timeout of the first.

    DeepSpeed exchanges gradients in groups of its own, which would wait half an hour for a rank that hangs, whatever
    the first group's timeout. PyTorch has no public way to set it.
    """
    first = distributed_c10d._get_default_group()
    timeout = first._get_backend(device).options._timeout
    for group in list(distributed_c10d._world.pg_map):
        distributed_c10d._set_pg_timeout(timeout, group)


@contextmanager
def gathered(parameter: nn.Parameter, modifier_rank: int | None = None) -> Iterator[None]:
    """The whole parameter under stage 3; changes of `modifier_rank` are taken over. No-op at other stages."""
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=modifier_rank):
        yield


@contextmanager
def counted_in(zero: Any, beside: float) -> Iterator[None]:
    """Within, ZeRO's optimizer takes the global gradient norm together with that of gradients it does not hold.

    There is no setting for it. Stages 1 and 2 ask one method for the norm, stage 3 another for those of its groups.
    """
    name = "_get_norm_groups" if hasattr(zero, "_get_norm_groups") else "scaled_global_norm"
    norms = getattr(zero, name)

    def together(*args: Any, **kwargs: Any) -> Any:
        found = norms(*args, **kwargs)
        if isinstance(found, list):
            return [*found, torch.full_like(torch.as_tensor(found[0]), beside)]
        return torch.hypot(torch.as_tensor(found), torch.full_like(torch.as_tensor(found), beside))

    setattr(zero, name, together)
    try:
        yield
    finally:
        delattr(zero, name)


class FieldsOut(nn.Module):
    """Gives a dataclass's fields as a dictionary: DeepSpeed finds tensors in tuples, lists and dictionaries only.

    It calls `forward`, not the model: were the model a module of its own to DeepSpeed, the parameters that it reaches
    into its children for would not be fetched again for the backward pass, since its output hides the tensors.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.kind: type | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's output, or the fields of it."""
        output = self.model.forward(*args, **kwargs)
        if not is_dataclass(output) or isinstance(output, type):
            return output
        self.kind = type(output)
        return {f.name: getattr(output, f.name) for f in fields(output)}


class FieldsIn(nn.Module):
    """The engine, giving what the model gives."""

    def __init__(self, engine: nn.Module, inside: FieldsOut) -> None:
        super().__init__()
        self.engine, self.inside = engine, inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        output = self.engine(*args, **kwargs)
        return output if self.inside.kind is None else self.inside.kind(**output)


class Attributes:
    """What DeepSpeed hangs on parameters and modules, to take it off again: it has no way back of its own."""

    def __init__(self) -> None:
        self._before: dict[int, set[str]] = {}

    def note(self, model: nn.Module) -> None:
        """Remember which attributes there are, before DeepSpeed first sees the model."""
        for thing in (*model.modules(), *model.parameters()):
            self._before.setdefault(id(thing), set(vars(thing)))

    def restore(self, model: nn.Module) -> None:
        """Remove all others, and make every module's dictionary of parameters a plain one."""
        things = (*model.modules(), *model.parameters())
        for thing in things:
            for name in set(vars(thing)) - self._before[id(thing)]:
                del vars(thing)[name]
            if isinstance(thing, nn.Module):
                thing._parameters = dict(thing._parameters.items())
