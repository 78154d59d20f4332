"""JSON: one object on each line, or all in one array or object; plain, .gz, .zst, .bz2 or .xz."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import bounded_lines, json_object, line_count, open_text
from xmtc.data.readers.json_items import (
    JsonItemsError,
    ListsWithinError,
    TableByColumnsError,
    documents_in,
)
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError

_HEAD = 1 << 16
"""Characters by which one value is told from lines."""


class JsonLines(TableFormat):
    """A `TableFormat`. Each object has its own keys, so that missing ones are found row by row."""

    identity = "jsonl"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Blank lines are left out, and a row's number is that of its line, or of its item in an array."""
        if _is_one_value(path, columns, longest_row(longest)):
            yield from _items(path, longest_row(longest))
            return
        with open_text(path) as text:
            for number, line in enumerate(
                bounded_lines(text, longest_row(longest)), start=1
            ):
                where = f"{path}:{number}"
                if line is None:
                    yield row_too_long(where, longest)
                elif line.strip():
                    yield _row(line, where, number)

    @override
    def count(self, path: Path) -> int | None:
        """Blank lines count too; the items of one value are not counted."""
        if _is_one_value(path, None, longest_row(LONGEST_DOCUMENT)):
            return None
        return line_count(path)


def _is_one_value(path: Path, columns: ColumnsConfig | None, longest: int) -> bool:
    """Whether a file is one array, or one object with all documents, and has no object on each line.

    Args:
        path: the file.
        columns: columns of a document; an object with them on the only line is one.
        longest: most characters of a line.
    """
    with open_text(path) as text:
        head = text.read(_HEAD)
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    first, second = [*lines, "", ""][:2]
    if first in ("[", "{"):
        return True
    if first.startswith("[") and second:
        return not first.endswith("]")  # otherwise, each line is a list
    if first.startswith("{") and not second:
        return _is_one_object(path, columns, longest)
    return first.startswith(("[{", "[ {", "[[")) or (
        first.startswith("{")
        and (second[:1] in ('"', "}", "]") or first.endswith(("[", "{", ",")))
    )


def _is_one_object(path: Path, columns: ColumnsConfig | None, longest: int) -> bool:
    """Whether a file is one line whose object is no document, but holds the documents."""
    with open_text(path) as text:
        line = text.readline(longest)
        if text.read(_HEAD).strip() and line.endswith("\n"):
            return False
    if columns is not None and _has_columns(line, columns):
        return False
    try:
        next(documents_in(lambda: io.StringIO(line), longest), None)
    except (TableByColumnsError, ListsWithinError):
        return True
    except (JsonItemsError, ValueError):  # whoever reads the line says what it is
        return False
    return True


def _has_columns(line: str, columns: ColumnsConfig) -> bool:
    """Whether a line is one object with the text of a document."""
    try:
        return set(columns.text_columns()) <= flat(json_object(line)).keys()
    except ValueError:
        return False


def flat(item: dict[str, Any]) -> dict[str, Any]:
    """Add what is in the objects of an object, under names such as `fields.text`."""
    inner = {
        f"{key}.{name}": value
        for key, values in item.items()
        if isinstance(values, dict)
        for name, value in values.items()
    }
    return {**inner, **item} if inner else item


def _items(path: Path, longest: int) -> Iterator[Row | Rejected]:
    """Yield the objects of an array, or of what one object holds."""
    number = 0
    try:
        for number, item in enumerate(
            documents_in(lambda: open_text(path), longest), start=1
        ):
            yield _item(item, f"{path}: item {number}", number)
    except JsonItemsError as problem:
        place = f"after item {number}: " if number else ""
        raise DataError(f"{path}: {place}{problem}") from None


def _item(item: Any, where: str, number: int) -> Row | Rejected:
    if isinstance(item, dict):
        return Row(flat(item), where, number)
    if (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], dict)
    ):
        return Row({"text": item[0], **item[1]}, where, number)  # spaCy's examples
    return Rejected(where, f"a JSON {type(item).__name__}, not an object")


def _row(line: str, where: str, number: int) -> Row | Rejected:
    try:
        return Row(flat(json_object(line)), where, number)
    except ValueError as problem:
        return Rejected(where, str(problem))
