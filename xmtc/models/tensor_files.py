"""Safetensors files of an exported model."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from xmtc.errors import CheckpointError
from xmtc.files import reading


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose name begins with `prefix`, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def whole(tensors: Mapping[str, Tensor], place: str = "") -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, as safetensors takes them.

    Args:
        tensors: by name.
        place: stands before the names in the error.

    Raises:
        CheckpointError: one is empty, which is a shard of ZeRO-3 that was not gathered.
    """
    for name, tensor in tensors.items():
        if tensor.numel() == 0:
            raise CheckpointError(f"cannot export {place}{name}: it is empty here; gather it from the ranks first")
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: missing: copy the whole model folder, or export it again")
    with reading(path, CheckpointError, "copy it, or export it, again"):
        return load_file(path)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a module's weights from a file.

    Raises:
        CheckpointError: the file is missing or damaged, or holds other tensors than the module.
    """
    try:
        module.load_state_dict(read_tensors(path))
    except RuntimeError as error:
        raise CheckpointError(f"{path}: does not fit its config.json: {str(error).splitlines()[-1].strip()}") from error
