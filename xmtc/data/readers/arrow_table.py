"""Parquet files, and Arrow IPC files (streams or files) such as Hugging Face `datasets` writes with `save_to_disk`."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.cells import named
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import check_columns, check_file
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError
from xmtc.files import reading

_ROWS = 1024


Batches = Callable[[list[str]], Iterator[pa.RecordBatch]]
"""Reads some columns of a file, a batch at a time."""


class ArrowTable(TableFormat):
    """A `TableFormat`. Numbers of a `ClassLabel` column are read as the names that the file has for them."""

    identity = "arrow"
    counts_exactly = True

    @override
    def rows(self, path: Path, columns: ColumnsConfig | None) -> Iterator[Row | Rejected]:
        with self._opened(path) as (schema, batches):
            wanted = schema.names if columns is None else columns.names()
            check_columns(path, wanted, schema.names, columns.advice() if columns else "")
            if columns is not None:  # documents to label may lack categories
                wanted = [name for name in schema.names if name in (*wanted, *columns.categories)]
            names, number = class_names(schema), 0
            for batch in batches(wanted):
                for cells in _cells(path, batch, number):
                    number += 1
                    yield _row(cells, names, f"{path}: row {number}", number)

    @override
    def count(self, path: Path) -> int:
        with self._opened(path) as (_, batches):
            return sum(batch.num_rows for batch in batches([]))

    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
        with reading(path, what="cannot be read as Arrow"), pa.memory_map(str(check_file(path))) as source:
            magic = source.read(6)
            source.seek(0)
            if magic == b"ARROW1":
                file = pa.ipc.open_file(source)
                yield (
                    file.schema,
                    lambda names: (file.get_batch(i).select(names) for i in range(file.num_record_batches)),
                )
            else:
                stream = pa.ipc.open_stream(source)
                yield stream.schema, lambda names: (batch.select(names) for batch in stream)


class ParquetTable(ArrowTable):
    """The same from Parquet files."""

    identity = "parquet"

    @override
    @contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[pa.Schema, Batches]]:
        with reading(path, what="cannot be read as Parquet"), pq.ParquetFile(check_file(path)) as file:
            yield file.schema_arrow, lambda names: file.iter_batches(_ROWS, columns=names)


def _cells(path: Path, batch: pa.RecordBatch, before: int) -> list[dict[str, Any]]:
    """Yield the rows of a batch; `before` rows of the file precede it."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        rows = f"among rows {before + 1} to {before + batch.num_rows}"
        raise DataError(f"{path}: {rows}: not UTF-8 text ({error.reason}); write the file again") from None


def _row(cells: dict[str, Any], names: Mapping[str, Sequence[str]], where: str, number: int) -> Row | Rejected:
    try:
        return Row(cells | {key: named(cells[key], names[key]) for key in names.keys() & cells.keys()}, where, number)
    except ValueError as problem:
        return Rejected(where, f"a column of class numbers {problem}")


def class_names(schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Map columns to the names of their numbers, if `datasets` has left them in a schema."""
    features: Any = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    for key in ("info", "features"):
        features = features.get(key, {}) if isinstance(features, Mapping) else {}
    found = {name: _class_label(feature) for name, feature in features.items()}
    return {name: names for name, names in found.items() if names}


def _class_label(feature: Any) -> Sequence[str] | None:
    """Return the names of a ClassLabel, or of a list of them."""
    if isinstance(feature, list):
        feature = feature[0] if feature else {}
    if not isinstance(feature, Mapping):
        return None
    if feature.get("_type") == "ClassLabel":
        return feature.get("names")
    return _class_label(feature.get("feature"))
