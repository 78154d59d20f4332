"""Which columns of a table, or keys of a JSON object, make a document."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from xmtc.config.base import config
from xmtc.data.fields import FieldText, categories_of, field_parts
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    SPLITS,
    Document,
    Rejected,
    check_characters,
    check_length,
    no_column,
    quoted_cell,
)
from xmtc.data.readers.cells import absent, labels_of, mark_of, text_of, word_of
from xmtc.errors import DataError

SPLIT_NAMES = {"validation": "dev", "valid": "dev", "val": "dev", "training": "train"} | {s: s for s in SPLITS}
"""What a split column may say -> the split."""
Name = Annotated[str, Field(min_length=1)]
"""Text that is not empty: a column, a path."""
_WHOLE = re.compile(r"(=-?\d+)\.0$")
T = TypeVar("T")
NUMERIC = re.compile(r"\s*[-+$€£]?\d[\d.,:/-]*(?:[eE][-+]?\d+|[T ]\d+:[\d:.+-]*Z?)?\s*%?")
"""One number or date; a text may consist of several."""


@config
class DocumentColumns:
    """Where the documents that a model was trained on have their id and text; files to label have the same columns."""

    id: Name | None = None
    """Column with the identifier."""
    text: Annotated[tuple[Name, ...], Field(min_length=1)] = ("text",)
    """Columns with the fields, in their order."""
    categories: tuple[Name, ...] = ()
    """Columns with categories."""

    def cells(self, text: str) -> dict[str, str | list[str]]:
        """Write a document as cells of these columns; a text of one field without categories is the column `text`."""
        if len(self.text) == 1 and not self.categories:
            return {"text": text}
        parts = [part.removesuffix("\n") for part in field_parts(text, len(self.text))]
        values = [term.split("=", 1) for term in categories_of(text)]
        known = {name: [value for key, value in values if key == name] for name in self.categories}
        return dict(zip(self.text, parts, strict=True)) | known


@config
class ColumnsConfig:
    """Where in a row the parts of a document are."""

    id: Name | None = None
    """Column with the document's identifier; without one, documents are numbered by file and row."""
    text: Name | Annotated[tuple[Name, ...] | dict[Name, Name], Field(min_length=1)] = "text"
    """Column with the text, or columns of its fields: `[title, text]`, or `{title: dc_title, body: abstract}` with
    other names."""
    categories: tuple[Name, ...] = ()
    """Columns with categories, such as `[type, language]`. A value is a feature as a whole; encoders read it first."""
    labels: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = "labels"
    """Column with the labels: a list, or one string that `label_separator` splits; empty where no label fits. Or
    columns of 0 and 1."""
    label_separator: Name | None = None
    """Separator of the labels in a string, such as `;`; without it, the string is one label."""
    split: Name | None = None
    """Column with `train`, `dev` (or `validation`) or `test`. Then only `files.train` may name files."""

    def __post_init__(self) -> None:
        for named in (self.text_columns() + self.categories, self.fields() + self.categories):
            if len(set(named)) < len(named):
                raise ValueError("text and categories name a column or field twice; name each once")
        if not isinstance(self.labels, str) and self.label_separator is not None:
            raise ValueError("label_separator: several columns of 0 and 1 have no separator; leave it out")
        if wrong := [name for name in self.categories if "=" in name]:
            raise ValueError(f"categories: {wrong[0]!r}: the name of a category has no '='; rename the column")

    def text_columns(self) -> tuple[str, ...]:
        """Return the columns of the fields."""
        if isinstance(self.text, str):
            return (self.text,)
        return self.text if isinstance(self.text, tuple) else tuple(self.text.values())

    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(self.text) if isinstance(self.text, dict) else self.text_columns()

    def of_documents(self) -> DocumentColumns:
        """Return the columns that documents without known labels need."""
        return DocumentColumns(id=self.id, text=self.text_columns(), categories=self.categories)

    def advice(self) -> str:
        """Say how to fix a missing column."""
        return "set source.columns"

    def names(self) -> list[str]:
        """List all columns that a source must have."""
        labels = (self.labels,) if isinstance(self.labels, str) else self.labels
        named = (self.id, *self.text_columns(), *self.categories, *labels, self.split)
        return list(dict.fromkeys(name for name in named if name is not None))

    def document(
        self,
        row: Mapping[str, Any],
        where: str,
        fallback_id: str,
        split: str | None,
        longest: int = LONGEST_DOCUMENT,
    ) -> Document | Rejected:
        """Convert `row` to a document, or say why it is none.

        Args:
            row: cells by column.
            where: place of the row, for messages.
            fallback_id: identifier of a document that has none of its own.
            split: split of the file.
            longest: see `Reader.read`.
        """
        missing = [name for name in self.names() if name not in row]
        if missing:
            return Rejected(where, no_column(missing[0], row))
        try:
            text = self._text(row)
            check_length(text, longest)
            labels, absences = self._labels(row)
            split = self._split(row[self.split]) if self.split is not None else split
            doc_id = (None if self.id is None else _read(word_of, self.id, row)) or fallback_id
            check_characters(doc_id, text, *labels, *text.categories)
        except ValueError as problem:
            return Rejected(where, str(problem))
        return Document(doc_id, text, labels, split, absences)

    def _text(self, row: Mapping[str, Any]) -> FieldText:
        parts = [_read(text_of, name, row) or "" for name in self.text_columns()]
        text = FieldText.join(parts, category_terms(row, self.categories))
        if not text:
            raise ValueError(f"no text in {' or '.join(repr(name) for name in self.text_columns())}")
        return text

    def _labels(self, row: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
        if isinstance(self.labels, str):
            return _read(partial(labels_of, separator=self.label_separator), self.labels, row)
        marks = {name: _read(mark_of, name, row) for name in self.labels}
        return labels_of([name for name, mark in marks.items() if mark])[0], sum(one is None for one in marks.values())

    def _split(self, value: Any) -> str:
        split = SPLIT_NAMES.get((word_of(value) or "").strip().lower())
        if split is None:
            raise ValueError(f"{self.split!r} is {quoted_cell(value)}, which is not train, dev or test")
        return split


class NumericColumns:
    """Finds text columns of a file that hold only numbers or dates.

    Args:
        names: the text columns.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._seen = dict.fromkeys(names, 0)

    def see(self, row: Mapping[str, Any]) -> None:
        """Look at a row."""
        for name in [name for name in self._seen if not absent(row.get(name))]:
            if NUMERIC.fullmatch(str(row[name])):
                self._seen[name] += 1
            else:
                del self._seen[name]

    def check(self, path: Path, least: int = 20) -> None:
        """Raise DataError if a column has so many cells, and they are all numbers or dates."""
        for name, cells in self._seen.items():
            if cells >= least:
                raise DataError(f"{path}: column {name!r} holds only numbers or dates, no text: leave it out")


def category_terms(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Write the values of categories as terms, such as `type=Directive`. A category may be missing.

    `12.0` is 12: pandas writes it to CSV where another row has none.

    Raises:
        ValueError: a cell holds no values; see `labels_of`.
    """
    there = [name for name in names if name in row]
    return [_WHOLE.sub(r"\1", f"{name}={value}") for name in there for value in _read(labels_of, name, row)[0]]


def _read(convert: Callable[[Any], T], column: str, row: Mapping[str, Any]) -> T:
    """Convert a cell; an error names the column."""
    try:
        return convert(row[column])
    except ValueError as problem:
        raise ValueError(f"{column!r} {problem}") from None
