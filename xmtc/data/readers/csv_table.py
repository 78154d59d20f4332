"""CSV and TSV files with a header line; plain, .gz, .zst, .bz2 or .xz."""

import csv
import io
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected, longest_row, row_too_long
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.endings import ending_of
from xmtc.data.readers.files import (
    bounded_lines,
    check_columns,
    line_count,
    open_text,
    wrong_width,
)
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError

logger = logging.getLogger(__name__)

_DELIMITERS = (",", ";", "\t", "|")
_LOOKED_AT = 1 << 16
"""Characters from which the dialect is inferred."""
_ROWS_LOOKED_AT = 200
_SEPARATOR_LINE = "sep="
"""How the first line begins by which Excel is told the delimiter."""
_BETTER = 0.02
"""By so much a rarer dialect must fit better than a usual one …"""
_TABLE = 0.8
"""Share of the rows with equally many cells, from which on a file is a table below its title."""
_FITS = 0.95
"""… and at least this share of the rows."""
_ESCAPED_QUOTE = '\\"'
"""How Spark writes a quote that is a letter."""
_OPTIONS = (
    "give data.source.quoting=none if quotes are letters, data.source.escape='\\' if a sign stands before them, or "
    "data.source.delimiter=';' for another separator"
)
_NAME_ENCODING = (
    "give data.source.encoding=cp1252 if Windows wrote it, or convert the file"
)

Quoting = Literal["minimal", "none"]


@dataclass(frozen=True)
class Dialect:
    """How rows are written.

    Attributes:
        delimiter: separator of the columns.
        quoting: whether cells may be in double quotes.
        escape: sign before a quote that is a letter; None: it is doubled.
    """

    delimiter: str
    quoting: Quoting
    escape: str | None

    def rows(self, lines: Iterator[str], *, strict: bool) -> Any:
        """Part lines into rows of cells."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoting == "minimal" else csv.QUOTE_NONE,
            escapechar=self.escape,
            doublequote=self.escape is None,
            skipinitialspace=self.quoting == "minimal",
            strict=strict,
        )


class CsvTable(TableFormat):
    """A `TableFormat`. All cells are text: a label `001` or `250.00` is not a number.

    Args:
        delimiter: None: of comma, semicolon, tab and bar, the one that fits the first lines of each file best.
        quoting: whether cells may be in double quotes; None: what fits best.
        escape: sign before a quote that is a letter; None: what fits best.
        encoding: None: UTF-8, or UTF-16 if the file begins with its mark.
        header: names of the columns of files whose first line is a document; None: the first line has them.
    """

    def __init__(
        self,
        delimiter: str | None = None,
        quoting: Quoting | None = None,
        escape: str | None = None,
        encoding: str | None = None,
        header: Sequence[str] | None = None,
    ) -> None:
        self._delimiter = delimiter
        self._quoting: Quoting | None = quoting
        self._escape = escape
        self._encoding = encoding
        self._header = header
        self.identity = f"csv:{delimiter!r}"
        if quoting is not None or escape is not None:
            self.identity += f":{quoting}:{escape!r}"
        if encoding is not None:
            self.identity += f":{encoding}"
        if header is not None:
            self.identity += f":{list(header)}"

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Blank lines are left out, but they count. Warns of the first quoted cell that may hold rows."""
        dialect = self._dialect_of(path)
        lines = _lines(path, self._opened(path), dialect, longest)
        if self._header is None:
            _, header = next(lines, (1, []))
            self._check_first_line(path, header)
        else:
            header = list(self._header)
        needed = (
            [name for name in header if name] if columns is None else columns.names()
        )
        check_columns(path, needed, header, columns.advice() if columns else "")
        may_hold_rows = dialect.delimiter == "\t"
        for number, (line, cells) in enumerate(lines, start=1):
            if not cells:
                continue
            where = f"{path}:{line}"
            if len(cells) != len(header):
                yield Rejected(
                    where, f"{wrong_width(len(cells), len(header))}, or {_OPTIONS}"
                )
            elif [cells[0].lstrip("\ufeff"), *cells[1:]] == header:
                yield Rejected(
                    where, "repeats the header, as joined files do; take it out"
                )
            else:
                if may_hold_rows and _holds_rows(cells):
                    may_hold_rows = False  # one warning is enough
                    logger.warning(
                        '%s: a quote (") joins lines like rows; if it is text, quote it as CSV does, or set '
                        "data.source.quoting=none",
                        where,
                    )
                yield Row(dict(zip(header, cells, strict=True)), where, number)

    @override
    def count(self, path: Path) -> int | None:
        """Empty lines, and quotes inside unquoted cells, are counted wrongly."""
        lines = line_count(path, quotes=self._quoting != "none")
        return None if lines is None else max(0, lines - 1)

    def _check_first_line(self, path: Path, header: Sequence[str]) -> None:
        """Refuse a file with a title or remarks above the names of its columns.

        Raises:
            DataError: it has.
        """
        if not header or any(name.strip() for name in header[1:]):
            return
        with self._opened(path) as lines:
            start = lines.read(_LOOKED_AT)
        for delimiter in [self._delimiter] if self._delimiter else _DELIMITERS:
            names = _line_of_names(start, Dialect(delimiter, "minimal", None))
            if names is not None:
                raise DataError(
                    f"{path}:1: a title or a remark; the names of the columns seem to be in line {names}: take out the "
                    f"lines above it, by tail -n +{names} FILE > NEW, for example"
                )

    def fits(self, path: Path) -> bool:
        """Whether nearly all of the first lines have as many cells as the first, of which there are several."""
        dialect = self._dialect_of(path)
        with self._opened(path) as lines:
            return _fit(lines.read(_LOOKED_AT), dialect) >= _FITS

    def _opened(self, path: Path) -> AbstractContextManager[io.TextIOWrapper]:
        return open_text(path, encoding=self._encoding, fix=_NAME_ENCODING)

    def _dialect_of(self, path: Path) -> Dialect:
        """Choose the dialect that fits the first lines best; of those that fit alike, the most usual."""
        with self._opened(path) as lines:
            start = lines.read(_LOOKED_AT)
        usual = "\t" if ending_of(path) == ".tsv" else ","
        announced = _announced_delimiter(start)
        if announced is not None:
            start = start.partition("\n")[2]
        delimiters = (
            [self._delimiter or announced]
            if self._delimiter or announced
            else [usual, *_DELIMITERS]
        )
        quotings: list[Quoting] = ["minimal", "none"]
        if self._quoting is not None:
            quotings = [self._quoting]
        escapes = [self._escape] if self._escape else [None, "\\"]
        best = Dialect(delimiters[0] or usual, quotings[0], escapes[0])
        best_fit = _fit(start, best)
        for escape, quoting, delimiter in product(escapes, quotings, delimiters):
            if quoting == "none" and escape is not None and self._escape is None:
                continue  # without quotes, a backslash is a letter
            dialect = Dialect(delimiter or usual, quoting, escape)
            fit = _fit(start, dialect)
            is_usual = quoting == quotings[0] and escape == escapes[0]
            is_better = (
                fit > best_fit if is_usual else fit >= max(_FITS, best_fit + _BETTER)
            )
            escapes_quotes = (
                escape is not None and _ESCAPED_QUOTE in start and fit >= best_fit
            )
            if is_better or (
                escapes_quotes and best.escape is None and best.quoting == "minimal"
            ):
                best = dialect
                best_fit = fit
        return best


