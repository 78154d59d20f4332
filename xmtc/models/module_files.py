"""Safetensors files of an exported model."""

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from xmtc.errors import CheckpointError
from xmtc.files import reading


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the tensors whose names begin with `prefix`, and remove it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def whole(tensors: Mapping[str, Tensor], place: str = "") -> dict[str, Tensor]:
    """Move tensors to the CPU and make them contiguous, as safetensors requires.

    Args:
        tensors: tensors by name.
        place: prefix of the names in the error.

    Raises:
        CheckpointError: a tensor is empty: a shard of ZeRO-3 that was not gathered.
    """
    for name, tensor in tensors.items():
        if tensor.numel() == 0:
            raise CheckpointError(
                f"cannot export {place}{name}: it is empty here, like a shard of ZeRO-3; gather it from the ranks first"
            )
    return {
        name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()
    }


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file, by name.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path}: missing: copy the whole model folder, or export it again"
        )
    with reading(path, CheckpointError, "copy it again, or export the model again"):
        return load_file(path)


def load_weights(module: nn.Module, path: Path) -> None:
    """Load a module's weights from a file.

    Raises:
        CheckpointError: the file is missing or damaged, or its tensors do not match the module.
    """
    try:
        module.load_state_dict(read_weights(path))
    except RuntimeError as error:
        last_line = str(error).splitlines()[-1].strip()
        raise CheckpointError(
            f"{path}: does not fit its config.json: {last_line}; copy the whole model folder again"
        ) from error
