"""Which columns of a table, or keys of a JSON object, make a document; and files that name labels."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from xmtc.config.base import config
from xmtc.data.readers.base import SPLITS, Document, LabelInfo, Rejected, check_characters, shown
from xmtc.data.readers.files import SplitFilesConfig, check_file, content_hash, csv_rows, json_lines
from xmtc.errors import DataError

_SPLIT_NAMES = {"validation": "dev", "valid": "dev", "val": "dev", "training": "train"} | {s: s for s in SPLITS}
_Name = Annotated[str, Field(min_length=1)]


@config
class ColumnsConfig:
    """Where in a row the parts of a document are."""

    id: _Name | None = None
    """Column with the document's identifier; without one, documents are numbered by file and row."""
    text: _Name | Annotated[tuple[_Name, ...], Field(min_length=1)] = "text"
    """Column with the text, or several that are joined, such as `[title, text]`; empty ones are left out."""
    text_joiner: str = "\n"
    """What stands between joined text columns."""
    labels: _Name = "labels"
    """Column with the labels: a list, or one string that `label_separator` splits."""
    label_separator: _Name | None = None
    """What separates labels where they are one string, such as `;`; without it the string is one label."""
    split: _Name | None = None
    """Column that says `train`, `dev` (or `validation`) or `test`; then only `train` may name files."""

    def text_columns(self) -> tuple[str, ...]:
        """Columns to join."""
        return (self.text,) if isinstance(self.text, str) else self.text

    def advice(self) -> str:
        """What to do about a column that is not there."""
        return "set source.columns"

    def names(self) -> list[str]:
        """All columns that a source must have."""
        named = (self.id, *self.text_columns(), self.labels, self.split)
        return list(dict.fromkeys(name for name in named if name is not None))

    def document(self, row: Mapping[str, Any], where: str, fallback_id: str, split: str | None) -> Document | Rejected:
        """The document in `row`, or why there is none."""
        missing = [name for name in self.names() if name not in row]
        if missing:
            return Rejected(where, f"no column {missing[0]!r}; there are: {', '.join(map(str, row))}")
        try:
            text = self._text(row)
            labels = self._labels(row[self.labels])
            split = self._split(row[self.split]) if self.split is not None else split
            doc_id = fallback_id if self.id is None or row[self.id] is None else str(row[self.id])
            check_characters(doc_id, text, *labels)
        except ValueError as problem:
            return Rejected(where, str(problem))
        return Document(doc_id, text, labels, split)

    def _text(self, row: Mapping[str, Any]) -> str:
        parts = [row[name] for name in self.text_columns() if row[name] is not None]
        wrong = [part for part in parts if not isinstance(part, str)]
        if wrong:
            raise ValueError(f"the text is a {type(wrong[0]).__name__}, not a string; name another column")
        text = self.text_joiner.join(part for part in parts if part.strip())
        if not text:
            raise ValueError(f"no text in {' or '.join(repr(name) for name in self.text_columns())}")
        return text

    def _labels(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            value = value.split(self.label_separator) if self.label_separator is not None else [value]
        elif _is_number(value):
            value = [value]
        elif value is not None and not isinstance(value, list):
            raise ValueError(f"{self.labels!r} is a {type(value).__name__}, not a list of labels or a string")
        given = [label for label in value or () if label is not None and label == label]
        wrong = [label for label in given if not isinstance(label, str) and not _is_number(label)]
        if wrong:
            raise ValueError(
                f"{self.labels!r} holds a {type(wrong[0]).__name__}, which is no label; name another column"
            )
        labels = [str(label).strip() for label in given]
        found = tuple(dict.fromkeys(label for label in labels if label))
        if not found:
            raise ValueError(f"no labels in {self.labels!r}")
        return found

    def _split(self, value: Any) -> str:
        split = _SPLIT_NAMES.get(str(value).strip().lower())
        if split is None:
            raise ValueError(f"{self.split!r} is {shown(value)}, which is not train, dev or test")
        return split


@config
class LabelFileConfig:
    """A table of labels: JSON lines, CSV, TSV or Parquet by its ending."""

    path: _Name
    """The file."""
    label: _Name = "label"
    """Column with the label as documents have it."""
    name: _Name | None = "name"
    """Column with the name for people."""
    parents: _Name | None = None
    """Column with the list of broader labels, where there is a hierarchy; a string is one label."""
    closed: bool = True
    """A row with a label that is not in this file is a bad row (`data.on_bad_row`). False: such labels are welcome."""

    def read(self) -> LabelInfo:
        """Names and parents.

        Raises:
            DataError: the file cannot be read, or lacks a column.
        """
        names: dict[str, str] = {}
        parents: dict[str, tuple[str, ...]] = {}
        for number, row in enumerate(_rows(Path(self.path)), start=1):
            missing = [column for column in (self.label, self.name, self.parents) if column and column not in row]
            if missing:
                raise DataError(f"{self.path}: no column {missing[0]!r}; there are: {', '.join(row)}")
            label = _word(row[self.label])
            if not label:
                raise DataError(f"{self.path}: no label in column {self.label!r} of row {number}")
            names[label] = _word(row[self.name] if self.name else None) or label
            given = row[self.parents] if self.parents else None
            broader = [_word(parent) for parent in (given if isinstance(given, list) else [given])]
            if any(broader):
                parents[label] = tuple(filter(None, broader))
        return LabelInfo(names, parents, self.closed)


def check_split_column(files: SplitFilesConfig, columns: ColumnsConfig) -> None:
    """Raises ValueError where both a column and file names say what the split is."""
    if columns.split is not None and (files.dev or files.test):
        raise ValueError("columns.split and files.dev/files.test both say what the split is; keep one of them")


def table_splits(files: SplitFilesConfig, columns: ColumnsConfig) -> frozenset[str]:
    """Splits that a source of rows is known to provide; a column says more when it is read."""
    return frozenset({"train"}) if columns.split is not None else files.provides()


def table_fingerprint(
    kind: str, files: SplitFilesConfig, columns: ColumnsConfig, labels: LabelFileConfig | None
) -> str:
    """Of a source of rows: settings, the split of each file, and what is in the files."""
    named = {k: v for k, v in asdict(labels).items() if k != "path"} if labels is not None else None
    settings = json.dumps([asdict(columns), named, [split for split, _ in files.by_split()]])
    paths = [path for _, path in files.by_split()] + ([Path(labels.path)] if labels is not None else [])
    return f"{kind}:{settings}:{content_hash(paths)}"


def label_file_info(labels: LabelFileConfig | None) -> LabelInfo:
    """What the label file says; nothing without one."""
    return labels.read() if labels is not None else LabelInfo()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _word(value: Any) -> str:
    """A cell as documents' labels are read: without blanks around it, empty where there is nothing."""
    return "" if value is None else str(value).strip()


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".parquet":
        try:
            yield from pq.read_table(check_file(path)).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: cannot be read as a table: {error}") from error
    elif path.name.removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".tsv")):
        yield from _csv_objects(path)
    else:
        yield from json_lines(path)


def _csv_objects(path: Path) -> Iterator[dict[str, str]]:
    """Rows as header -> cell, all of them text: a label `001` or `250.00` is no number."""
    rows = csv_rows(path)
    _, header = next(rows, (1, []))
    for line, cells in rows:
        if cells and len(cells) != len(header):
            raise DataError(f"{path}:{line}: {len(cells)} columns in place of {len(header)}")
        if cells:
            yield dict(zip(header, cells, strict=True))
