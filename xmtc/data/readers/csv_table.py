"""CSV and TSV files with a header line; plain, .gz or .zst."""

import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
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
    label_file_paths,
    table_splits,
)
from xmtc.data.readers.files import SplitFilesConfig, content_hash, open_text
from xmtc.errors import DataError

_LONGEST_FIELD = 1 << 30


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
        settings = json.dumps([asdict(self.columns), self.delimiter, sorted(self.provides())])
        paths = [path for _, path in self.files.by_split()] + label_file_paths(self.labels)
        return f"csv:{settings}:{content_hash(paths)}"

    def provides(self) -> frozenset[str]:
        """As of Reader."""
        return table_splits(self.files, self.columns)

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """As of Reader."""
        for split, path in self.files.by_split():
            yield from self._file(path, split)

    def _file(self, path: Path, split: str) -> Iterator[Document | Rejected]:
        csv.field_size_limit(_LONGEST_FIELD)
        delimiter = self.delimiter or ("\t" if ".tsv" in path.suffixes else ",")
        with open_text(path) as lines:
            rows = csv.reader(lines, delimiter=delimiter, strict=True)
            try:
                header = next(rows, [])
                self._check_header(path, header)
                for number, cells in enumerate(rows, start=1):
                    if cells:
                        where = f"{path}:{rows.line_num}"
                        yield self._document(header, cells, where, f"{path.name}:{number}", split)
            except csv.Error as error:
                raise DataError(f"{path}:{rows.line_num}: malformed CSV: {error}") from None

    def _check_header(self, path: Path, header: list[str]) -> None:
        missing = [name for name in self.columns.names() if name not in header]
        if missing:
            there = ", ".join(header)
            raise DataError(
                f"{path}:1: no column {missing[0]!r} in the header; there are: {there}; {self.columns.advice()}"
            )

    def _document(
        self, header: list[str], cells: list[str], where: str, fallback_id: str, split: str
    ) -> Document | Rejected:
        if len(cells) != len(header):
            return Rejected(where, f"{len(cells)} columns in place of {len(header)}; a quote or delimiter is amiss")
        return self.columns.document(dict(zip(header, cells, strict=True)), where, fallback_id, split)

    def label_info(self) -> LabelInfo:
        """As of Reader."""
        return label_file_info(self.labels)
