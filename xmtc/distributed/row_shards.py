"""Label tables cut over the ranks: each holds the rows of its own labels, and files put them together again.

`label_rows-00000-of-00002.safetensors` … hold `parameter/<name>` and the optimizer's state, `<kind>/<name>`, of each
rank's rows, and in their metadata which rows these are, so that another number of ranks can read its own share.

Suffixes: L rows of a whole table, R of this rank.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from safetensors import safe_open
from torch import Tensor, nn

from xmtc.distributed.collectives import all_gather_rows, broadcast_rows, rank_and_world_size
from xmtc.distributed.state import FIX, save_tensors
from xmtc.errors import CheckpointError
from xmtc.files import reading

_BLOCK = 1 << 24  # numbers that are read or exchanged at a time: no rank needs room for a whole table


class LaterGradient(Protocol):
    """The gradient of some shards as a function of their rows: nothing as large as a table exists.

    Attributes:
        shards: whose gradient it is.
    """

    shards: "tuple[RowShard, ...]"

    def finite(self) -> bool:
        """Whether every number of it is."""
        ...

    def chunks(self, scale: float) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
        """Rows, and their gradient for each of `shards` in float32, `scale` times; forgotten when all are given."""
        ...

    def forget(self) -> None:
        """Drop what is pending."""
        ...


class RowShard(nn.Parameter):
    """This rank's rows of a table: a parameter of its own, not a replica. One process has all rows.

    Attributes:
        first: number of its first row in the whole table.
        total: L.
        later: what gives the gradient instead of `grad`, if anything does.
    """

    first: int
    total: int
    later: LaterGradient | None = None

    @classmethod
    def of(cls, table_L: Tensor) -> "RowShard":
        """This rank's share of a table that every rank has whole."""
        rank, world = rank_and_world_size()
        first, end = share_of(rank, world, len(table_L))
        rows = table_L.detach()[first:end]
        return cls.placed(rows if world == 1 else rows.clone(), first, len(table_L), table_L.requires_grad)

    @classmethod
    def placed(cls, rows_R: Tensor, first: int, total: int, requires_grad: bool = True) -> "RowShard":
        """Rows that begin at number `first` of a table of `total` rows."""
        shard = cls(rows_R, requires_grad=requires_grad)
        shard.first, shard.total = first, total
        return shard

    @property
    def whole_numel(self) -> int:
        """Numbers in the whole table."""
        return self.numel() // max(1, len(self)) * self.total

    def own(self, table_L: Tensor) -> Tensor:
        """These rows of a whole table."""
        return table_L[self.first : self.first + len(self)]

    def whole(self, rows_R: Tensor) -> Tensor:
        """The whole table, on every rank's CPU, from rows that lie on each rank as these do. Collective."""
        return all_gather_rows(rows_R, [end - first for first, end in shares(self.total)])


def share_of(rank: int, world: int, rows: int) -> tuple[int, int]:
    """First row of a rank, and of the next one."""
    return rows * rank // world, rows * (rank + 1) // world


def shares(rows: int) -> list[tuple[int, int]]:
    """First row of every rank, and of the next one."""
    _, world = rank_and_world_size()
    return [share_of(rank, world, rows) for rank in range(world)]


def blocks_of_all_ranks(shard: RowShard) -> Iterator[Tensor]:
    """The rows of the whole table in their order, on the CPU, a block at a time. Collective; use a block at once."""
    rows_R = shard.detach()
    step = max(1, _BLOCK * len(shard) // max(1, shard.numel()))
    for rank, (first, end) in enumerate(shares(shard.total)):
        for start in range(first, end, step):
            own = rows_R[start - shard.first : min(start + step, end) - shard.first] if _rank() == rank else None
            yield broadcast_rows(own, (min(step, end - start), *shard.shape[1:]), shard.dtype, rank)


def _rank() -> int:
    return rank_and_world_size()[0]


def own_rows(parameter: nn.Parameter, whole: Tensor) -> Tensor:
    """What belongs into `parameter` of the whole tensor: all of it, or this rank's rows."""
    return parameter.own(whole) if isinstance(parameter, RowShard) else whole


def copy_rows(target_R: Tensor, source: Any, start: int) -> None:
    """Fill rows from those that begin at `start` of a `get_slice` of a safetensors file, a block at a time."""
    block = max(1, _BLOCK * len(target_R) // max(1, target_R.numel()))
    for low in range(0, len(target_R), block):
        high = min(low + block, len(target_R))
        target_R[low:high].copy_(source[start + low : start + high])


def save_rows(directory: Path, shards: Mapping[str, RowShard], states: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write this rank's rows and their optimizer's state, by name.

    Raises:
        OSError: no space, no permission.
    """
    rank, world = rank_and_world_size()
    tensors = {}
    for name, shard in shards.items():
        tensors[f"parameter/{name}"] = shard.detach()
        tensors |= {f"{kind}/{name}": tensor for kind, tensor in states[name].items()}
    first = next(iter(shards.values()))
    metadata = {"first": str(first.first), "total": str(first.total)}
    cpu = {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
    save_tensors(cpu, directory / f"label_rows-{rank:05d}-of-{world:05d}.safetensors", metadata)


def load_rows(directory: Path, shards: Mapping[str, RowShard], states: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Read this rank's rows and state, in place, from files of any number of ranks.

    Raises:
        CheckpointError: missing, damaged, or of other tables or another optimizer.
    """
    files = saved_rows(directory)
    if not files:
        raise CheckpointError(f"{directory} holds no label rows: label_rows-*.safetensors is missing; copy it again")
    for path in files:
        with reading(path, CheckpointError, FIX), safe_open(path, framework="pt") as file:
            _read_overlap(file, path, shards, states)


def saved_rows(directory: Path) -> list[Path]:
    """The files of label rows in a checkpoint, in the order of their rows."""
    return sorted(path for path in directory.glob("label_rows-*") if re.search(r"-of-\d{5}\.safetensors$", path.name))


def _read_overlap(
    file: Any, path: Path, shards: Mapping[str, RowShard], states: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Copy the rows of one file that are this rank's."""
    metadata, keys = file.metadata(), set(file.keys())
    targets = {f"parameter/{name}": shard.detach() for name, shard in shards.items()}
    targets |= {f"{kind}/{name}": tensor for name, state in states.items() for kind, tensor in state.items()}
    totals = {shard.total for shard in shards.values()}
    if keys != targets.keys() or totals != {int(metadata["total"])}:
        odd = sorted(keys ^ targets.keys()) or [f"{metadata['total']} rows"]
        raise CheckpointError(
            f"{path}: other label tables, or of another optimizer, than this run's ({odd[0]} differs); resume with the "
            "configuration that the checkpoint was made with"
        )
    start = int(metadata["first"])
    first = next(iter(shards.values())).first
    for key, target_R in targets.items():
        rows = file.get_slice(key)
        low, high = max(start, first), min(start + rows.get_shape()[0], first + len(target_R))
        if low < high:
            copy_rows(target_R[low - first : high - first], rows, low - start)
