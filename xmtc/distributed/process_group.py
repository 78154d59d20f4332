"""The device of this process, and the process group where Ray Train makes none: in tests and benchmarks."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from xmtc.distributed.collectives import is_distributed


def default_device() -> torch.device:
    """Return the GPU of this process (from LOCAL_RANK, which launchers set), or the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def init_process_group(
    *, rank: int, world_size: int, file_store: Path, device: torch.device, timeout_s: float = 1800.0
) -> None:
    """Join a process group: gloo on CPU, NCCL on GPU.

    Args:
        rank: rank of this process.
        world_size: number of processes.
        file_store: path, on storage that all ranks share, of a file that does not exist yet.
        device: device of this process.
        timeout_s: seconds after which a collective fails because another rank does not join.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{file_store.resolve()}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )


def destroy_process_group() -> None:
    """Leave the process group, if there is one."""
    if is_distributed():
        dist.destroy_process_group()
