"""Describe the columns of a sample: texts, lists or numbers, their lengths, and how often values repeat."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import cached_property
from itertools import chain, islice
from numbers import Real
from time import perf_counter
from typing import Any, Literal

from xmtc.data.analyzer import words_of
from xmtc.data.readers.base import Rejected
from xmtc.data.readers.cells import ONE, ZERO, absent, labels_of, list_in, mark_of, plain
from xmtc.data.readers.columns import SPLIT_NAMES
from xmtc.data.readers.table import Row
from xmtc.errors import DataError

Kind = Literal["empty", "text", "number", "date", "list", "nested"]
SEPARATORS = (";", "|", ",", "；", "，", "、", "؛", "،", "\t", "\n", "/", " ")
"""Possible separators of labels in one cell."""
SAMPLE = 2_000
"""Number of rows in the random sample of the first rows."""
_DATE = re.compile(r"\s*(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?([-/.])\d\d?\1\d{4})(?:[T ]\d+:[\d:.+-]*Z?)?\s*")
_REPEATED_MORE = 0.1  # minimum difference between the shares of repeated labels and repeated cells …
_HARDLY = 0.05  # … unless cells of a whole table hardly repeat: nothing could be learned from them as they are
_FIRST = 50_000
_SECONDS = 10.0


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a sample.

    Attributes:
        name: name of the column.
        kind: kind of most cells; `nested` means objects, and lists of objects or lists.
        cells: nonempty cells of that kind.
        rows: number of rows of the sample.
        places: row of each cell.
    """

    name: str
    kind: Kind
    cells: Sequence[Any]
    rows: int
    places: Sequence[int] = ()

    @property
    def distinct(self) -> int:
        """Different cells."""
        return len({str(cell) if isinstance(cell, list | dict) else cell for cell in self.cells})

    @property
    def distinct_share(self) -> float:
        """Number of distinct cells as a share of all cells."""
        return self.distinct / max(len(self.cells), 1)

    @cached_property
    def words(self) -> float:
        """Mean number of words per cell; 0 if the column is not text."""
        return sum(map(_words, self.cells)) / max(len(self.cells), 1) if self.kind == "text" else 0.0

    @property
    def is_split(self) -> bool:
        """Whether its values are train, dev and test, or two of them."""
        names = {SPLIT_NAMES.get(str(cell).strip().lower()) for cell in self.cells}
        return len(self.cells) == self.rows and None not in names and "train" in names and len(names) > 1

    @cached_property
    def is_lists(self) -> bool:
        """Whether most cells are lists, or lists as text."""
        lists = (not isinstance(_tried(list_in, cell), str) for cell in self.cells)
        return self.kind == "list" or (self.kind == "text" and sum(lists) > len(self.cells) / 2)

    @property
    def is_indicator(self) -> bool:
        """Whether it holds only 0 and 1, or true and false."""
        return bool(self.cells) and {str(cell).capitalize() for cell in self.cells} <= ZERO | ONE

    def parts(self, separator: str | None) -> Iterator[list[str]]:
        """Yield the labels of each cell, if this is a label column."""
        for cell in self.cells:
            try:
                yield list(labels_of(cell, separator)[0])
            except ValueError:  # `choose_roles` says why
                yield []

    def separator(self) -> str | None:
        """Infer the separator of labels in the cells; None if each cell is one label or a list.

        Cells with several labels combine the same labels in different ways. There are then fewer distinct parts than
        distinct cells, or, if most labels are rare, parts repeat although cells do not. Neither holds for names such as
        `Trade, foreign`.
        """
        if self.kind != "text" or self.is_lists:
            return None
        best, most = None, 1 - self.distinct_share
        for separator in SEPARATORS:
            parts = [set(one) for one in self.parts(separator)]
            several = sum(len(one) > 1 for one in parts)
            distinct = set().union(*parts)
            in_iris = separator == "/" and any("://" in cell for cell in self.cells)
            if in_iris or several < 0.02 * len(parts) or (separator == " " and not _are_codes(distinct)):
                continue
            repeated, whole = 1 - len(distinct) / sum(map(len, parts)), 1 - self.distinct_share
            least = 0.0 if self.rows < SAMPLE and whole < _HARDLY else _REPEATED_MORE
            recombined = len(distinct) < self.distinct or repeated > whole + least
            if recombined and repeated > most:
                best, most = separator, repeated
        return best


