"""JSON lines: one object on each line; plain, .gz, .zst, .bz2 or .xz."""

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import json_object, line_count, open_text
from xmtc.data.readers.table import Row, TableFormat


class JsonLines(TableFormat):
    """A `TableFormat`. Each object has its own keys, so that missing ones are found row by row."""

    identity = "jsonl"

    @override
    def rows(self, path: Path, columns: ColumnsConfig | None) -> Iterator[Row | Rejected]:
        """Blank lines are left out, and a row's number is that of its line."""
        with open_text(path) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _row(line, f"{path}:{number}", number)

    @override
    def count(self, path: Path) -> int | None:
        """Blank lines count too."""
        return line_count(path)


def _row(line: str, where: str, number: int) -> Row | Rejected:
    try:
        return Row(json_object(line), where, number)
    except ValueError as problem:
        return Rejected(where, str(problem))
