"""JSON: one object on each line, or one array of objects; plain, .gz, .zst, .bz2 or .xz."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import bounded_lines, json_object, line_count, open_text
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError
from xmtc.files import reason_of, without_repeated_keys

_HEAD = 1 << 16
"""Characters by which an array is told from lines."""
_LISTS = ("data", "rows", "documents", "records", "items", "examples", "results")
"""Keys under which one object may hold the list of all documents."""


class JsonLines(TableFormat):
    """A `TableFormat`. Each object has its own keys, so that missing ones are found row by row."""

    identity = "jsonl"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Blank lines are left out, and a row's number is that of its line, or of its item in an array."""
        if is_array(path):
            yield from _items(path)
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
        """Blank lines count too; the items of an array are not counted."""
        return None if is_array(path) else line_count(path)


def is_array(path: Path) -> bool:
    """Whether a file is one JSON array or object over several lines, or an array of objects in one line."""
    with open_text(path) as text:
        head = [line.strip() for line in text.read(_HEAD).splitlines() if line.strip()]
    first, second = [*head, "", ""][:2]
    if first in ("[", "{"):
        return True
    if first.startswith("[") and second:
        return not first.endswith("]")  # otherwise, each line is a list
    return first.startswith(("[{", "[ {", "[[")) or (
        first.startswith("{") and second[:1] in ('"', "}", "]")
    )


def _items(path: Path) -> Iterator[Row | Rejected]:
    """Yield the objects of an array, or of the list that one object holds."""
    with open_text(path) as file:
        text = file.read()
    try:
        content = json.loads(text, object_pairs_hook=without_repeated_keys)
    except (ValueError, RecursionError) as error:
        reason = (
            reason_of(error)
            if isinstance(error, json.JSONDecodeError)
            else "malformed JSON"
        )
        raise DataError(
            f"{path}: {reason}; the file is cut short or damaged, export it again"
        ) from None
    for number, item in enumerate(_documents(path, content), start=1):
        where = f"{path}: item {number}"
        if isinstance(item, dict):
            yield Row(item, where, number)
        elif (
            isinstance(item, list)
            and len(item) == 2
            and isinstance(item[0], str)
            and isinstance(item[1], dict)
        ):
            yield Row(
                {"text": item[0], **item[1]}, where, number
            )  # as spaCy's examples are written
        else:
            yield Rejected(where, f"a JSON {type(item).__name__}, not an object")


def _documents(path: Path, content: Any) -> list[Any]:
    """Return the list of documents in what a file holds."""
    if isinstance(content, list):
        return content
    if isinstance(content, Mapping):
        for key in _LISTS:
            if isinstance(content.get(key), list):
                return content[key]
    raise DataError(
        f"{path}: one JSON object, not a list of documents; write one object on each line, or an array"
    )


def _row(line: str, where: str, number: int) -> Row | Rejected:
    try:
        return Row(json_object(line), where, number)
    except ValueError as problem:
        return Rejected(where, str(problem))
