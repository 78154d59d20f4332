"""CSV and TSV files with a header line; plain, .gz or .zst."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

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
from xmtc.data.readers.files import SplitFilesConfig, csv_rows
from xmtc.errors import DataError


@config
class CsvConfig:
    """CSV or TSV files with a header line, one document a row; plain, .gz or .zst."""

    kind: Literal["csv"] = "csv"
    files: SplitFilesConfig
    """Files by split."""
    columns: ColumnsConfig = ColumnsConfig()
    """Columns of the table; the labels are one string, so `columns.label_separator` is usually due."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """What separates the columns; null: a tab in files named .tsv, a comma in others."""
    labels: LabelFileConfig | None = None
    """File with the labels' names."""

    def __post_init__(self) -> None:
        check_split_column(self.files, self.columns)

    def fingerprint(self) -> str:
        """As of Reader."""
        return table_fingerprint(f"csv:{self.delimiter!r}", self.files, self.columns, self.labels)

    def provides(self) -> frozenset[str]:
        """As of Reader."""
        return table_splits(self.files, self.columns)

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """As of Reader."""
        for split, path in self.files.by_split():
            yield from self._file(path, split)

    def _file(self, path: Path, split: str) -> Iterator[Document | Rejected]:
        rows = csv_rows(path, self.delimiter)
        _, header = next(rows, (1, []))
        self._check_header(path, header)
        for number, (line, cells) in enumerate(rows, start=1):
            if cells:
                yield self._document(header, cells, f"{path}:{line}", f"{path.name}:{number}", split)

    def _check_header(self, path: Path, header: list[str]) -> None:
        missing = [name for name in self.columns.names() if name not in header]
        if missing:
            there = ", ".join(header)
            raise DataError(
                f"{path}:1: no column {missing[0]!r} in the header; there are: {there}; {self.columns.advice()}"
            )
        repeated = [name for name in self.columns.names() if header.count(name) > 1]
        if repeated:
            raise DataError(f"{path}:1: {header.count(repeated[0])} columns are called {repeated[0]!r}; rename one")

    def _document(
        self, header: list[str], cells: list[str], where: str, fallback_id: str, split: str
    ) -> Document | Rejected:
        if len(cells) != len(header):
            return Rejected(where, f"{len(cells)} columns in place of {len(header)}; a quote or delimiter is amiss")
        return self.columns.document(dict(zip(header, cells, strict=True)), where, fallback_id, split)

    def label_info(self) -> LabelInfo:
        """As of Reader."""
        return label_file_info(self.labels)
