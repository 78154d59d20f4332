"""Files of training state that do not depend on strategy or world size.

`trainable-00000-of-00003.safetensors` … hold three tensors for every trained parameter: `parameter/<name>` and AdamW's
moments `exp_avg/<name>` and `exp_avg_sq/<name>` (float32). `optimizer.json` holds the number of steps taken. The
tensors are whole, so a run may continue with another number of workers or another strategy. Different ranks write the
parts, and no rank holds more than one part in memory.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from xmtc.errors import CheckpointError
from xmtc.files import read_json, reading

FIX = "resume from an earlier checkpoint"
"""What to do about a damaged file of a checkpoint."""
VALUE = "parameter"
MOMENTS = ("exp_avg", "exp_avg_sq")
State = Mapping[str, Tensor]
"""One parameter's whole value and AdamW moments, on the CPU, by these names."""
_FORMAT = 1
_INDEX = "optimizer.json"


def plan_parts(sizes: Sequence[int], part_bytes: int) -> list[range]:
    """Divide parameters of the given sizes in bytes into ranges of at most `part_bytes` (or one parameter)."""
    parts: list[range] = []
    start = 0
    bytes_so_far = 0
    for place, size in enumerate(sizes):
        if place > start and bytes_so_far + size > part_bytes:
            parts.append(range(start, place))
            start = place
            bytes_so_far = 0
        bytes_so_far += size
    if sizes:
        parts.append(range(start, len(sizes)))
    return parts


def part_name(index: int, parts: int) -> str:
    """Return the file name of a part."""
    return f"trainable-{index:05d}-of-{parts:05d}.safetensors"


def write_part(path: Path, states: Mapping[str, State]) -> None:
    """Write parameters and their moments.

    Raises:
        OSError: no space, no permission.
    """
    tensors = {}
    for name, state in states.items():
        for kind, tensor in state.items():
            tensors[f"{kind}/{name}"] = tensor.contiguous()
    save_tensors(tensors, path)


def save_tensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file; a library's refusal is an OSError, like those of the system.

    Raises:
        OSError: no space, no permission.
    """
    try:
        save_file(dict(tensors), path, metadata)
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error


def write_state_index(directory: Path, parts: int, steps: int) -> None:
    """Write the index of the parts: their number, and AdamW's step count."""
    text = json.dumps({"format": _FORMAT, "parts": parts, "steps": steps})
    (directory / _INDEX).write_text(text, encoding="utf-8")


def read_state_index(directory: Path) -> tuple[int, int]:
    """Read the number of parts and AdamW's step count.

    Raises:
        CheckpointError: the index is missing, damaged or in another format.
    """
    path = directory / _INDEX
    if not path.is_file():
        raise CheckpointError(
            f"{directory} holds no training state: {_INDEX} is missing"
        )
    with reading(path, CheckpointError, FIX):
        index: dict[str, Any] = read_json(path)
        if index.get("format") != _FORMAT:
            raise CheckpointError(
                f"{path}: format {index.get('format')}, but this version of xmtc reads format {_FORMAT}; resume with "
                "the version that wrote it"
            )
        parts, steps = index["parts"], index["steps"]
        if not (isinstance(parts, int) and isinstance(steps, int) and steps >= 0):
            raise CheckpointError(f"{path}: parts or steps are no counts; {FIX}")
        return parts, steps


def read_states(
    directory: Path, parts: int, shapes: dict[str, torch.Size]
) -> Iterator[tuple[str, State]]:
    """Yield every parameter once, one in memory at a time, in the same order on every rank.

    Args:
        directory: directory that `write_part` wrote to.
        parts: number of parts from `read_state_index`.
        shapes: shape of every parameter that must be there, by name.

    Raises:
        CheckpointError: a file cannot be read, or its names or shapes differ from `shapes`.
    """
    _check_names(directory, parts, shapes)
    for i in range(parts):
        path = directory / part_name(i, parts)
        with (
            reading(path, CheckpointError, FIX),
            safe_open(path, framework="pt") as file,
        ):
            for name in _names(file):
                state = {
                    kind: file.get_tensor(f"{kind}/{name}")
                    for kind in (VALUE, *MOMENTS)
                }
                for tensor in state.values():
                    if tensor.shape != shapes[name]:
                        raise CheckpointError(
                            f"{directory}: {name} has shape {tuple(tensor.shape)}, expected {tuple(shapes[name])}; "
                            "resume with the configuration that the checkpoint was made with"
                        )
                yield name, state


def _check_names(directory: Path, parts: int, shapes: dict[str, torch.Size]) -> None:
    names: set[str] = set()
    for i in range(parts):
        path = directory / part_name(i, parts)
        with (
            reading(path, CheckpointError, FIX),
            safe_open(path, framework="pt") as file,
        ):
            names.update(_names(file))
    missing = sorted(shapes.keys() - names)
    if missing:
        raise CheckpointError(
            f"{directory}: {len(missing)} trained parameters are missing, first {missing[0]}; resume with the "
            "configuration that the checkpoint was made with"
        )
    untrained = sorted(names - shapes.keys())
    if untrained:
        raise CheckpointError(
            f"{directory}: {len(untrained)} parameters in it are not trained now, first {untrained[0]}; resume with "
            "the configuration that the checkpoint was made with"
        )


def _names(
    file: Any,
) -> list[str]:  # safetensors does not export the type of an open file
    keys: list[str] = file.keys()
    prefix = f"{VALUE}/"
    return sorted(key.removeprefix(prefix) for key in keys if key.startswith(prefix))
