"""Label tables cut over the ranks: each holds the rows of its own labels, and files put them together again.

`label_rows-00000-of-00002.safetensors` … hold `parameter/<name>` and AdamW's moments of each rank's rows, and in their
metadata the step count and which rows these are, so that another number of ranks can read its own share of them.

Suffixes: L rows of a whole table, R of this rank.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from xmtc.distributed.collectives import all_gather_rows, rank_and_world_size
from xmtc.distributed.state import MOMENTS
from xmtc.errors import CheckpointError


class RowShard(nn.Parameter):
    """This rank's rows of a table: a parameter of its own, not a replica.

    Attributes:
        first: number of its first row in the whole table.
        total: L.
    """

    first: int
    total: int

    @classmethod
    def of(cls, table_L: Tensor) -> "RowShard":
        """This rank's share of a table that every rank has whole."""
        rank, world = rank_and_world_size()
        first, end = share_of(rank, world, len(table_L))
        shard = cls(table_L.detach()[first:end].clone())
        shard.first, shard.total = first, len(table_L)
        return shard

    def own(self, table_L: Tensor) -> Tensor:
        """These rows of a whole table."""
        return table_L[self.first : self.first + len(self)]

    def whole(self, rows_R: Tensor) -> Tensor:
        """The whole table, on every rank's CPU, from rows that lie on each rank as these do. Collective."""
        _, world = rank_and_world_size()
        bounds = [share_of(rank, world, self.total) for rank in range(world)]
        return all_gather_rows(rows_R, [end - first for first, end in bounds])


def share_of(rank: int, world: int, rows: int) -> tuple[int, int]:
    """First row of a rank, and of the next one."""
    return rows * rank // world, rows * (rank + 1) // world


def own_rows(parameter: nn.Parameter, whole: Tensor) -> Tensor:
    """What belongs into `parameter` of the whole tensor: all of it, or this rank's rows."""
    return parameter.own(whole) if isinstance(parameter, RowShard) else whole


def whole_table(shard: RowShard) -> Tensor:
    """The table with the rows of all ranks, on the CPU of every rank. Collective."""
    return shard.whole(shard.detach())


def save_rows(directory: Path, shards: Mapping[str, RowShard], moments: Mapping[str, Any], steps: int) -> None:
    """Write this rank's rows and their moments, by name.

    Raises:
        OSError: no space, no permission.
    """
    rank, world = rank_and_world_size()
    tensors = {}
    for name, shard in shards.items():
        tensors[f"parameter/{name}"] = shard.detach()
        tensors |= {f"{kind}/{name}": moments[name][kind] for kind in MOMENTS}
    first = next(iter(shards.values()))
    metadata = {"first": str(first.first), "total": str(first.total), "steps": str(steps)}
    try:
        cpu = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
        save_file(cpu, directory / f"label_rows-{rank:05d}-of-{world:05d}.safetensors", metadata)
    except SafetensorError as error:
        raise OSError(f"label rows: {error}") from error


def load_rows(directory: Path, shards: Mapping[str, RowShard], moments: Mapping[str, Any]) -> int:
    """Read this rank's rows and moments, in place, from files of any number of ranks; returns the step count.

    Raises:
        CheckpointError: missing, damaged, or of other tables.
    """
    files = saved_rows(directory)
    if not files:
        raise CheckpointError(
            f"{directory} was saved with distributed.shard_labels: false; resume with that, or start under another name"
        )
    steps = 0
    try:
        for path in files:
            with safe_open(path, framework="pt") as file:
                steps = _read_overlap(file, path, shards, moments)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{directory}: label rows cannot be read: {error}") from error
    return steps


def saved_rows(directory: Path) -> list[Path]:
    """The files of label rows in a checkpoint, in the order of their rows."""
    return sorted(path for path in directory.glob("label_rows-*") if re.search(r"-of-\d{5}\.safetensors$", path.name))


def _read_overlap(file: Any, path: Path, shards: Mapping[str, RowShard], moments: Mapping[str, Any]) -> int:
    """Copy the rows of one file that are this rank's; returns the step count."""
    metadata, keys = file.metadata(), set(file.keys())
    start = int(metadata["first"])
    for name, shard in shards.items():
        for kind, target_R in {"parameter": shard.detach(), **{k: moments[name][k] for k in MOMENTS}}.items():
            if f"{kind}/{name}" not in keys or int(metadata["total"]) != shard.total:
                raise CheckpointError(f"{path} holds other label tables than {name} of {shard.total:,} labels")
            rows = file.get_slice(f"{kind}/{name}")
            low = max(start, shard.first)
            high = min(start + rows.get_shape()[0], shard.first + len(shard))
            if low < high:
                target_R[low - shard.first : high - shard.first].copy_(rows[low - start : high - start])
    return int(metadata["steps"])
