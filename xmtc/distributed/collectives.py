"""Collectives that the rest of the code uses. Without a process group, each is the identity."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from xmtc.errors import StorageError, XmtcError

T = TypeVar("T")


def is_distributed() -> bool:
    """Whether this process is part of a process group."""
    return dist.is_available() and dist.is_initialized()


def rank_and_world_size() -> tuple[int, int]:
    """Return (rank, world size); (0, 1) without a process group."""
    if not is_distributed():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def all_reduce_sum(value: Tensor) -> Tensor:
    """Sum a tensor over ranks into a new tensor on its device, on every rank; without gradient."""
    summed = value.detach().clone()
    if not is_distributed():
        return summed
    exchanged = summed.to(_device())
    dist.all_reduce(exchanged, op=dist.ReduceOp.SUM)
    return exchanged.to(value.device)


def all_reduce_sum_floats(values: list[float]) -> list[float]:
    """Sum equally long lists elementwise over ranks, in float64, in one exchange."""
    return all_reduce_sum(torch.tensor(values, dtype=torch.float64)).tolist()


def all_reduce_max_ints(values: Sequence[int]) -> list[int]:
    """Take the elementwise maximum over ranks of equally long lists, in one exchange."""
    if not is_distributed():
        return list(values)
    exchanged = torch.tensor(values, dtype=torch.int64, device=_device())
    dist.all_reduce(exchanged, op=dist.ReduceOp.MAX)
    return exchanged.tolist()


def broadcast_object(value: T) -> T:
    """Send the value of rank 0 to every rank. Pickled: only for this program's small objects."""
    if not is_distributed():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, device=_device())
    return box[0]


def all_gather_object(value: T) -> list[T]:
    """Gather the values of all ranks, in rank order, on every rank. Pickled, like `broadcast_object`."""
    if not is_distributed():
        return [value]
    gathered: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered  # pyright: ignore[reportReturnType]  # every entry has been filled


def all_gather_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """Concatenate the rows of all ranks, on the CPU of every rank.

    Args:
        rows: rows of this rank; only their number may differ between ranks.
        counts: number of rows of each rank.
    """
    if not is_distributed():
        return rows.to("cpu", copy=True)
    all_rows = torch.empty(sum(counts), *rows.shape[1:], dtype=rows.dtype)
    for source, rows_of_source in enumerate(all_rows.split(list(counts))):
        to_exchange = (
            rows if source == dist.get_rank() else torch.empty_like(rows_of_source)
        )
        exchanged = to_exchange.to(_device()).contiguous()
        dist.broadcast(exchanged, src=source)
        rows_of_source.copy_(exchanged)
    return all_rows


def broadcast_rows(
    rows: Tensor | None, shape: Sequence[int], dtype: torch.dtype, source: int
) -> Tensor:
    """Send the rows of rank `source` to the CPU of every rank. The other ranks pass None."""
    if not is_distributed():
        assert rows is not None  # this rank is the source
        return rows.cpu()
    to_exchange = torch.empty(*shape, dtype=dtype) if rows is None else rows
    exchanged = to_exchange.to(_device()).contiguous()
    dist.broadcast(exchanged, src=source)
    return exchanged.cpu()


def barrier() -> None:
    """Wait until every rank has called this."""
    if is_distributed():
        devices = [_device().index] if dist.get_backend() == "nccl" else None
        dist.barrier(device_ids=devices)


def is_leader(directory: Path) -> bool:
    """Whether this rank is the lowest of the ranks that share `directory`. Collective.

    On a shared file system this is rank 0, otherwise one rank per node. Ranks look for each other's files, because
    host names and paths do not show which file systems are shared.
    """
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        return True
    # A new name: a network file system may answer from its cache for a name that was looked up before.
    prefix = broadcast_object(f".rank-{uuid4().hex}")
    directory.mkdir(parents=True, exist_ok=True)
    own = directory / f"{prefix}-{rank}"
    own.touch()
    barrier()
    ranks_here = [
        other for other in range(rank + 1) if (directory / f"{prefix}-{other}").exists()
    ]
    barrier()
    own.unlink()
    return ranks_here[0] == rank


def run_collectively(
    action: Callable[[], object],
    explain: Callable[[list[str]], XmtcError] | None = None,
    *,
    here: bool = True,
) -> None:
    """Run `action` on every rank where `here` is True, then raise a failure of any rank on all ranks. Collective.

    Args:
        action: work of this rank; an OSError becomes a StorageError.
        explain: makes the error from the messages of the ranks that failed. Default: the error of the first one.
        here: whether this rank runs it.
    """
    failure: XmtcError | None = None
    if here:
        try:
            action()
        except OSError as error:
            failure = StorageError(str(error))
        except XmtcError as error:
            failure = error
    failures = {
        rank: error
        for rank, error in enumerate(all_gather_object(failure))
        if error is not None
    }
    if not failures:
        return
    if explain is None:
        raise next(iter(failures.values()))
    messages = [f"rank {rank}: {error}" for rank, error in failures.items()]
    raise broadcast_object(
        explain(messages)
    )  # the message of one rank: the free space may differ between ranks


def _device() -> torch.device:
    """Return the device whose tensors the backend exchanges."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
