"""Parquet files, and Arrow IPC files (streams or files) such as Hugging Face `datasets` writes with `save_to_disk`."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.cells import named
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import check_columns, check_file
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError
from xmtc.files import reading

logger = logging.getLogger(__name__)

_ROWS = 1024
"""Rows of a batch of a Parquet file."""
_PART_BYTES = 64 << 20
"""Bytes of strings that are converted to Python's at once."""
_FILE_MAGIC = b"ARROW1"
"""How an Arrow file begins; a stream begins with its first message."""

Batches = Callable[[list[str]], Iterator[pa.RecordBatch]]
"""Reads some columns of a file, a batch at a time."""


class ArrowTable(TableFormat):
    """A `TableFormat`. Numbers of a `ClassLabel` column are read as the names that the file has for them."""

    identity = "arrow"
    counts_exactly = True

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        with self._opened(path) as (schema, batches):
            names = _columns_to_read(path, schema, columns)
            names_of_classes = class_names(schema)
            values = _Values(path, needed=columns is not None)
            number = 0
            for batch in batches(names):
                for part in _parts(batch, longest_row(longest)):
                    if part is None:
                        number += 1
                        yield row_too_long(f"{path}: row {number}", longest)
                        continue
                    for cells in values.rows(part, number):
                        number += 1
                        yield _row(
                            cells, names_of_classes, f"{path}: row {number}", number
                        )

    @override
    def count(self, path: Path) -> int | None:
        with self._opened(path) as (_, batches):
            return sum(batch.num_rows for batch in batches([]))

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
        with (
            reading(path, what="cannot be read as Arrow"),
            pa.memory_map(str(check_file(path))) as source,
        ):
            is_file = source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
            source.seek(0)
            if is_file:
                file = pa.ipc.open_file(source)
                yield file.schema, lambda names: _batches_of_file(file, names)
            else:
                stream = pa.ipc.open_stream(source)
                yield (
                    stream.schema,
                    lambda names: (batch.select(names) for batch in stream),
                )


class ParquetTable(ArrowTable):
    """The same from Parquet files."""

    identity = "parquet"

    @override
    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
        """Strings that the file has in a dictionary stay there: a few bytes may stand for millions of long texts."""
        with reading(path, what="cannot be read as Parquet"):
            schema = pq.read_schema(check_file(path))
            strings = [field.name for field in schema if _is_string(field.type)]
            with pq.ParquetFile(path, read_dictionary=strings) as file:
                yield schema, lambda names: file.iter_batches(_ROWS, columns=names)

    @override
    def count(self, path: Path) -> int | None:
        with reading(path, what="cannot be read as Parquet"):
            return pq.read_metadata(check_file(path)).num_rows


def _batches_of_file(
    file: "pa.ipc.RecordBatchFileReader", names: list[str]
) -> Iterator[pa.RecordBatch]:
    for place in range(file.num_record_batches):
        yield file.get_batch(place).select(names)


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _parts(batch: pa.RecordBatch, longest: int) -> Iterator[pa.RecordBatch | None]:
    """Divide a batch so that the strings of a part have at most some 64 MiB; None for a row longer than `longest`."""
    start = 0
    part_bytes = 0
    for row, row_bytes in enumerate(_string_bytes(batch).tolist()):
        is_too_long = row_bytes > longest
        if row > start and (is_too_long or part_bytes + row_bytes > _PART_BYTES):
            yield batch.slice(start, row - start)
            start = row
            part_bytes = 0
        if is_too_long:
            yield None
            start = row + 1
        else:
            part_bytes += row_bytes
    if start < batch.num_rows:
        yield batch.slice(start)


def _lengths(strings: pa.Array) -> Any:
    return pc.call_function(
        "binary_length", [strings]
    )  # pyarrow makes the functions of `pc` when it is imported


