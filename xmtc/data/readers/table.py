"""Sources with a document in each row: what is common to all formats, and what a format has to say."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import LONGEST_DOCUMENT, Document, LabelInfo, Reader, Rejected
from xmtc.data.readers.columns import ColumnsConfig, NumericColumns
from xmtc.data.readers.files import content_hash
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.data.readers.table_config import TableConfig

_FIRST = 1000
"""Rows whose columns are looked at, or whose texts, before a wrong one is refused."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        cells: column -> value.
        where: file and line or row, for messages.
        number: number of the row in its file, which names documents that have no identifier.
    """

    cells: Mapping[str, Any]
    where: str
    number: int


class TableFormat(Protocol):
    """Reads the rows of one format of files.

    Attributes:
        identity: identity of the format and its settings; part of the source's fingerprint.
        counts_exactly: whether `count` does not estimate.
    """

    identity: str
    counts_exactly: bool = False

    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Yield the rows of a file.

        Args:
            path: the file.
            columns: the columns that it must have; None reads all there are.
            longest: see `Reader.read`. A row that is longer than `longest_row` is refused before its text is copied.

        Raises:
            DataError: the file cannot be read, or a column is missing.
        """
        ...

    def count(self, path: Path) -> int | None:
        """Count the rows of a file, or estimate them; None if that would take about as long as reading them.

        Raises:
            DataError: the file cannot be read.
        """
        ...


class TableReader(Reader):
    """A source of rows; a `Reader`.

    Args:
        settings: files, columns and label file.
        format: how the files are read.
    """

    def __init__(self, settings: "TableConfig", format: TableFormat) -> None:
        self._settings = settings
        self._format = format

    @override
    def fingerprint(self) -> str:
        """Settings, the split of each file, and what is in the files."""
        labels = self._settings.labels
        label_columns = None
        if labels is not None:
            label_columns = {key: value for key, value in asdict(labels).items() if key != "path"}
        splits = [split for split, _ in self._settings.files.by_split()]
        settings = json.dumps([asdict(self._settings.columns), label_columns, splits])
        return f"{self._format.identity}:{settings}:{content_hash(self.files())}"

    @override
    def files(self) -> list[Path]:
        """List the files of the documents, and the label file if there is one.

        Raises:
            DataError: a pattern matches no file.
        """
        files = [path for _, path in self._settings.files.by_split()]
        if self._settings.labels is not None:
            files.append(Path(self._settings.labels.path))
        return files

    @override
    def provides(self) -> frozenset[str]:
        """A split column says more when it is read."""
        return self._settings.files.provides() if self._settings.columns.split is None else frozenset({"train"})

    @override
    def fields(self) -> tuple[str, ...]:
        """The text columns."""
        return self._settings.columns.fields()

    @override
    def categories(self) -> tuple[str, ...]:
        """The columns of categories."""
        return self._settings.columns.categories

    @override
    def read(
        self, map_unordered: MapUnordered, progress: Progress, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Document | Rejected]:
        """The rows of one file after the other."""
        columns = self._settings.columns
        for split, path in self._settings.files.by_split():
            numeric = NumericColumns(columns.text_columns())
            for row in self._format.rows(path, columns, longest):
                if isinstance(row, Rejected):
                    yield row
                else:
                    numeric.see(row.cells)
                    numeric.check(path, least=_FIRST)  # no need to read it all
                    fallback_id = f"{path.name}:{row.number}"
                    yield columns.document(row.cells, row.where, fallback_id, split, longest)
            numeric.check(path)

    @override
    def label_info(self) -> LabelInfo:
        """What the label file says, nothing without one."""
        return self._settings.labels.read() if self._settings.labels is not None else LabelInfo()

    def first_columns(self) -> frozenset[str]:
        """Return the columns of the first rows, because each JSON object has its own.

        Raises:
            DataError: a file cannot be read.
        """
        rows = chain.from_iterable(self._format.rows(path, None) for _, path in self._settings.files.by_split())
        names: set[str] = set()
        for row in islice(rows, _FIRST):
            if isinstance(row, Row):
                names.update(row.cells)
        return frozenset(names)

    @property
    def counts_exactly(self) -> bool:
        """Whether `count` does not estimate."""
        return self._format.counts_exactly

    @override
    def count(self) -> int | None:
        """The rows of all files."""
        total = 0
        for _, path in self._settings.files.by_split():
            rows = self._format.count(path)
            if rows is None:
                return None
            total += rows
        return total