def marked(columns: Sequence[ColumnFacts]) -> ColumnFacts:
    """Join columns of 0 and 1 to a column with the lists of those that have 1."""
    rows: list[list[str]] = [[] for _ in range(columns[0].rows)]
    for column in columns:
        for place, cell in zip(column.places, column.cells, strict=True):
            if mark_of(cell):
                rows[place].append(column.name)
    return ColumnFacts("", "list", rows, len(rows), range(len(rows)))


def _are_codes(parts: set[str]) -> bool:
    """Whether most are no words, but have upper case, digits or underscores, and none has or is a separator."""
    codes = sum(any(letter.isdigit() or letter == "_" for letter in part) or part.isupper() for part in parts)
    return codes >= 0.8 * len(parts) and "/" not in parts and set(SEPARATORS[:-2]).isdisjoint("".join(parts))


@dataclass(frozen=True)
class Labels:
    """Labels of a sample, under a separator.

    Attributes:
        counts: number of documents of each label.
        rows: number of rows of the sample.
        several: number of rows with more than one label.
        none: number of rows without labels.
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
        return cls(counts, column.rows, sum(len(one) > 1 for one in parts), column.rows - sum(map(bool, parts)))

    @property
    def repeated(self) -> float:
        """Share of the pairs whose label also has another document."""
        return 1 - len(self.counts) / max(self.counts.total(), 1)


def read_facts(rows: Iterable[Row | Rejected], place: str) -> list[ColumnFacts]:
    """Describe the columns of a sample.

    Args:
        rows: rows of a table. The sample is drawn from many of the first rows, because files are often sorted by label.
        place: the table, for messages.

    Raises:
        DataError: there are no rows, or none can be read.
    """
    good, bad = _sampled(rows)
    if not good:
        raise DataError(f"{place}: no rows; give data" if bad is None else f"{bad.where}: {bad.reason}; correct it")
    names = list(dict.fromkeys(name for cells in good for name in cells))
    return [_facts(name, good) for name in names]


def _sampled(rows: Iterable[Row | Rejected]) -> tuple[list[Mapping[str, Any]], Rejected | None]:
    """Draw a random sample of the first rows, in order; also return the first bad row."""
    draw, begun = random.Random(0), perf_counter()
    kept: list[tuple[int, Mapping[str, Any]]] = []
    bad = None
    for number, row in enumerate(islice(rows, _FIRST)):
        if isinstance(row, Rejected):
            bad = bad or row
        elif len(kept) < SAMPLE:
            kept.append((number, row.cells))
        elif (place := draw.randrange(number + 1)) < SAMPLE:
            kept[place] = (number, row.cells)
        if perf_counter() - begun > _SECONDS:
            break
    return [cells for _, cells in sorted(kept, key=lambda one: one[0])], bad


def _facts(name: str, rows: Sequence[Mapping[str, Any]]) -> ColumnFacts:
    cells = [_tried(plain, row.get(name)) for row in rows]
    kinds: Counter[Kind] = Counter(kind for kind in map(_kind, cells) if kind != "empty")
    if not kinds:
        return ColumnFacts(name, "empty", (), len(rows))
    kind: Kind = "nested" if "nested" in kinds else kinds.most_common(1)[0][0]
    places = [place for place, cell in enumerate(cells) if _kind(cell) == kind]
    return ColumnFacts(name, kind, [cells[place] for place in places], len(rows), places)


def _words(text: str) -> int:
    return len(text.split()) if text.isascii() else max(len(text.split()), len(words_of(text)))


def _tried(convert: Callable[[Any], Any], cell: Any) -> Any:
    try:
        return convert(cell)
    except ValueError:  # bytes, such as an image, or a list as others write it
        return cell


def _kind(cell: Any) -> Kind:
    if isinstance(cell, list):
        return "nested" if any(isinstance(one, list | dict) for one in cell) else "list" if cell else "empty"
    if absent(cell):
        return "empty"
    if isinstance(cell, date | time) or (isinstance(cell, str) and _DATE.fullmatch(cell)):
        return "date"
    return "text" if isinstance(cell, str) else "number" if isinstance(cell, Real | Decimal) else "nested"
