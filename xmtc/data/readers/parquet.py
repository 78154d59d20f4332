"""Parquet files, read batch by batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.config.base import config
from xmtc.data.parallel import MapUnordered
from xmtc.data.progress import Progress
from xmtc.data.readers.base import Document, LabelInfo, Rejected
from xmtc.data.readers.columns import (
    ColumnsConfig,
    LabelFileConfig,
    check_split_column,
    label_file_info,
    table_fingerprint,
    table_splits,
)
from xmtc.data.readers.files import SplitFilesConfig, check_file
from xmtc.errors import DataError

_ROWS = 1024


@config
class ParquetConfig:
    """Parquet files, one document a row."""

    kind: Literal["parquet"] = "parquet"
    files: SplitFilesConfig
    """Files by split."""
    columns: ColumnsConfig = ColumnsConfig()
    """Columns of the table."""
    labels: LabelFileConfig | None = None
    """File with the labels' names."""

    def __post_init__(self) -> None:
        check_split_column(self.files, self.columns)

    def fingerprint(self) -> str:
        """As of Reader."""
        return table_fingerprint("parquet", self.files, self.columns, self.labels)

    def provides(self) -> frozenset[str]:
        """As of Reader."""
        return table_splits(self.files, self.columns)

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """As of Reader."""
        for split, path in self.files.by_split():
            try:
                yield from self._file(path, split)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{path}: cannot be read as Parquet: {error}") from error

    def _file(self, path: Path, split: str) -> Iterator[Document | Rejected]:
        with pq.ParquetFile(check_file(path)) as file:
            missing = [name for name in self.columns.names() if name not in file.schema_arrow.names]
            if missing:
                there = ", ".join(file.schema_arrow.names)
                raise DataError(f"{path}: no column {missing[0]!r}; there are: {there}; {self.columns.advice()}")
            number = 0
            for batch in file.iter_batches(_ROWS, columns=self.columns.names()):
                try:
                    rows = batch.to_pylist()
                except UnicodeDecodeError as error:
                    there = f"{path}: among rows {number + 1} to {number + batch.num_rows}"
                    raise DataError(f"{there}: not UTF-8 text ({error.reason}); write the file again") from None
                for row in rows:
                    number += 1
                    yield self.columns.document(row, f"{path}: row {number}", f"{path.name}:{number}", split)

    def label_info(self) -> LabelInfo:
        """As of Reader."""
        return label_file_info(self.labels)
