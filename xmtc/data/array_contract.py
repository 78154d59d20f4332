"""What the arrays of a file must be: a table that a file is checked against before anything computes with it.

Checksums show that a file has not changed since it was written. They do not show that whoever wrote it wrote sound
arrays: an index beyond its matrix makes SciPy read memory that is not its own. So every class that is saved as arrays
says what they are, in letters for sizes, and `check_tensors` compares a file with that.

    ARRAYS = {"counts_L": Array("I64", "L", least=0), "together_LL": SparseMatrix("I32", "LL", least=1)}
    check_tensors(path, ARRAYS, Sizes({"L": 3_993}))

A letter stands for the same number wherever it occurs. The sizes of a model are given; other letters take the size that
they have first, as P in an array of pairs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from xmtc.data.checked_tensors import load_to_check
from xmtc.errors import CheckpointError
from xmtc.files import reading

FIX = "get the model from its source again, or export it again"
_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_INTEGERS = ("I32", "I64")
_DTYPES = {
    "U8": "uint8",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
"""Names of types in safetensors, and in NumPy."""


@dataclass(frozen=True)
class Array:
    """A dense array.

    Attributes:
        dtype: its type, by the name that safetensors has for it; several are separated by spaces.
        shape: a letter for each size; a digit is the size itself. Empty for a single number, which is stored as one
            element.
        least: least value that is allowed.
        below: letter of the size that values are below, for indices.
        most: greatest value that is allowed.
        complete: whether each whole number from 0 to before `below` must occur.
        ascending: whether values must not fall from one to the next.
        infinite: whether infinite values are allowed.
    """

    dtype: str
    shape: str = "1"
    least: float | None = None
    below: str | None = None
    most: float | None = None
    complete: bool = False
    ascending: bool = False
    infinite: bool = False


@dataclass(frozen=True)
class SparseMatrix:
    """A sparse matrix by rows, of four arrays: `data`, `indices`, `indptr` and `shape`.

    Attributes:
        dtype: type of its values.
        shape: letters for rows and columns.
        least: least value that is allowed.
    """

    dtype: str
    shape: str
    least: float | None = None


Arrays = Mapping[str, Array | SparseMatrix]
"""Arrays of a file, by name."""


@dataclass(frozen=True)
class Sizes:
    """What letters stand for.

    Attributes:
        numbers: size of each letter.
    """

    numbers: Mapping[str, int]
    _found: dict[str, int] = field(default_factory=dict)

    def of(self, letter: str) -> int | None:
        """Return the size that a letter stands for; None if it has not been met yet."""
        if letter.isdigit():
            return int(letter)
        return self.numbers.get(letter, self._found.get(letter))

    def meet(self, letter: str, size: int) -> bool:
        """Compare a size with its letter's; the first size of an unknown letter is right."""
        known = self.of(letter)
        if known is None:
            self._found[letter] = size
            return True
        return known == size

    def own(self) -> "Sizes":
        """Return the same sizes for another file, whose other letters stand for other numbers."""
        return Sizes(self.numbers)


def check_tensors(path: Path, arrays: Arrays, sizes: Sizes) -> None:
    """Check the arrays of a safetensors file against its table.

    Args:
        path: the file.
        arrays: what must be in it, and nothing else.
        sizes: sizes of the model; letters that the file adds are added.

    Raises:
        CheckpointError: an array is missing, is of another type or shape, or holds a value that it must not hold.
    """
    with reading(path, CheckpointError, FIX):
        tensors = load_to_check(path)
    expected = set(_stored(arrays))
    for name in sorted(expected - tensors.keys()):
        raise CheckpointError(f"{path}: lacks the array {name}; {FIX}")
    for name in sorted(tensors.keys() - expected):
        raise CheckpointError(
            f"{path}: has the array {name[:60]!r}, which no model has; {FIX}"
        )
    for name, array in arrays.items():
        if isinstance(array, SparseMatrix):
            _check_sparse(
                path,
                name,
                array,
                {part: tensors[f"{name}.{part}"] for part in _SPARSE_PARTS},
                sizes,
            )
        else:
            _check_dense(path, name, array, tensors[name], sizes)


