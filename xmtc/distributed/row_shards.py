"""Label tables split over the ranks: each rank holds the rows of its labels.

The files `label_rows-00000-of-00002.safetensors` … hold `parameter/<name>` and the optimizer's state, `<kind>/<name>`,
of each rank's rows. Their metadata gives the range of rows, so another number of ranks can read them.

Suffixes: L rows of a whole table, R rows of this rank.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from safetensors import safe_open
from torch import Tensor, nn

from xmtc.distributed.collectives import (
    all_gather_rows,
    broadcast_rows,
    rank_and_world_size,
)
from xmtc.distributed.state_files import FIX, VALUE, save_tensors
from xmtc.errors import CheckpointError
from xmtc.files import reading

_BLOCK = (
    1 << 24
)  # numbers that are read or exchanged at a time, because no rank has room for a whole table


class DeferredGradient(Protocol):
    """The gradient of some shards, computed chunk by chunk on demand. No tensor is as large as a table.

    Attributes:
        shards: shards that the gradient belongs to.
    """

    shards: "tuple[RowShard, ...]"

    def finite(self) -> Tensor:
        """Whether every number of the gradient is finite, bool (), on the shards' device."""
        ...

    def chunks(self, scale: float) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        """Yield rows with `scale` times their gradient for each of `shards`, in float32; afterwards none is pending."""
        ...

    def discard(self) -> None:
        """Drop what is pending."""
        ...


class RowShard(nn.Parameter):
    """This rank's rows of a table, as a parameter that is not replicated. A single process has all rows.

    Attributes:
        first: index of this shard's first row in the whole table.
        total: L.
        deferred: source of the gradient instead of `grad`, if any.
    """

    first: int
    total: int
    deferred: DeferredGradient | None = None

    @classmethod
    def of(cls, table_L: Tensor) -> "RowShard":
        """Cut this rank's share from a table that every rank has in full."""
        rank, world = rank_and_world_size()
        first, end = share_of(rank, world, len(table_L))
        rows_R = table_L.detach()[first:end]
        if world > 1:
            rows_R = rows_R.clone()  # a view would keep the whole table in memory
        return cls.placed(rows_R, first, len(table_L), table_L.requires_grad)

    @classmethod
    def placed(
        cls, rows_R: Tensor, first: int, total: int, requires_grad: bool = True
    ) -> "RowShard":
        """Make a shard of rows that begin at index `first` of a table of `total` rows."""
        shard = cls(rows_R, requires_grad=requires_grad)
        shard.first = first
        shard.total = total
        return shard

    def whole(self, rows_R: Tensor) -> Tensor:
        """Gather the whole table on every rank's CPU from rows that are split like this shard. Collective."""
        counts = [end - first for first, end in shares(self.total)]
        return all_gather_rows(rows_R, counts)


def share_of(rank: int, world: int, rows: int) -> tuple[int, int]:
    """Return the first row of a rank, and the first row of the next rank."""
    first = rows * rank // world
    end = rows * (rank + 1) // world
    return first, end


def shares(rows: int) -> list[tuple[int, int]]:
    """List every rank's first row and the first row of the next rank."""
    _, world = rank_and_world_size()
    return [share_of(rank, world, rows) for rank in range(world)]


def blocks_of_all_ranks(shard: RowShard) -> Iterator[Tensor]:
    """Yield the rows of the whole table in order, in blocks on the CPU. Collective. A block is valid until the next."""
    rows_R = shard.detach()
    rows_per_block = _rows_per_block(shard)
    own_rank, _ = rank_and_world_size()
    for rank, (first, end) in enumerate(shares(shard.total)):
        for start in range(first, end, rows_per_block):
            stop = min(start + rows_per_block, end)
            own_rows = (
                rows_R[start - shard.first : stop - shard.first]
                if own_rank == rank
                else None
            )
            yield broadcast_rows(
                own_rows, (stop - start, *shard.shape[1:]), shard.dtype, rank
            )


