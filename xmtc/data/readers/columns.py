"""Which columns of a table, or keys of a JSON object, make a document; and files that name labels."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pydantic import Field

from xmtc.config.base import config
from xmtc.data.readers.base import SPLITS, Document, LabelInfo, Rejected
from xmtc.data.readers.files import SplitFilesConfig, check_file, json_lines
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
    label_separator: str | None = None
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
        except ValueError as problem:
            return Rejected(where, str(problem))
        doc_id = fallback_id if self.id is None or row[self.id] is None else str(row[self.id])
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
        elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            value = [value]
        elif value is not None and not isinstance(value, list):
            raise ValueError(f"{self.labels!r} is a {type(value).__name__}, not a list of labels or a string")
        labels = [str(label).strip() for label in value or () if label is not None]
        found = tuple(dict.fromkeys(label for label in labels if label))
        if not found:
            raise ValueError(f"no labels in {self.labels!r}")
        return found

    def _split(self, value: Any) -> str:
        split = _SPLIT_NAMES.get(str(value).strip().lower())
        if split is None:
            raise ValueError(f"{self.split!r} is {value!r}, which is not train, dev or test")
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
    """Column with the list of broader labels, where there is a hierarchy."""
    closed: bool = True
    """A row with a label that is not in this file is a bad row (`data.on_bad_row`). False: such labels are welcome."""

    def read(self) -> LabelInfo:
        """Names and parents.

        Raises:
            DataError: the file cannot be read, or lacks a column.
        """
        names: dict[str, str] = {}
        parents: dict[str, tuple[str, ...]] = {}
        for row in _rows(Path(self.path)):
            missing = [column for column in (self.label, self.name, self.parents) if column and column not in row]
            if missing:
                raise DataError(f"{self.path}: no column {missing[0]!r}; there are: {', '.join(row)}")
            label = str(row[self.label])
            names[label] = str((row[self.name] if self.name else None) or label)
            if self.parents and row[self.parents]:
                parents[label] = tuple(str(parent) for parent in row[self.parents])
        return LabelInfo(names, parents, self.closed)


def check_split_column(files: SplitFilesConfig, columns: ColumnsConfig) -> None:
    """Raises ValueError where both a column and file names say what the split is."""
    if columns.split is not None and (files.dev or files.test):
        raise ValueError("columns.split and files.dev/files.test both say what the split is; keep one of them")


def table_splits(files: SplitFilesConfig, columns: ColumnsConfig) -> frozenset[str]:
    """Splits that a source of rows provides."""
    return frozenset(SPLITS) if columns.split is not None else files.provides()


def label_file_info(labels: LabelFileConfig | None) -> LabelInfo:
    """What the label file says; nothing without one."""
    return labels.read() if labels is not None else LabelInfo()


def label_file_paths(labels: LabelFileConfig | None) -> list[Path]:
    """The label file, if any, as part of a fingerprint."""
    return [Path(labels.path)] if labels is not None else []


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    check_file(path)
    try:
        if path.suffix == ".parquet":
            yield from pq.read_table(path).to_pylist()
        elif path.name.removesuffix(".gz").removesuffix(".zst").endswith((".csv", ".tsv")):
            tab = "\t" if ".tsv" in path.suffixes else ","
            parsing = pa_csv.ParseOptions(delimiter=tab, newlines_in_values=True)
            yield from pa_csv.read_csv(path, parse_options=parsing).to_pylist()
        else:
            yield from json_lines(path)
    except pa.ArrowException as error:
        raise DataError(f"{path}: cannot be read as a table: {error}") from error
