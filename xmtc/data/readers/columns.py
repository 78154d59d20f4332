"""Which columns of a table, or keys of a JSON object, make a document."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from xmtc.config.base import config
from xmtc.data.readers.base import SPLITS, Document, Rejected, check_characters, quoted_cell, shown_columns

SPLIT_NAMES = {"validation": "dev", "valid": "dev", "val": "dev", "training": "train"} | {s: s for s in SPLITS}
"""What a split column may say -> the split."""
Name = Annotated[str, Field(min_length=1)]
"""Text that is not empty: a column, a path."""


@config
class DocumentColumns:
    """Where the documents that a model was trained on have their id and text; files to label have the same columns."""

    id: Name | None = None
    """Column with the identifier."""
    text: Annotated[tuple[Name, ...], Field(min_length=1)] = ("text",)
    """Columns that are joined, one on each line."""


@config
class ColumnsConfig:
    """Where in a row the parts of a document are."""

    id: Name | None = None
    """Column with the document's identifier; without one, documents are numbered by file and row."""
    text: Name | Annotated[tuple[Name, ...], Field(min_length=1)] = "text"
    """Column with the text, or several that are joined, such as `[title, text]`; empty ones are left out."""
    labels: Name = "labels"
    """Column with the labels: a list, or one string that `label_separator` splits; empty where no label fits."""
    label_separator: Name | None = None
    """Separator of the labels in a string, such as `;`; without it, the string is one label."""
    split: Name | None = None
    """Column with `train`, `dev` (or `validation`) or `test`. Then only `files.train` may name files."""

    def text_columns(self) -> tuple[str, ...]:
        """Return the columns to join."""
        return (self.text,) if isinstance(self.text, str) else self.text

    def of_documents(self) -> DocumentColumns:
        """Return the columns that documents without known labels need."""
        return DocumentColumns(id=self.id, text=self.text_columns())

    def advice(self) -> str:
        """Say how to fix a missing column."""
        return "set source.columns"

    def names(self) -> list[str]:
        """List all columns that a source must have."""
        named = (self.id, *self.text_columns(), self.labels, self.split)
        return list(dict.fromkeys(name for name in named if name is not None))

    def document(self, row: Mapping[str, Any], where: str, fallback_id: str, split: str | None) -> Document | Rejected:
        """Convert `row` to a document, or say why it is none."""
        missing = [name for name in self.names() if name not in row]
        if missing:
            return Rejected(where, f"no column {missing[0]!r}; {shown_columns(row)}")
        try:
            text = self._text(row)
            labels = self._labels(row[self.labels])
            split = self._split(row[self.split]) if self.split is not None else split
            doc_id = fallback_id if self.id is None or row[self.id] is None else str(row[self.id])
            check_characters(doc_id, text, *labels)
        except ValueError as problem:
            return Rejected(where, str(problem))
        return Document(doc_id, text, labels, split, _absent(row[self.labels]))

    def _text(self, row: Mapping[str, Any]) -> str:
        parts = [row[name] for name in self.text_columns() if row[name] is not None]
        wrong = [part for part in parts if not isinstance(part, str)]
        if wrong:
            raise ValueError(f"the text is a {type(wrong[0]).__name__}, not a string; name another column")
        text = "\n".join(part for part in parts if part.strip())
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
                f"{self.labels!r} holds a {type(wrong[0]).__name__}, which is not a label; name another column"
            )
        labels = [str(label).strip() for label in given]
        return tuple(dict.fromkeys(label for label in labels if label))

    def _split(self, value: Any) -> str:
        split = SPLIT_NAMES.get(str(value).strip().lower())
        if split is None:
            raise ValueError(f"{self.split!r} is {quoted_cell(value)}, which is not train, dev or test")
        return split


def _absent(labels: Any) -> int:
    """Count the entries of a list of labels that are empty."""
    given = labels if isinstance(labels, list) else []
    return sum(label is None or label != label or not str(label).strip() for label in given)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
