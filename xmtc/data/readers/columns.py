"""Which columns of a table, or keys of a JSON object, make a document."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

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

SPLIT_NAMES = {
    "validation": "dev",
    "valid": "dev",
    "val": "dev",
    "training": "train",
} | {s: s for s in SPLITS}
"""What a split column may say -> the split."""
Name = Annotated[str, Field(min_length=1)]
"""Text that is not empty: a column, a path."""
_WHOLE = re.compile(r"(=-?\d+)\.0$")
T = TypeVar("T")
NUMERIC = re.compile(
    r"\s*[-+$€£]?\d[\d.,:/-]*(?:[eE][-+]?\d+|[T ]\d+:[\d:.+-]*Z?)?\s*%?"
)
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
        cells: dict[str, str | list[str]] = dict(zip(self.text, parts, strict=True))
        for name in self.categories:
            cells[name] = [value for key, value in values if key == name]
        return cells


@config
class ColumnsConfig:
    """Where in a row the parts of a document are."""

    id: Name | None = None
    """Column with the document's identifier; without one, documents are numbered by file and row."""
    text: Name | Annotated[tuple[Name, ...] | dict[Name, Name], Field(min_length=1)] = (
        "text"
    )
    """Column with the text, or columns of its fields: `[title, text]`, or `{title: dc_title, body: abstract}` with
    other names."""
    categories: tuple[Name, ...] = ()
    """Columns with categories, such as `[type, language]`. A value is a feature as a whole; encoders read it first."""
    labels: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = "labels"
    """Column with the labels: a list, or one string that `label_separator` splits; empty where no label fits. Or
    several columns; see `label_cells`."""
    label_cells: Literal["marks", "ticks", "labels"] = "marks"
    """What several columns hold: `marks`, which are 0 or 1, or no or yes, for the label that names the column (blank or
    -1 where nobody judged it); `ticks`, which are 1 or x, or blank where the label does not fit; or `labels`, as in
    `label1`, `label2`, `label3`."""
    rejected: Name | None = None
    """Column with the labels that were judged not to fit. Labels in neither column were not judged: they are left out
    of the loss and of the metrics. Null where all labels were judged."""
    null_labels: Literal["none", "unjudged"] = "none"
    """What null labels mean: `none`, that no label fits, or `unjudged`, that nobody has looked. Such documents are left
    out; `[]` still says that no label fits."""
    status: Name | None = None
    """Column that says whether the labels were accepted; documents with other values than `accepted` are left out."""
    accepted: tuple[str, ...] = ()
    """Values of `status` of documents that are read, such as `[accept]`."""
    join_rows: bool = False
    """Whether rows of the same text (and `id`, if there is one) are one document with the labels of all of them, as in
    a table with a row for each label. All documents of a file are then in memory at once."""
    label_separator: Name | None = None
    """Separator of the labels in a string, such as `;`; without it, the string is one label."""
    split: Name | None = None
    """Column with `train`, `dev` (or `validation`) or `test`. Then only `files.train` may name files."""

    def __post_init__(self) -> None:
        for names in (
            self.text_columns() + self.categories,
            self.fields() + self.categories,
        ):
            if len(set(names)) < len(names):
                raise ValueError(
                    "text and categories name a column or field twice; name each once"
                )
        if self._are_marks() and self.label_separator is not None:
            raise ValueError(
                "label_separator: several columns of 0 and 1 have no separator; leave it out"
            )
        if (self.status is None) != (not self.accepted):
            raise ValueError(
                "status and accepted belong together: name the column, and its values that count"
            )
        for name in self.categories:
            if "=" in name:
                raise ValueError(
                    f"categories: {name!r}: the name of a category has no '='; rename the column"
                )

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
        return DocumentColumns(
            id=self.id, text=self.text_columns(), categories=self.categories
        )

    def advice(self) -> str:
        """Say how to fix a missing column."""
        return "call it so in this file, or set data.source.columns"

    def names(self) -> list[str]:
        """List all columns that a source must have."""
        roles = (
            self.id,
            *self.text_columns(),
            *self.categories,
            *self.label_columns(),
            self.split,
            self.status,
        )
        return list(dict.fromkeys(name for name in roles if name is not None))

    def label_columns(self) -> tuple[str, ...]:
        """Return the column or columns of the labels."""
        return (self.labels,) if isinstance(self.labels, str) else self.labels

    def _are_marks(self) -> bool:
        return not isinstance(self.labels, str) and self.label_cells != "labels"

    def _marks(self, row: Mapping[str, Any]) -> dict[str, bool | None]:
        """Say which labels fit; None where nobody judged it."""
        marks = {name: _read(mark_of, name, row) for name in self.label_columns()}
        if self.label_cells == "ticks":
            return {name: bool(mark) for name, mark in marks.items()}
        return marks

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
        for name in self.names():
            if name not in row:
                return Rejected(where, no_column(name, row))
        try:
            if not self._is_judged(row):
                return Rejected(
                    where,
                    "nobody has judged it, or its labels were refused",
                    unjudged=True,
                )
            text = self._text(row)
            check_length(text, longest)
            labels, absences = self._labels(row)
            rejected_labels = self._rejected_labels(row)
            if self.split is not None:
                split = self._split(row[self.split])
            doc_id = _read(word_of, self.id, row) if self.id is not None else None
            check_characters(doc_id or "", text, *labels, *text.categories)
        except ValueError as problem:
            return Rejected(where, str(problem))
        return Document(
            doc_id or fallback_id, text, labels, split, absences, rejected_labels
        )

    def _is_judged(self, row: Mapping[str, Any]) -> bool:
        """Whether the status of a row is one that counts, and somebody has looked at its labels."""
        if self.status is not None:
            status = (_read(word_of, self.status, row) or "").strip()
            if status.casefold() not in {value.casefold() for value in self.accepted}:
                return False
        if self._are_marks():
            return any(mark is not None for mark in self._marks(row).values())
        if self.null_labels == "none":
            return True
        return not all(row[name] is None for name in self.label_columns())

    def _text(self, row: Mapping[str, Any]) -> FieldText:
        parts = [_read(text_of, name, row) or "" for name in self.text_columns()]
        text = FieldText.join(parts, category_terms(row, self.categories))
        if not text:
            raise ValueError(
                f"no text in {' or '.join(repr(name) for name in self.text_columns())}"
            )
        return text

    def _labels(self, row: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
        """Return the labels of a row, and how many entries said nothing."""
        if self._are_marks():
            return labels_of([name for name, fits in self._marks(row).items() if fits])
        labels: dict[str, None] = {}
        absences = 0
        for name in self.label_columns():
            labels_of_cell, absences_of_cell = _read(
                partial(labels_of, separator=self.label_separator), name, row
            )
            labels.update(dict.fromkeys(labels_of_cell))
            absences += absences_of_cell
        return tuple(labels), absences

    def _rejected_labels(self, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the labels that were judged not to fit, if others were not judged."""
        if self._are_marks():
            marks = self._marks(row)
            if None not in marks.values():
                return None
            return tuple(name for name, mark in marks.items() if mark is False)
        if self.rejected is None or row.get(self.rejected) is None:
            return None
        return _read(
            partial(labels_of, separator=self.label_separator), self.rejected, row
        )[0]

    def _split(self, value: Any) -> str:
        split = SPLIT_NAMES.get((word_of(value) or "").strip().lower())
        if split is None:
            raise ValueError(
                f"{self.split!r} is {quoted_cell(value)}, which is not train, dev or test"
            )
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
        for name in list(self._seen):
            cell = row.get(name)
            if absent(cell):
                continue
            if NUMERIC.fullmatch(str(cell)):
                self._seen[name] += 1
            else:
                del self._seen[name]

    def check(self, path: Path, least: int = 20) -> None:
        """Raise DataError if a column has so many cells, and they are all numbers or dates."""
        for name, cells in self._seen.items():
            if cells >= least:
                raise DataError(
                    f"{path}: column {name!r} holds only numbers or dates, no text: leave it out"
                )


def category_terms(row: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Write the values of categories as terms, such as `type=Directive`. A category may be missing.

    `12.0` is 12: pandas writes it to CSV where another row has none.

    Raises:
        ValueError: a cell holds no values; see `labels_of`.
    """
    terms: list[str] = []
    for name in names:
        if name in row:
            values, _ = _read(labels_of, name, row)
            terms += [_WHOLE.sub(r"\1", f"{name}={value}") for value in values]
    return terms


def _read(convert: Callable[[Any], T], column: str, row: Mapping[str, Any]) -> T:
    """Convert a cell; an error names the column."""
    try:
        return convert(row[column])
    except ValueError as problem:
        raise ValueError(f"{column!r} {problem}") from None