def check_finite(path: Path) -> None:
    """Check that all arrays of a file are finite; names and shapes are those of the module that loads them.

    Raises:
        CheckpointError: one is not.
    """
    import torch  # only here: NumPy has no bfloat16, and commands that load no model should not wait for torch

    with reading(path, CheckpointError, FIX), safe_open(path, framework="pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            # A finite sum shows it at once; where the sum overflows, every value is looked at.
            if (
                not torch.isfinite(tensor.float().sum())
                and not torch.isfinite(tensor).all()
            ):
                raise CheckpointError(
                    f"{path}: {name[:60]}: holds a value that is not finite; {FIX}"
                )


def check_any_sparse(path: Path) -> None:
    """Check what a class of another package has stored: sparse matrices must be sound in themselves.

    Raises:
        CheckpointError: one is not.
    """
    with (
        reading(path, CheckpointError, FIX),
        safe_open(path, framework="numpy") as file,
    ):
        names = set(file.keys())
        for stem in sorted(
            name.removesuffix(".indptr") for name in names if name.endswith(".indptr")
        ):
            parts = {part: f"{stem}.{part}" for part in _SPARSE_PARTS}
            for stored in parts.values():
                if stored not in names:
                    raise CheckpointError(
                        f"{path}: lacks the array {stored[:60]}; {FIX}"
                    )
            tensors = {part: file.get_tensor(stored) for part, stored in parts.items()}
            dtype = next(
                (
                    name
                    for name, kind in _DTYPES.items()
                    if kind == tensors["data"].dtype.name
                ),
                "F32",
            )
            _check_sparse(
                path, stem[:60], SparseMatrix(dtype, "RC"), tensors, Sizes({})
            )


def _stored(arrays: Arrays) -> Iterator[str]:
    for name, array in arrays.items():
        if isinstance(array, SparseMatrix):
            yield from (f"{name}.{part}" for part in _SPARSE_PARTS)
        else:
            yield name


def _check_dense(
    path: Path, name: str, array: Array, tensor: NDArray[Any], sizes: Sizes
) -> None:
    place = f"{path}: {name}"
    _check_dtype(place, tensor, array.dtype)
    if tensor.ndim != len(array.shape):
        raise CheckpointError(
            f"{place}: has {tensor.ndim} dimensions, not {len(array.shape)}; {FIX}"
        )
    for letter, size in zip(array.shape, tensor.shape, strict=True):
        if not sizes.meet(letter, size):
            raise CheckpointError(
                f"{place}: has a size {size}, but {letter} is {sizes.of(letter)} in this model; {FIX}"
            )
    if not tensor.size:
        return
    if np.isnan(tensor).any() or not (array.infinite or np.isfinite(tensor).all()):
        raise CheckpointError(
            f"{place}: holds a value that is not a finite number; {FIX}"
        )
    if array.ascending and bool((tensor[1:] < tensor[:-1]).any()):
        raise CheckpointError(f"{place}: its values do not ascend; {FIX}")
    _check_range(place, tensor, array, sizes)


def _check_range(place: str, tensor: NDArray[Any], array: Array, sizes: Sizes) -> None:
    least = tensor.min().item()
    most = tensor.max().item()
    if array.least is not None and least < array.least:
        raise CheckpointError(
            f"{place}: holds {least:g}, less than {array.least:g}; {FIX}"
        )
    if array.most is not None and most > array.most:
        raise CheckpointError(
            f"{place}: holds {most:g}, more than {array.most:g}; {FIX}"
        )
    if array.below is not None:
        limit = sizes.of(array.below)
        if limit is not None and most >= limit:
            raise CheckpointError(
                f"{place}: holds {most:g}, where {array.below} is {limit}: count from 0; {FIX}"
            )
        if array.complete and len(np.unique(tensor)) != limit:
            raise CheckpointError(
                f"{place}: lacks a number from 0 to {limit}, of {array.below}; {FIX}"
            )


def _check_sparse(
    path: Path,
    name: str,
    matrix: SparseMatrix,
    parts: Mapping[str, NDArray[Any]],
    sizes: Sizes,
) -> None:
    place = f"{path}: {name}"
    data = parts["data"]
    indices = parts["indices"]
    starts = parts["indptr"]
    shape = parts["shape"]
    _check_dtype(f"{place}.data", data, matrix.dtype)
    for part in (indices, starts, shape):
        _check_dtype(place, part, " ".join(_INTEGERS))
    if any(part.ndim != 1 for part in parts.values()) or len(shape) != len(
        matrix.shape
    ):
        raise CheckpointError(
            f"{place}: its parts are not lists of numbers, or it has no two sizes; {FIX}"
        )
    for letter, size in zip(matrix.shape, shape.tolist(), strict=True):
        if size < 0 or not sizes.meet(letter, size):
            raise CheckpointError(
                f"{place}: has a size {size}, but {letter} is {sizes.of(letter)} in this model; {FIX}"
            )
    rows, columns = shape.tolist()
    if (
        len(starts) != rows + 1
        or int(starts[0]) != 0
        or bool((starts[1:] < starts[:-1]).any())
    ):
        raise CheckpointError(
            f"{place}.indptr: does not say where each of {rows} rows begins; {FIX}"
        )
    if not len(data) == len(indices) == int(starts[-1]):
        raise CheckpointError(
            f"{place}: has {len(data)} values for {int(starts[-1])} places; {FIX}"
        )
    if not all_below(indices, columns):
        raise CheckpointError(
            f"{place}.indices: an index is not from 0 to {columns - 1}; {FIX}"
        )
    if not _all_finite(data):
        raise CheckpointError(f"{place}.data: holds a value that is not finite; {FIX}")
    if matrix.least is not None and len(data) and data.min().item() < matrix.least:
        raise CheckpointError(
            f"{place}.data: holds a value less than {matrix.least:g}; {FIX}"
        )


def all_below(indices: NDArray[Any], limit: int) -> bool:
    """Whether indices are from 0 to before a limit: read without their sign, negative ones are the greatest."""
    if not len(indices):
        return True
    greatest = indices.view(f"u{indices.itemsize}").max()
    return int(greatest) < min(limit, np.iinfo(indices.dtype).max + 1)


def _all_finite(values: NDArray[Any]) -> bool:
    """Whether all values are finite. A finite sum shows it at once; where it overflows, every value is looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _check_dtype(place: str, tensor: NDArray[Any], names: str) -> None:
    if all(tensor.dtype.name != _DTYPES[name] for name in names.split()):
        raise CheckpointError(
            f"{place}: is of the type {tensor.dtype.name}, not {names.replace(' ', ' or ')}; {FIX}"
        )
