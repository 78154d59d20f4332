"""Read and write files of vocabularies and scorers: safetensors and JSON. A sparse matrix is four tensors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy import sparse

from xmtc import files
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing, write_text, writing

Tensors = Mapping[str, NDArray[Any]]
_AGAIN = "export the model again"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")


def read_object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    """Read the object in a JSON file.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a key.
    """
    with reading(path, CheckpointError, _AGAIN):
        content = files.read_json(path)
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}; export the model again")
    return content


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    with writing(path), replacing(path) as partial:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, partial)


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read the tensors of a safetensors file.

    Raises:
        CheckpointError: the file is missing or damaged, or lacks a tensor.
    """
    with reading(path, CheckpointError, _AGAIN):
        tensors = load_file(path)
    missing = [name for name in names if name not in tensors]
    if missing:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}; export the model again")
    return tensors


def sparse_tensors(name: str, matrix: sparse.csr_array) -> dict[str, NDArray[Any]]:
    """Split a sparse matrix into tensors `name.values`, `name.columns`, `name.starts` and `name.shape`."""
    return {
        f"{name}.values": matrix.data,
        f"{name}.columns": matrix.indices,
        f"{name}.starts": matrix.indptr.astype(np.int64),
        f"{name}.shape": np.array(matrix.shape, np.int64),
    }


def sparse_names(name: str) -> tuple[str, ...]:
    """Name the tensors of a sparse matrix."""
    return tuple(f"{name}.{part}" for part in ("values", "columns", "starts", "shape"))


def to_sparse(name: str, tensors: Tensors) -> sparse.csr_array:
    """Join the tensors of `sparse_tensors` to a sparse matrix."""
    values, columns, starts, shape = (tensors[part] for part in sparse_names(name))
    return sparse.csr_array((values, columns, starts), shape=(int(shape[0]), int(shape[1])))
