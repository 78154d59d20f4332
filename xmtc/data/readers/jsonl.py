"""JSON lines: one object on each line; plain, .gz, .zst, .bz2 or .xz."""

from collections.abc import Iterator
from pathlib import Path

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import bounded_lines, json_object, line_count, open_text
from xmtc.data.readers.table import Row, TableFormat


class JsonLines(TableFormat):
    """A `TableFormat`. Each object has its own keys, so that missing ones are found row by row."""

    identity = "jsonl"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Blank lines are left out, and a row's number is that of its line."""
        with open_text(path) as text:
            for number, line in enumerate(bounded_lines(text, longest_row(longest)), start=1):
                where = f"{path}:{number}"
                if line is None:
                    yield row_too_long(where, longest)
                elif line.strip():
                    yield _row(line, where, number)

    @override
    def count(self, path: Path) -> int | None:
        """Blank lines count too."""
        return line_count(path)


def _row(line: str, where: str, number: int) -> Row | Rejected:
    try:
        return Row(json_object(line), where, number)
    except ValueError as problem:
        return Rejected(where, str(problem))