def _string_bytes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return how many bytes the strings of each row have, (rows,), without copying one."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and _is_string(column.type.value_type):
            lengths = _lengths(column.dictionary).take(column.indices)
        elif _is_string(column.type):
            lengths = _lengths(column)
        else:
            continue
        sizes += np.asarray(
            lengths.fill_null(0).to_numpy(zero_copy_only=False), np.int64
        )
    return sizes


def _columns_to_read(
    path: Path, schema: pa.Schema, columns: ColumnsConfig | None
) -> list[str]:
    """List the columns to read, in the order of the file.

    Raises:
        DataError: a column is missing.
    """
    if columns is None:
        check_columns(path, schema.names, schema.names, "")
        return schema.names
    needed = columns.names()
    check_columns(path, needed, schema.names, columns.advice())
    readable = {*needed, *columns.categories, columns.rejected}  # which files may lack
    return [name for name in schema.names if name in readable]


class _Values:
    """Converts the batches of a file to rows.

    Args:
        path: the file.
        needed: whether all columns are; others are left out with a warning if they cannot be converted.
    """

    def __init__(self, path: Path, *, needed: bool) -> None:
        self._path = path
        self._needed = needed
        self._left_out: set[str] = set()

    def rows(self, batch: pa.RecordBatch, before: int) -> list[dict[str, Any]]:
        """Convert a batch to rows; `before` rows of the file precede it.

        Raises:
            DataError: a column that is needed has bytes that are no text, or nested values that Python cannot
                represent.
        """
        values_by_column: dict[str, list[Any]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self._left_out:
                continue
            try:
                values_by_column[name] = _values(column)
            except (OverflowError, ValueError, pa.ArrowException) as error:
                rows = f"among rows {before + 1} to {before + batch.num_rows}"
                self._leave_out(name, f"{rows}: column {name!r} {_why(column, error)}")
        return [
            {name: values[row] for name, values in values_by_column.items()}
            for row in range(batch.num_rows)
        ]

    def _leave_out(self, name: str, problem: str) -> None:
        if self._needed:
            raise DataError(
                f"{self._path}: {problem}; write the file again with text in this column"
            ) from None
        logger.warning("%s: %s; it is left out", self._path, problem)
        self._left_out.add(name)


def _why(column: pa.Array, error: Exception) -> str:
    """Say why a column cannot be converted."""
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text ({error.reason})"
    return f"({column.type}) cannot be read ({error})"


def _values(column: pa.Array) -> list[Any]:
    """Convert a column to Python's values; dates that Python lacks, such as those after the year 9999, to text."""
    try:
        return column.to_pylist()
    except OverflowError:
        return pc.cast(column, pa.string()).to_pylist()


def _row(
    cells: dict[str, Any],
    names_of_classes: Mapping[str, Sequence[str]],
    where: str,
    number: int,
) -> Row | Rejected:
    """Make a row, with the names of classes instead of their numbers."""
    try:
        for column in names_of_classes.keys() & cells.keys():
            cells[column] = named(cells[column], names_of_classes[column])
    except ValueError as problem:
        return Rejected(where, f"a column of class numbers {problem}")
    return Row(cells, where, number)


def class_names(schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Map columns to the names of their numbers, if `datasets` has left them in a schema."""
    metadata: Any = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = _section(_section(metadata, "info"), "features")
    names_by_column: dict[str, Sequence[str]] = {}
    for column, feature in features.items():
        names = _class_label(feature)
        if names:
            names_by_column[column] = names
    return names_by_column


def _section(metadata: Any, key: str) -> Mapping[str, Any]:
    """Return a section of what `datasets` wrote; an empty one if it is something else."""
    section = metadata.get(key) if isinstance(metadata, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _class_label(feature: Any) -> Sequence[str] | None:
    """Return the names of a ClassLabel, or of a list of them."""
    if isinstance(feature, list):
        feature = feature[0] if feature else {}
    if not isinstance(feature, Mapping):
        return None
    if feature.get("_type") == "ClassLabel":
        return feature.get("names")
    return _class_label(feature.get("feature"))
