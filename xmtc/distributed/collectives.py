"""The few exchanges between ranks that the rest of the code needs; without a process group each is the identity."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether this process is part of a process group."""
    return dist.is_available() and dist.is_initialized()


def rank_and_world_size() -> tuple[int, int]:
    """(rank, world size); (0, 1) without a process group."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


def all_reduce_sum(value: Tensor) -> Tensor:
    """Sum over ranks, on every rank, as a new tensor on the device of `value`; without gradient."""
    result = value.detach().clone()
    if is_distributed():
        exchanged = result.to(_device())
        dist.all_reduce(exchanged, op=dist.ReduceOp.SUM)
        result = exchanged.to(value.device)
    return result


def all_reduce_sum_floats(values: list[float]) -> list[float]:
    """Elementwise sum over ranks of equally long lists, in float64, in one exchange."""
    return all_reduce_sum(torch.tensor(values, dtype=torch.float64)).tolist()


def all_reduce_max_ints(values: Sequence[int]) -> list[int]:
    """Elementwise maximum over ranks of equally long lists, in one exchange."""
    if not is_distributed():
        return list(values)
    exchanged = torch.tensor(values, dtype=torch.int64, device=_device())
    dist.all_reduce(exchanged, op=dist.ReduceOp.MAX)
    return exchanged.tolist()


def broadcast_object(value: T, source: int = 0) -> T:
    """`value` of rank `source` on every rank. Pickled: small objects of this program's own only."""
    if not is_distributed():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=source, device=_device())
    return box[0]


def all_gather_object(value: T) -> list[T]:
    """The values of all ranks, in rank order, on every rank. Pickled, as `broadcast_object`."""
    if not is_distributed():
        return [value]
    gathered: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered  # pyright: ignore[reportReturnType]  # every entry has been filled


def all_gather_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all ranks below each other, on the CPU of every rank.

    Args:
        rows: of this rank; alike on all ranks but in their number.
        counts: of each rank.
    """
    if not is_distributed():
        return rows.to("cpu", copy=True)
    result = torch.empty(sum(counts), *rows.shape[1:], dtype=rows.dtype)
    for source, part in enumerate(result.split(list(counts))):
        exchanged = (rows if source == dist.get_rank() else torch.empty_like(part)).to(_device()).contiguous()
        dist.broadcast(exchanged, src=source)
        part.copy_(exchanged)
    return result


def broadcast_rows(rows: Tensor | None, shape: Sequence[int], dtype: torch.dtype, source: int) -> Tensor:
    """The rows that rank `source` gives, on the CPU of every rank; the others give None."""
    if not is_distributed():
        assert rows is not None  # this rank is the source
        return rows.cpu()
    exchanged = (torch.empty(*shape, dtype=dtype) if rows is None else rows).to(_device()).contiguous()
    dist.broadcast(exchanged, src=source)
    return exchanged.cpu()


def barrier() -> None:
    """Wait until every rank has come here."""
    if is_distributed():
        devices = [_device().index] if dist.get_backend() == "nccl" else None
        dist.barrier(device_ids=devices)


def leads(directory: Path) -> bool:
    """Whether this rank is the lowest of those that share `directory`: one of each node, or rank 0. Collective.

    Found out by looking for each other's files, because neither host names nor paths say what is mounted where.
    """
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        return True
    # A fresh name: a network file system may answer for one that was looked up before from its cache.
    prefix = broadcast_object(f".rank-{uuid4().hex}")
    directory.mkdir(parents=True, exist_ok=True)
    own = directory / f"{prefix}-{rank}"
    own.touch()
    barrier()
    lowest = next(other for other in range(rank + 1) if (directory / f"{prefix}-{other}").exists())
    barrier()
    own.unlink()
    return lowest == rank


def _device() -> torch.device:
    """Where the backend takes tensors from."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
