"""Parquet files, read batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import check_file, missing_column
from xmtc.data.readers.table import Row, RowCount, TableFormat
from xmtc.errors import DataError
from xmtc.files import reading

_ROWS = 1024


class ParquetTable(TableFormat):
    """A `TableFormat`."""

    identity = "parquet"

    @override
    def rows(self, path: Path, columns: ColumnsConfig | None) -> Iterator[Row | Rejected]:
        with _opened(path) as file:
            there = file.schema_arrow.names
            missing = [name for name in columns.names() if name not in there] if columns is not None else []
            if columns is not None and missing:
                raise missing_column(path, missing[0], there, columns.advice())
            done = 0
            for batch in file.iter_batches(_ROWS, columns=None if columns is None else columns.names()):
                for number, cells in enumerate(_cells(path, batch, done), start=done + 1):
                    yield Row(cells, f"{path}: row {number}", number)
                done += batch.num_rows

    @override
    def count(self, path: Path) -> RowCount:
        """What the file's footer says."""
        with _opened(path) as file:
            return RowCount(file.metadata.num_rows, exact=True)


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    with reading(path, what="cannot be read as Parquet"), pq.ParquetFile(check_file(path)) as file:
        yield file


def _cells(path: Path, batch: pa.RecordBatch, before: int) -> list[dict[str, object]]:
    """Yield the rows of a batch; `before` rows of the file precede it."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError as error:
        rows = f"among rows {before + 1} to {before + batch.num_rows}"
        raise DataError(f"{path}: {rows}: not UTF-8 text ({error.reason}); write the file again") from None
