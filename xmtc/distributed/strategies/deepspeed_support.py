"""Support for DeepSpeed: its compiler, outputs that it can inspect, and restoring an ordinary model."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import distributed_c10d

logger = logging.getLogger(__name__)
_COMPILING_S = 600  # longer than DeepSpeed's extensions take to compile


def import_deepspeed(device: torch.device) -> None:
    """Import DeepSpeed without its warnings, prepare its compiler, and join the process group."""
    programs = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if programs not in path.split(os.pathsep):
        # DeepSpeed calls `ninja` by name, but an environment that is not activated is not on the path.
        os.environ["PATH"] = os.pathsep.join([programs, path])
    if os.access(sys.prefix, os.W_OK):
        # One cache per environment: a shared cache would mix versions of PyTorch.
        os.environ.setdefault(
            "TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / ".torch_extensions")
        )
    # DeepSpeed expects the launcher to set it, and takes the device from it.
    os.environ.setdefault("LOCAL_RANK", str(device.index or 0))
    import deepspeed
    from torch.utils.cpp_extension import get_default_build_root

    extensions = os.environ.get("TORCH_EXTENSIONS_DIR", get_default_build_root())
    wait_for_compilers(Path(extensions))
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    for name in ("all_gather_into_tensor", "reduce_scatter_tensor"):
        # DeepSpeed calls two collectives by names that PyTorch 2.13 deprecates, which logs thousands of lines.
        warnings.filterwarnings(
            "ignore",
            message=f"`torch.distributed.{name}` is deprecated",
            category=FutureWarning,
        )
    deepspeed.init_distributed(
        dist_backend="nccl" if device.type == "cuda" else "gloo", verbose=False
    )


def wait_for_compilers(folder: Path) -> None:
    """Wait for processes that compile extensions. PyTorch would also wait for those that were killed, and forever."""
    for lock in folder.rglob("lock"):
        logger.warning(
            "%s: waiting for another process that compiles; if there is none, delete this file",
            lock,
        )
        with suppress(FileNotFoundError):
            while time.time() - lock.stat().st_mtime < _COMPILING_S:
                time.sleep(1)
            lock.unlink()


def share_timeout(device: torch.device) -> None:
    """Give every process group the timeout of the first.

    DeepSpeed exchanges gradients in separate groups. Whatever the first group's timeout, they would wait half an hour
    for a rank that hangs. PyTorch has no public function to set this timeout.
    """
    first = distributed_c10d._get_default_group()
    timeout = first._get_backend(device).options._timeout
    for group in list(distributed_c10d._world.pg_map):
        distributed_c10d._set_pg_timeout(timeout, group)


@contextmanager
def gathered(
    parameter: nn.Parameter, modifier_rank: int | None = None
) -> Iterator[None]:
    """Gather the whole parameter under stage 3; keep the changes of `modifier_rank`. No-op at other stages."""
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=modifier_rank):
        yield


@contextmanager
def counted_in(zero: Any, outside_norm: float) -> Iterator[None]:
    """Make ZeRO's optimizer include the norm of gradients that it does not hold in the global gradient norm.

    DeepSpeed has no setting for this. Stages 1 and 2 call one method for the norm, stage 3 another for the norms of its
    groups.
    """
    name = (
        "_get_norm_groups"
        if hasattr(zero, "_get_norm_groups")
        else "scaled_global_norm"
    )
    original = getattr(zero, name)

    def with_outside_norm(*args: Any, **kwargs: Any) -> list[Any] | torch.Tensor:
        own = original(*args, **kwargs)
        if isinstance(own, list):
            return [*own, torch.full_like(torch.as_tensor(own[0]), outside_norm)]
        own_norm = torch.as_tensor(own)
        return torch.hypot(own_norm, torch.full_like(own_norm, outside_norm))

    setattr(zero, name, with_outside_norm)
    try:
        yield
    finally:
        delattr(zero, name)


class Attributes:
    """Removes the attributes that DeepSpeed sets on parameters and modules, because DeepSpeed does not."""

    def __init__(self) -> None:
        self._before: dict[int, set[str]] = {}

    def note(self, model: nn.Module) -> None:
        """Record the attributes before DeepSpeed first sees the model."""
        for owner in (*model.modules(), *model.parameters()):
            self._before.setdefault(id(owner), set(vars(owner)))

    def restore(self, model: nn.Module) -> None:
        """Remove all other attributes, and make every module's dictionary of parameters a plain one."""
        owners = (*model.modules(), *model.parameters())
        for owner in owners:
            for name in vars(owner).keys() - self._before[id(owner)]:
                del vars(owner)[name]
            if isinstance(owner, nn.Module):
                owner._parameters = dict(owner._parameters.items())
