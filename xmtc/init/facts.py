"""What a column of a sample holds: texts, lists, numbers; how long, how often repeated."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.columns import SPLIT_NAMES
from xmtc.data.readers.table import Row
from xmtc.errors import DataError

Kind = Literal["empty", "text", "number", "list", "nested"]
SEPARATORS = (";", "|", ",", "\t", "\n", "/", " ")
"""What may stand between labels in one cell."""
SAMPLE = 2_000
"""Rows that are looked at: a random sample of the first ones."""
_REPEATED_MORE = 0.1  # share of labels that come again, beyond that of whole cells
_FIRST = 50_000
_SECONDS = 10.0


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a sample.

    Attributes:
        name: of the column.
        kind: what most of its cells are; `nested` are objects, and lists of objects or lists.
        cells: cells that are not empty, of that kind.
        rows: rows of the sample.
    """

    name: str
    kind: Kind
    cells: Sequence[Any]
    rows: int

    @property
    def distinct(self) -> int:
        """Different cells."""
        return len({tuple(cell) if isinstance(cell, list) else cell for cell in self.cells})

    @property
    def distinct_share(self) -> float:
        """Different cells, as a share of the cells."""
        return self.distinct / max(len(self.cells), 1)

    @property
    def words(self) -> float:
        """Mean words of a cell; 0 of what is not text."""
        if self.kind != "text" or not self.cells:
            return 0.0
        return sum(len(cell.split()) for cell in self.cells) / len(self.cells)

    @property
    def is_split(self) -> bool:
        """Whether it says train, dev and test, or two of them."""
        if self.kind != "text" or len(self.cells) < self.rows:
            return False
        names = {SPLIT_NAMES.get(cell.strip().lower()) for cell in self.cells}
        return None not in names and "train" in names and len(names) > 1

    @property
    def is_indicator(self) -> bool:
        """Whether it holds 0 and 1 alone."""
        return bool(self.cells) and {str(cell) for cell in self.cells} <= {"0", "1", "0.0", "1.0", "True", "False"}

    def parts(self, separator: str | None) -> Iterator[list[str]]:
        """The labels of each cell, were it a label column."""
        for cell in self.cells:
            if isinstance(cell, list):
                values = [str(value) for value in cell if value is not None]
            else:
                values = str(cell).split(separator) if separator is not None else [str(cell)]
            yield [value.strip() for value in values if value.strip()]

    def separator(self) -> str | None:
        """What separates labels in the cells; None where each cell is one label, or a list.

        Cells of several labels put the same labels together in different ways. So there are fewer different parts than
        different cells, or, where most labels are rare, parts come again that cells do not. Names such as `Trade,
        foreign` do neither.
        """
        if self.kind != "text":
            return None
        best, most = None, 1 - self.distinct_share
        for separator in SEPARATORS:
            parts = [set(one) for one in self.parts(separator)]
            several = sum(len(one) > 1 for one in parts)
            distinct = set().union(*parts)
            if several < 0.02 * len(parts) or (separator == " " and not _are_codes(distinct)):
                continue
            repeated = 1 - len(distinct) / sum(map(len, parts))
            recombined = len(distinct) < self.distinct or repeated > 1 - self.distinct_share + _REPEATED_MORE
            if recombined and repeated > most:
                best, most = separator, repeated
        return best


def _are_codes(parts: set[str]) -> bool:
    """Whether most of them are no words of natural language: upper case, digits, underscores."""
    codes = sum(any(letter.isdigit() or letter == "_" for letter in part) or part.isupper() for part in parts)
    return codes >= 0.8 * len(parts)


@dataclass(frozen=True)
class Labels:
    """Labels of a sample, under a separator.

    Attributes:
        counts: documents of each label.
        rows: rows of the sample.
        several: rows with more than one label.
        none: rows without a label.
    """

    counts: Counter[str]
    rows: int
    several: int
    none: int

    @classmethod
    def of(cls, column: ColumnFacts, separator: str | None) -> "Labels":
        """Count them."""
        parts = [list(dict.fromkeys(one)) for one in column.parts(separator)]
        counts = Counter(chain.from_iterable(parts))
        filled = [one for one in parts if one]
        return cls(counts, column.rows, sum(len(one) > 1 for one in filled), column.rows - len(filled))

    @property
    def given(self) -> int:
        """(document, label) pairs."""
        return self.counts.total()

    @property
    def repeated(self) -> float:
        """Share of the pairs whose label has another document."""
        return 1 - len(self.counts) / max(self.given, 1)


def read_facts(rows: Iterable[Row | Rejected], place: str) -> list[ColumnFacts]:
    """Facts of the columns of a sample.

    Args:
        rows: of a table; the sample is drawn from the first ones, for files are often sorted by label.
        place: the table, for messages.

    Raises:
        DataError: there is no row, or none that can be read.
    """
    good, bad = _sampled(rows)
    if not good:
        raise DataError(f"{place}: no rows" if bad is None else f"{bad.where}: {bad.reason}; correct the file")
    names = list(dict.fromkeys(name for cells in good for name in cells))
    return [_facts(name, good) for name in names]


def _sampled(rows: Iterable[Row | Rejected]) -> tuple[list[Mapping[str, Any]], Rejected | None]:
    """Cells of a random sample of the first rows, in order, and the first bad row."""
    draw, begun = random.Random(0), time.perf_counter()
    kept: list[tuple[int, Mapping[str, Any]]] = []
    bad = None
    for number, row in enumerate(islice(rows, _FIRST)):
        if isinstance(row, Rejected):
            bad = bad or row
        elif len(kept) < SAMPLE:
            kept.append((number, row.cells))
        elif (place := draw.randrange(number + 1)) < SAMPLE:
            kept[place] = (number, row.cells)
        if time.perf_counter() - begun > _SECONDS:
            break
    return [cells for _, cells in sorted(kept, key=lambda one: one[0])], bad


def _facts(name: str, rows: Sequence[Mapping[str, Any]]) -> ColumnFacts:
    cells = [row.get(name) for row in rows]
    kinds: Counter[Kind] = Counter(kind for kind in map(_kind, cells) if kind != "empty")
    if not kinds:
        return ColumnFacts(name, "empty", (), len(rows))
    kind: Kind = "nested" if "nested" in kinds else kinds.most_common(1)[0][0]
    return ColumnFacts(name, kind, [cell for cell in cells if _kind(cell) == kind], len(rows))


def _kind(cell: Any) -> Kind:
    if cell is None or cell != cell or cell == "" or cell == [] or (isinstance(cell, str) and not cell.strip()):
        return "empty"
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, bool | int | float):
        return "number"
    if isinstance(cell, list):
        return "nested" if any(isinstance(one, list | dict) for one in cell) else "list"
    return "nested"
