"""The weights of the best epoch, and weight files that one stage passes to the next."""

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from xmtc.data.array_contract import check_finite
from xmtc.distributed.collectives import run_collectively
from xmtc.distributed.row_shards import RowShard, blocks_of_all_ranks, copy_rows
from xmtc.distributed.strategy import Strategy
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing_file

_WRONG = "missing or damaged"
_FIX = "copy it again, or train under another name"
_DTYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
}


class BestWeights:
    """Keeps, in one file, every parameter that the stage trains in any of its phases, and buffers beside them.

    The file includes parameters that only a later phase trains. If the best epoch is an early one, restoring it must
    undo the changes of later phases.

    Args:
        path: a `.safetensors` file on storage that all ranks share, or whose copy `CheckpointStore` fetches.
        module: the unpartitioned module at the start of the stage.
        trained: all parameters that the stage will train.
    """

    def __init__(
        self, path: Path, module: nn.Module, trained: Iterable[nn.Parameter]
    ) -> None:
        self.path = path
        self.module = module
        self.shards: dict[str, RowShard] = {}  # these train in every phase
        self.start: dict[str, Tensor] = {}
        trained_ids = {id(parameter) for parameter in trained}
        owners = set()
        for name, parameter in module.named_parameters():
            if id(parameter) not in trained_ids:
                continue
            owners.add(_owner(name))
            if isinstance(parameter, RowShard):
                self.shards[name] = parameter
            else:
                self.start[name] = parameter.detach().to("cpu", copy=True)
        saved_names = module.state_dict().keys()
        for name, buffer in module.named_buffers():
            if _owner(name) in owners and name in saved_names:
                self.start[name] = buffer.detach().to("cpu", copy=True)

    def save(self, strategy: Strategy) -> None:
        """Save the current weights. Collective.

        Raises:
            CheckpointError: the file could not be written.
        """
        tensors = self.start | strategy.gather_trainable()
        write_weights(self.path, tensors, self.shards, here=strategy.rank == 0)

    def restore(self) -> None:
        """Load the saved weights into the module.

        Raises:
            CheckpointError: the file is missing or damaged, or belongs to another model.
        """
        load_into(self.module, self.path, self.start.keys() | self.shards.keys())


def _owner(name: str) -> str:
    """Return the name of the module that has this parameter or buffer."""
    return name.rpartition(".")[0]


def write_weights(
    path: Path,
    tensors: Mapping[str, Tensor],
    shards: Mapping[str, RowShard] | None = None,
    *,
    here: bool,
) -> None:
    """Write a `.safetensors` file atomically, on the rank where `here` is True. Collective.

    Args:
        path: path of the file.
        tensors: whole tensors, on every rank.
        shards: tables whose rows are split over the ranks; they are received and written block by block.
        here: whether this rank writes; True on exactly one rank.

    Raises:
        CheckpointError: the file could not be written; raised on every rank. An earlier file is unchanged.
    """
    shards = shards or {}
    blocks = (
        block for shard in shards.values() for block in blocks_of_all_ranks(shard)
    )

    def write() -> None:
        try:
            with replacing_file(path) as partial, partial.open("wb") as file:
                file.write(_header(tensors, shards))
                for tensor in chain(tensors.values(), blocks):
                    file.write(_raw(tensor))
        finally:
            deque(
                blocks, maxlen=0
            )  # after a failed write: the other ranks still send their blocks

    if not here:
        deque(blocks, maxlen=0)
    run_collectively(write, lambda said: _could_not(path, said), here=here)


def _could_not(path: Path, failures: list[str]) -> CheckpointError:
    return CheckpointError(
        f"{path} could not be written ({'; '.join(failures)}): free disk space and resume"
    )


def write_module(path: Path, module: nn.Module, *, here: bool) -> None:
    """Write all parameters and buffers of a module with `write_weights`; its tables must be whole."""
    state = module.state_dict(keep_vars=True)
    shards = {
        name: tensor for name, tensor in state.items() if isinstance(tensor, RowShard)
    }
    rest = {name: tensor for name, tensor in state.items() if name not in shards}
    write_weights(path, rest, shards, here=here)


def _header(tensors: Mapping[str, Tensor], shards: Mapping[str, RowShard]) -> bytes:
    """Make the header of a safetensors file: its length and the description of the tensors."""
    descriptions = {}
    start = 0
    for name, tensor in (*tensors.items(), *shards.items()):
        shape = list(tensor.shape)
        if isinstance(tensor, RowShard):
            shape[0] = tensor.total
        end = start + math.prod(shape) * tensor.element_size()
        descriptions[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": shape,
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(descriptions).encode()
    padding = b" " * (-len(text) % 8)
    length = len(text) + len(padding)
    return length.to_bytes(8, "little") + text + padding


def _raw(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data  # a view, whatever the dtype


def load_into(
    module: nn.Module, path: Path, names: Set[str] | None = None
) -> dict[str, Tensor]:
    """Load the tensors of a file into a module's parameters, which it returns. A split table gets this rank's rows.

    Args:
        module: unpartitioned module.
        path: file from `write_weights`.
        names: names that the file must hold; None accepts any of the module's parameters and buffers.

    Raises:
        CheckpointError: the file is missing or damaged, belongs to another model, or holds numbers that are not finite.
    """
    targets = module.state_dict(keep_vars=True)
    check_finite(path)
    with (
        reading(path, CheckpointError, _FIX, _WRONG),
        safe_open(path, framework="pt") as file,
    ):
        names_in_file = set(file.keys())
        if names_in_file - targets.keys() or (
            names is not None and names_in_file != names
        ):
            raise CheckpointError(
                f"{path} holds other parameters than this run trains; delete the run directory"
            )
        for name in sorted(names_in_file):
            target = targets[name]
            shape = list(target.shape)
            if isinstance(target, RowShard):
                shape[0] = target.total
            if file.get_slice(name).get_shape() != shape:
                raise CheckpointError(
                    f"{path}: {name} has another shape than {shape}; {_FIX}"
                )
            first_row = target.first if isinstance(target, RowShard) else 0
            if target.ndim:
                copy_rows(target.detach(), path, name, first_row)
            else:
                target.detach().copy_(file.get_tensor(name))
    return {name: targets[name].detach() for name in names_in_file}
