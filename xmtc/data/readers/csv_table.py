"""CSV and TSV files with a header line; plain, .gz, .zst, .bz2 or .xz."""

import csv
import io
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.endings import ending_of
from xmtc.data.readers.files import bounded_lines, check_columns, line_count, open_text, wrong_width
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError

logger = logging.getLogger(__name__)

_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 1 << 16  # characters from which the delimiter is inferred


class CsvTable(TableFormat):
    """A `TableFormat`. All cells are text: a label `001` or `250.00` is not a number.

    Args:
        delimiter: None: of comma, semicolon, tab and bar, the one that fits the first lines of each file best.
    """

    def __init__(self, delimiter: str | None = None) -> None:
        self._delimiter = delimiter
        self.identity = f"csv:{delimiter!r}"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Blank lines are left out, but they count. Warns of the first quoted cell that may hold rows."""
        delimiter = self._delimiter or _delimiter_of(path)
        lines, told = _lines(path, delimiter, longest), delimiter != "\t"
        _, header = next(lines, (1, []))
        wanted = filter(None, header) if columns is None else columns.names()
        check_columns(path, wanted, header, columns.advice() if columns else "")
        for number, (line, cells) in enumerate(lines, start=1):
            if not cells:
                continue
            where = f"{path}:{line}"
            if len(cells) != len(header):
                yield Rejected(where, wrong_width(len(cells), len(header)))
            elif [cells[0].lstrip("\ufeff"), *cells[1:]] == header:
                yield Rejected(where, "repeats the header, as joined files do; take it out")
            else:
                if not told and (told := _holds_rows(cells)):
                    logger.warning('%s: a quote (") joins lines like rows; if it is text, quote it as CSV does', where)
                yield Row(dict(zip(header, cells, strict=True)), where, number)

    @override
    def count(self, path: Path) -> int | None:
        """Empty lines, and quotes inside unquoted cells, are counted wrongly."""
        lines = line_count(path, quotes=True)
        return None if lines is None else max(0, lines - 1)


def _lines(path: Path, delimiter: str, longest: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line's number and the cells of every row, the header included; blank rows have no cells.

    Raises:
        DataError: the file is not CSV, or a line or cell of it is too long; rows after that cannot be told apart.
    """
    csv.field_size_limit(longest_row(longest))
    with open_text(path) as text:
        line = 1
        rows = csv.reader(_whole_lines(text, path, longest), delimiter=delimiter, strict=True, skipinitialspace=True)
        try:
            for cells in rows:
                yield line, cells
                line = rows.line_num + 1
        except csv.Error as error:
            if "field limit" in str(error):
                raise _too_long(path, line, longest) from None
            raise DataError(f"{path}:{line}: malformed CSV: {error}") from None


def _whole_lines(text: io.TextIOWrapper, path: Path, longest: int) -> Iterator[str]:
    """Yield lines, none of which may be too long."""
    for number, line in enumerate(bounded_lines(text, longest_row(longest)), start=1):
        if line is None:
            raise _too_long(path, number, longest)
        yield line


def _too_long(path: Path, line: int, longest: int) -> DataError:
    refusal = row_too_long(f"{path}:{line}", longest)
    return DataError(f"{refusal.where}: {refusal.reason}")


def _delimiter_of(path: Path) -> str:
    """Return the delimiter that fits best; if several do, a tab in files named .tsv, or a comma in others."""
    usual = "\t" if ending_of(path) == ".tsv" else ","
    with open_text(path) as lines:
        start = lines.read(_LOOKED_AT)
    return max(_DELIMITERS, key=lambda delimiter: (_fit(start, delimiter), delimiter == usual))


def _fit(start: str, delimiter: str) -> float:
    """Return the share of the rows with as many cells as the header; 0 if the header has only one cell."""
    try:
        rows = list(csv.reader(io.StringIO(start, newline=""), delimiter=delimiter, skipinitialspace=True))[:200]
    except csv.Error:
        return 0.0
    if not rows or len(rows[0]) < 2:
        return 0.0
    body = [row for row in rows[1:-1] if row]  # the last row may be incomplete
    return sum(len(row) == len(rows[0]) for row in body) / len(body) if body else 0.5


def _holds_rows(cells: Sequence[str]) -> bool:
    """Whether each line of a row has as many cells as the row, if every tab is a delimiter; indented lines do not."""
    lines, tabs = "\t".join(cells).split("\n"), len(cells) - 1
    return len(lines) > 1 and tabs > 0 and all(line[:1].strip() and line.count("\t") == tabs for line in lines)
