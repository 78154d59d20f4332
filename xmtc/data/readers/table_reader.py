"""Sources with a document in each row, whatever the formats of their files."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    Document,
    LabelInfo,
    Reader,
    Rejected,
)
from xmtc.data.readers.columns import ColumnsConfig, NumericColumns
from xmtc.data.readers.endings import ending_of
from xmtc.data.readers.exports import Export, recognised
from xmtc.data.readers.exports.base import ID, LABELS, REJECTED, Sample
from xmtc.data.readers.files import content_hash
from xmtc.data.readers.formats import FORMATS
from xmtc.data.readers.table import Row, TableFormat
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.data.readers.table_config import TableConfig

logger = logging.getLogger(__name__)
_TRAIN = "train"
"""The split of documents of another format, which is that of their file: a split column goes with files of train."""
_FIRST = 1000
"""Rows whose columns are looked at, or whose texts, before a wrong one is refused."""


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
            label_columns = {
                key: value for key, value in asdict(labels).items() if key != "path"
            }
        files = self._settings.files
        splits = [
            "added" if path in files.added_files() else split
            for split, path in files.by_split()
        ]
        settings = json.dumps([asdict(self._settings.columns), label_columns, splits])
        return f"{self._format.identity}:{settings}:{content_hash(self.files())}"

    @override
    def files(self) -> list[Path]:
        """List the files of the documents, and the label file if there is one.

        Raises:
            DataError: a pattern matches no file.
        """
        files: list[Path] = []
        for _, path in self._settings.files.by_split():
            files += self.format_of(path).parts(path)
        if self._settings.labels is not None:
            files.append(Path(self._settings.labels.path))
        return files

    @override
    def provides(self) -> frozenset[str]:
        """A split column says more when it is read."""
        return (
            self._settings.files.provides()
            if self._settings.columns.split is None
            else frozenset({"train"})
        )

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
        self,
        map_unordered: MapUnordered,
        progress: Progress,
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        """The rows of one file after the other."""
        columns = self._settings.columns
        nulls = 0
        empty_lists = 0
        added_files = self._settings.files.added_files()
        for split, path in self._settings.files.by_split():
            numeric = NumericColumns(columns.text_columns())
            joined: dict[tuple[str | None, str], Document] = {}
            for row in self._rows(path, longest):
                if isinstance(row, Rejected):
                    yield row
                    continue
                numeric.see(row.cells)
                numeric.check(path, least=_FIRST)  # no need to read it all
                labels = row.cells.get(columns.label_columns()[0], "")
                nulls += labels is None
                empty_lists += labels == []
                document = columns.document(
                    row.cells, row.where, f"{path.name}:{row.number}", split, longest
                )
                if isinstance(document, Document) and path in added_files:
                    document = replace(document, added=True)
                if columns.join_rows and isinstance(document, Document):
                    key = (document.doc_id if columns.id else None, document.text)
                    joined[key] = _joined(joined.get(key, document), document)
                else:
                    yield document
            numeric.check(path)
            yield from joined.values()
        if (
            nulls
            and empty_lists
            and columns.null_labels == "none"
            and isinstance(columns.labels, str)
        ):
            logger.warning(
                "%s documents have null labels beside %s with []: both are read as no label; if null means that nobody "
                "has looked, set data.source.columns.null_labels: unjudged",
                f"{nulls:,}",
                f"{empty_lists:,}",
            )

    def _rows(self, path: Path, longest: int) -> Iterator[Row | Rejected]:
        """Read a file. One of another format than the source's may call the columns `text`, `labels` and `id`."""
        format = self.format_of(path)
        if format is self._format:
            yield from format.rows(path, self._settings.columns, longest)
            return
        for row in format.rows(path, None, longest):
            yield row if isinstance(row, Rejected) else self._with_columns(row)

    def format_of(self, path: Path) -> TableFormat:
        """Return the format of a file: the source's, unless the file says another one.

        Raises:
            DataError: the file cannot be read.
        """
        by_ending = FORMATS.get(ending_of(path))
        if isinstance(self._format, Export):
            own = path.is_dir() or self._format.recognises(Sample.of(path))
        else:
            own = by_ending is None or isinstance(self._format, by_ending)
        if own:
            return self._format
        export = recognised(path)
        if export is not None:
            return export()
        return self._format if by_ending is None else by_ending()

    def _with_columns(self, row: Row) -> Row:
        """Add the columns of the source under which another format has text, labels and identifier."""
        columns = self._settings.columns
        cells: dict[str, Any] = dict(row.cells)
        first_text = columns.text_columns()[0]
        for name in columns.names():
            if name not in cells:
                cells[name] = cells.get("text") if name == first_text else None
        if LABELS in row.cells:
            _fill_labels(cells, row.cells, columns)
        if columns.id is not None and columns.id not in row.cells:
            cells[columns.id] = row.cells.get(ID)
        if columns.split is not None and columns.split not in row.cells:
            cells[columns.split] = _TRAIN
        if columns.status is not None and columns.status not in row.cells:
            cells[columns.status] = columns.accepted[0]
        return Row(cells, row.where, row.number)

    @override
    def label_info(self) -> LabelInfo:
        """What the label file says, nothing without one."""
        return (
            self._settings.labels.read()
            if self._settings.labels is not None
            else LabelInfo()
        )

    def first_columns(self) -> frozenset[str]:
        """Return the columns of the first rows, because each JSON object has its own.

        Raises:
            DataError: a file cannot be read.
        """
        rows = chain.from_iterable(
            self.format_of(path).rows(path, None)
            for _, path in self._settings.files.by_split()
        )
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
            rows = self.format_of(path).count(path)
            if rows is None:
                return None
            total += rows
        return total


def _joined(first: Document, other: Document) -> Document:
    """Give a document the labels of another row of it, too."""
    labels = dict.fromkeys((*first.labels, *other.labels))
    rejected: tuple[str, ...] | None = None
    if first.rejected_labels is not None and other.rejected_labels is not None:
        all_rejected = dict.fromkeys((*first.rejected_labels, *other.rejected_labels))
        rejected = tuple(label for label in all_rejected if label not in labels)
    return replace(first, labels=tuple(labels), rejected_labels=rejected)


def _fill_labels(
    cells: dict[str, Any], own: Mapping[str, Any], columns: ColumnsConfig
) -> None:
    """Write the list of labels of another format into the columns of the source."""
    missing = [name for name in columns.label_columns() if name not in own]
    if not missing:
        return
    if isinstance(columns.labels, str):
        cells[columns.labels] = own[LABELS]
        if columns.rejected is not None:
            cells[columns.rejected] = own.get(REJECTED)
        return
    labels = own[LABELS] or []
    if columns.label_cells != "labels":
        cells.update({name: name in labels for name in missing})
    else:
        cells[missing[0]] = labels
