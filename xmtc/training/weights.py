"""The weights of the best epoch, and files of weights that one stage leaves to the next."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from xmtc.distributed.row_shards import RowShard, blocks_of_all_ranks, copy_rows
from xmtc.distributed.strategy import Strategy
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing
from xmtc.storage.mirror import Mirror
from xmtc.training.checkpoint import together

_WRONG, _FIX = "missing or damaged", "copy it again, or train under another name"
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


class BestWeights:
    """Keeps, in one file, every parameter that the stage trains in any of its phases.

    Parameters that a later phase will train are kept too: when the best epoch is an early one, restoring it must undo
    what later phases changed.

    Args:
        path: a `.safetensors` file on storage that all ranks share, or in `mirror`.
        module: what is trained, unpartitioned, as it is when the stage begins.
        trained: all parameters that the stage will train.
        mirror: brings the file that rank 0 wrote to other nodes; it travels with the epoch's checkpoint.
    """

    def __init__(
        self, path: Path, module: nn.Module, trained: Iterable[nn.Parameter], mirror: Mirror | None = None
    ) -> None:
        self.path, self.module, self._mirror = path, module, mirror
        wanted = {id(p) for p in trained}
        named = {n: p for n, p in module.named_parameters() if id(p) in wanted}
        self.shards = {n: p for n, p in named.items() if isinstance(p, RowShard)}  # which train in every phase
        self.start = {n: p.detach().to("cpu", copy=True) for n, p in named.items() if n not in self.shards}

    def save(self, strategy: Strategy) -> None:
        """Keep the weights as they are now. Collective.

        Raises:
            CheckpointError: the disk refuses.
        """
        tensors = self.start | strategy.gather_trainable()
        write_weights(self.path, tensors, self.shards, here=strategy.rank == 0)

    def restore(self) -> None:
        """Put the kept weights back into the module.

        Raises:
            CheckpointError: the file is missing, damaged or of another model.
        """
        if self._mirror is not None:
            name = self.path.relative_to(self._mirror.local).as_posix()
            self._mirror.pull(self.path.parent.relative_to(self._mirror.local).as_posix(), lambda n: n == name)
        load_into(self.module, self.path, self.start.keys() | self.shards.keys())


def write_weights(
    path: Path, tensors: Mapping[str, Tensor], shards: Mapping[str, RowShard] | None = None, *, here: bool
) -> None:
    """Write a `.safetensors` file, whole or not at all, on the rank where `here` is True. Collective.

    Args:
        path: of the file.
        tensors: whole, on every rank.
        shards: tables of which every rank has its rows; they arrive and are written a block at a time.
        here: whether this rank writes; one does.

    Raises:
        CheckpointError: the disk refuses; on every rank. What was there before is as it was.
    """
    shards, failures = shards or {}, list[OSError]()
    blocks = (block for shard in shards.values() for block in blocks_of_all_ranks(shard))
    if here:
        try:
            with replacing(path) as partial, partial.open("wb") as file:
                file.write(_header(tensors, shards))
                for tensor in chain(tensors.values(), blocks):
                    file.write(_raw(tensor))
        except OSError as error:
            failures.append(error)
    for _ in blocks:  # what a failed write left: other ranks still send
        pass
    together(lambda: _raise_first(failures), lambda said: _could_not(path, said), here=here)


def write_module(path: Path, module: nn.Module, *, here: bool) -> None:
    """`write_weights` of all of a module's parameters and buffers, tables whole."""
    state = module.state_dict(keep_vars=True)
    shards = {name: tensor for name, tensor in state.items() if isinstance(tensor, RowShard)}
    rest = {name: tensor for name, tensor in state.items() if name not in shards}
    write_weights(path, rest, shards, here=here)


def _could_not(path: Path, failures: list[str]) -> CheckpointError:
    return CheckpointError(f"{path} could not be written ({'; '.join(failures)}): make room and resume")


def _raise_first(failures: Sequence[OSError]) -> None:
    if failures:
        raise failures[0]


def _header(tensors: Mapping[str, Tensor], shards: Mapping[str, RowShard]) -> bytes:
    """The length and the description with which a safetensors file begins."""
    places, end = {}, 0
    shapes = {name: (tensor, [*tensor.shape]) for name, tensor in tensors.items()}
    shapes |= {name: (shard, [shard.total, *shard.shape[1:]]) for name, shard in shards.items()}
    for name, (tensor, shape) in shapes.items():
        start, end = end, end + math.prod(shape) * tensor.element_size()
        places[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(places).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _raw(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data  # a view, whatever the dtype


def load_into(module: nn.Module, path: Path, names: Set[str] | None = None) -> None:
    """Put the tensors of a file into a module's parameters, each rank's own rows into split tables.

    Args:
        module: unpartitioned.
        path: that `write_weights` wrote.
        names: what the file must hold; any of the module's parameters and buffers where None.

    Raises:
        CheckpointError: the file is missing or damaged, or of another model.
    """
    targets = module.state_dict(keep_vars=True)
    with reading(path, CheckpointError, _FIX, _WRONG), safe_open(path, framework="pt") as file:
        found = set(file.keys())
        if found - targets.keys() or (names is not None and found != names):
            raise CheckpointError(f"{path} holds other parameters than this run trains; delete the run directory")
        for name in sorted(found):
            target, source = targets[name], file.get_slice(name)
            start = target.first if isinstance(target, RowShard) else 0
            if target.ndim:
                copy_rows(target.detach(), source, start)
            else:
                target.detach().copy_(file.get_tensor(name))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read what `write_weights` wrote.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with reading(path, CheckpointError, _FIX, _WRONG):
        return load_file(path)