def _rows_per_block(table: Tensor) -> int:
    """Return how many rows have about `_BLOCK` numbers, at least one."""
    return max(1, _BLOCK * len(table) // max(1, table.numel()))


def copy_rows(target_R: Tensor, path: Path, name: str, start: int) -> None:
    """Copy rows of a tensor of a safetensors file from `start` on, in blocks.

    The file is opened for each block, because pages of an open file stay in memory.
    """
    rows_per_block = _rows_per_block(target_R)
    for low in range(0, len(target_R), rows_per_block):
        high = min(low + rows_per_block, len(target_R))
        with safe_open(path, framework="pt") as file:
            target_R[low:high].copy_(file.get_slice(name)[start + low : start + high])


def save_rows(
    directory: Path,
    shards: Mapping[str, RowShard],
    states: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Write this rank's rows and their optimizer state, by name.

    Raises:
        OSError: no space or no permission.
    """
    rank, world = rank_and_world_size()
    any_shard = next(iter(shards.values()))  # all tables have the same rows
    metadata = {"first": str(any_shard.first), "total": str(any_shard.total)}
    tensors = {
        key: tensor.cpu().contiguous()
        for key, tensor in _tensors(shards, states).items()
    }
    save_tensors(
        tensors,
        directory / f"label_rows-{rank:05d}-of-{world:05d}.safetensors",
        metadata,
    )


def load_rows(
    directory: Path,
    shards: Mapping[str, RowShard],
    states: Mapping[str, Mapping[str, Tensor]],
) -> None:
    """Read this rank's rows and state in place, from files that any number of ranks wrote.

    Raises:
        CheckpointError: the files are missing or damaged, or belong to other tables or another optimizer.
    """
    files = saved_rows(directory)
    if not files:
        raise CheckpointError(
            f"{directory} holds no label rows: label_rows-*.safetensors is missing; copy it again"
        )
    next_row = 0
    for path in files:
        with (
            reading(path, CheckpointError, FIX),
            safe_open(path, framework="pt") as file,
        ):
            next_row = _read_overlap(file, path, next_row, shards, states)
    total = next(iter(shards.values())).total
    if next_row != total:
        raise CheckpointError(
            f"{directory}: holds {next_row:,} of {total:,} label rows; {FIX}"
        )


def _tensors(
    shards: Mapping[str, RowShard], states: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Name the rows and their optimizer state as in files."""
    tensors: dict[str, Tensor] = {
        f"{VALUE}/{name}": shard.detach() for name, shard in shards.items()
    }
    for name, state in states.items():
        for kind, tensor in state.items():
            tensors[f"{kind}/{name}"] = tensor
    return tensors


def saved_rows(directory: Path) -> list[Path]:
    """List a checkpoint's files of label rows, in the order of the rows."""
    is_whole = re.compile(
        r"label_rows-\d{5}-of-\d{5}\.safetensors"
    )  # not one that is still written
    return sorted(
        path for path in directory.glob("label_rows-*") if is_whole.fullmatch(path.name)
    )


def _read_overlap(
    file: Any,
    path: Path,
    next_row: int,
    shards: Mapping[str, RowShard],
    states: Mapping[str, Mapping[str, Tensor]],
) -> int:
    """Copy this rank's rows from one file, which begins at a row, and return the first row of the next file."""
    metadata = file.metadata()
    keys = set(file.keys())
    targets = _tensors(shards, states)
    totals = {shard.total for shard in shards.values()}
    if keys != targets.keys() or totals != {int(metadata["total"])}:
        differences = sorted(keys ^ targets.keys()) or [f"{metadata['total']} rows"]
        raise CheckpointError(
            f"{path}: label tables or optimizer differ from this run's ({differences[0]}); resume with the "
            "configuration that the checkpoint was made with"
        )
    first_in_file = int(metadata["first"])
    first_here = next(iter(shards.values())).first
    shapes = {key: file.get_slice(key).get_shape() for key in targets}
    rows_in_file = next(iter(shapes.values()))[0]
    for key, target_R in targets.items():
        expected = [rows_in_file, *target_R.shape[1:]]
        if first_in_file != next_row or shapes[key] != expected:
            raise CheckpointError(
                f"{path}: {key} has other rows than the files before it, or than this run; {FIX}"
            )
        low = max(first_in_file, first_here)
        high = min(first_in_file + rows_in_file, first_here + len(target_R))
        if low < high:
            copy_rows(
                target_R[low - first_here : high - first_here],
                path,
                key,
                low - first_in_file,
            )
    return first_in_file + rows_in_file
