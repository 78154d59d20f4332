"""Read and write files of vocabularies and scorers: safetensors and JSON. A sparse matrix is four tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy import sparse

from xmtc import files
from xmtc.data.checked_tensors import load_once
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing_file, writing

Tensors = Mapping[str, NDArray[Any]]
_AGAIN = "export the model again"
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
        contiguous = {
            name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()
        }
        save_file(contiguous, partial)


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the tensors of a safetensors file.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a tensor.
    """
    with reading(path, CheckpointError, _AGAIN):
        tensors = load_once(path)
    _check_names(path, tensors, names)
    return tensors


def _check_names(path: Path, content: Mapping[str, Any], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in content]
    if missing:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}; {_AGAIN}")


def write_fields(path: Path, owner: Any) -> None:
    """Write the arrays, sparse matrices and integers of a dataclass under the names of its fields.

    Raises:
        StorageError: the file cannot be written.
    """
    tensors: dict[str, NDArray[Any]] = {}
    for field in fields(owner):
        name = field.name
        value = getattr(owner, name)
        if sparse.issparse(value):
            tensors[f"{name}.data"] = value.data
            tensors[f"{name}.indices"] = value.indices
            tensors[f"{name}.indptr"] = value.indptr.astype(np.int64)
            tensors[f"{name}.shape"] = np.array(value.shape)
        elif isinstance(value, np.ndarray | int):
            tensors[name] = np.asarray(value)
    write_tensors(path, tensors)


def read_fields(path: Path, kind: type[T], **others: Any) -> T:
    """Make a dataclass of what `write_fields` has written, and of its other fields.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a field.
    """
    int_fields = {field.name for field in fields(kind) if field.type is int}  # pyright: ignore[reportArgumentType]
    values: dict[str, Any] = {}
    with reading(path, CheckpointError, _AGAIN):
        tensors = load_once(path)
        for name in {tensor_name.partition(".")[0] for tensor_name in tensors}:
            if name in int_fields:
                values[name] = int(tensors[name][0])
            elif name in tensors:
                values[name] = tensors[name]
            else:
                parts = (
                    tensors[f"{name}.data"],
                    tensors[f"{name}.indices"],
                    tensors[f"{name}.indptr"],
                )
                values[name] = sparse.csr_array(
                    parts, shape=tensors[f"{name}.shape"].tolist()
                )
        return kind(**values, **others)
