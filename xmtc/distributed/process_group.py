"""The process group: use an existing one (Ray Train makes one), or make one."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from xmtc.distributed.collectives import is_distributed
from xmtc.errors import ConfigError


def default_device() -> torch.device:
    """Return the GPU of this process (from LOCAL_RANK, which launchers set), or the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def init_process_group(
    *,
    rank: int | None = None,
    world_size: int | None = None,
    file_store: Path | None = None,
    timeout_s: float = 1800.0,
    device: torch.device | None = None,
) -> bool:
    """Join the process group: gloo on CPU, NCCL on GPU.

    Args:
        rank: rank of this process. Default: RANK, which torchrun sets.
        world_size: number of processes. Default: WORLD_SIZE.
        file_store: path, on storage that all ranks share, of a file that does not exist yet. Replaces MASTER_ADDR and
            MASTER_PORT.
        timeout_s: seconds after which a collective fails because another rank does not join.
        device: device of this process. Default: `default_device()`.

    Returns:
        True if this call made the group; the caller then has to destroy it. False if one existed; it keeps its timeout.

    Raises:
        ConfigError: neither the arguments nor the environment give the rank or the address of the other ranks.
    """
    if is_distributed():
        return False
    rank, world_size = _from_environment(rank, world_size, file_store)
    device = device or default_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{file_store.resolve()}" if file_store else "env://",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
    return True


def destroy_process_group() -> None:
    """Leave the process group, if there is one."""
    if is_distributed():
        dist.destroy_process_group()


def _from_environment(rank: int | None, world_size: int | None, file_store: Path | None) -> tuple[int, int]:
    wanted = {"RANK": rank, "WORLD_SIZE": world_size}
    missing = [name for name, value in wanted.items() if value is None and name not in os.environ]
    if file_store is None:
        missing += [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"no process group: {', '.join(missing)} not in the environment. Start the workers through Ray or "
            "torchrun, or set distributed.workers=0 to train in this process."
        )
    found = {name: int(os.environ[name]) if value is None else value for name, value in wanted.items()}
    return found["RANK"], found["WORLD_SIZE"]
