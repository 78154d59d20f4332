"""Read and write files of vocabularies and scorers: safetensors and JSON. A sparse matrix is four tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from xmtc import files
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing_file, writing

Tensors = Mapping[str, NDArray[Any]]
_AGAIN = "export the model again"
_PARTS = ("data", "indices", "indptr")
"""Arrays of a sparse matrix."""
T = TypeVar("T")


def read_object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read the object in a JSON file.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a key.
    """
    with reading(path, CheckpointError, _AGAIN):
        content = files.read_json(path)
    _check_names(path, content if isinstance(content, dict) else {}, keys)
    return content


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    with writing(path), replacing_file(path) as partial:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, partial)


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the tensors of a safetensors file.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a tensor.
    """
    with reading(path, CheckpointError, _AGAIN):
        tensors = load_file(path)
    _check_names(path, tensors, names)
    return tensors


def _check_names(path: Path, found: Mapping[str, Any], names: Sequence[str]) -> None:
    if missing := [name for name in names if name not in found]:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}; {_AGAIN}")


def write_fields(path: Path, owner: Any) -> None:
    """Write the arrays, sparse matrices and integers of a dataclass under the names of its fields.

    Raises:
        StorageError: the file cannot be written.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for name, value in ((one.name, getattr(owner, one.name)) for one in fields(owner)):
        if sparse.issparse(value):
            tensors |= {f"{name}.{part}": getattr(value, part) for part in _PARTS}
            tensors |= {f"{name}.indptr": value.indptr.astype(np.int64), f"{name}.shape": np.array(value.shape)}
        elif isinstance(value, np.ndarray | int):
            tensors[name] = np.asarray(value)
    write_tensors(path, tensors)


def read_fields(path: Path, kind: type[T], **others: Any) -> T:
    """Make a dataclass of what `write_fields` has written, and of its other fields.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a field.
    """
    numbers = {one.name for one in fields(kind) if one.type is int}  # pyright: ignore[reportArgumentType]
    with reading(path, CheckpointError, _AGAIN):
        tensors = load_file(path)
        for name in {name.partition(".")[0] for name in tensors}:
            if name in tensors:
                others[name] = int(tensors[name][0]) if name in numbers else tensors[name]
                continue
            shape = tensors[f"{name}.shape"].tolist()
            others[name] = sparse.csr_array(tuple(tensors[f"{name}.{part}"] for part in _PARTS), shape=shape)
        return kind(**others)