def _announced_delimiter(start: str) -> str | None:
    """Return the delimiter that the first line tells Excel; None if it is a header."""
    first = start.lstrip("\ufeff").splitlines()[0] if start.strip() else ""
    sign = first.strip('"').removeprefix(_SEPARATOR_LINE)
    return (
        sign
        if first.strip('"').startswith(_SEPARATOR_LINE) and len(sign) == 1
        else None
    )


def _lines(
    path: Path,
    opened: AbstractContextManager[io.TextIOWrapper],
    dialect: Dialect,
    longest: int,
) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line's number and the cells of every row, the header included; blank rows have no cells.

    Raises:
        DataError: the file is not CSV, or a line or cell of it is too long; rows after that cannot be told apart.
    """
    csv.field_size_limit(longest_row(longest))
    with opened as text:
        lines = _whole_lines(text, path, longest)
        first = next(lines, "")
        before = 0
        if _announced_delimiter(first) is not None:
            before = 1
            first = next(lines, "")
        line = before + 1
        rows = dialect.rows(chain([first], lines), strict=True)
        try:
            for cells in rows:
                yield line, cells
                line = before + rows.line_num + 1
        except csv.Error as error:
            if "field limit" in str(error):
                raise _too_long(path, line, longest) from None
            raise DataError(
                f"{path}:{line}: malformed CSV: {error}; correct the quotes, or {_OPTIONS}"
            ) from None


def _whole_lines(text: io.TextIOWrapper, path: Path, longest: int) -> Iterator[str]:
    """Yield lines, none of which may be too long."""
    for number, line in enumerate(bounded_lines(text, longest_row(longest)), start=1):
        if line is None:
            raise _too_long(path, number, longest)
        yield line


def _too_long(path: Path, line: int, longest: int) -> DataError:
    refusal = row_too_long(f"{path}:{line}", longest)
    return DataError(f"{refusal.where}: {refusal.reason}")


def _fit(start: str, dialect: Dialect) -> float:
    """Return the share of the rows with as many cells as the header; 0 if the header has only one cell.

    A row that is malformed in this dialect does not fit.
    """
    widths: list[int] = []
    rows = dialect.rows(io.StringIO(start, newline=""), strict=True)
    try:
        for cells in rows:
            widths.append(len(cells))
            if len(widths) == _ROWS_LOOKED_AT + 1:
                break
    except csv.Error:
        widths.append(-1)
    if not widths or widths[0] < 2:
        return 0.0
    body = [width for width in widths[1:] if width != 0]
    if len(start) >= _LOOKED_AT and len(widths) <= _ROWS_LOOKED_AT:
        body = body[:-1]  # the last row is cut
    if not body:
        return 0.5
    return sum(width == widths[0] for width in body) / len(body)


def _line_of_names(start: str, dialect: Dialect) -> int | None:
    """Return the line below the first one that begins a table of several columns; None if there is none."""
    rows: list[tuple[int, list[str]]] = []
    reader = dialect.rows(io.StringIO(start, newline=""), strict=False)
    for cells in islice(reader, _ROWS_LOOKED_AT):
        rows.append((reader.line_num, [cell for cell in cells if cell.strip()]))
    widths = Counter(len(cells) for _, cells in rows)
    usual, number = widths.most_common(1)[0]
    if usual < 2 or number < _TABLE * len(rows):
        return None
    first = next(line for line, cells in rows if len(cells) == usual)
    return first if first > 1 else None


def _holds_rows(cells: Sequence[str]) -> bool:
    """Whether each line of a row has as many cells as the row, if every tab is a delimiter; indented lines do not."""
    lines = "\t".join(cells).split("\n")
    tabs = len(cells) - 1
    return (
        len(lines) > 1
        and tabs > 0
        and all(line[:1].strip() and line.count("\t") == tabs for line in lines)
    )
