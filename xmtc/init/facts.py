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
from xmtc.data.readers.cells import (
    FITS,
    FITS_NOT,
    ONE,
    UNKNOWN,
    ZERO,
    absent,
    labels_of,
    mark_of,
    plain,
)
from xmtc.data.readers.columns import SPLIT_NAMES
from xmtc.data.readers.table import Row
from xmtc.data.readers.wrappings import unwrapped
from xmtc.data.readers.written_lists import list_in
from xmtc.data.separators import Separator, separator_of
from xmtc.errors import DataError

Kind = Literal["empty", "text", "number", "date", "list", "nested"]
SAMPLE = 2_000
"""Number of rows in the random sample of the first rows."""
_FIRST = 50_000
"""Rows from which the sample is drawn …"""
_SECONDS = 10.0
"""… unless reading them takes longer."""
_DATE = re.compile(
    r"\s*(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?([-/.])\d\d?\1\d{4})(?:[T ]\d+:[\d:.+-]*Z?)?\s*"
)
_PARAGRAPH_WORDS = 8
"""Words from which on an item of a list may be a paragraph; labels have fewer."""
_DIFFERENT = 0.5
"""More than this share of paragraphs differ; labels repeat."""
_MOST_WORDS = 50
"""Cells with more words on average are texts: a search for labels in them would take seconds."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a sample.

    Attributes:
        name: name of the column.
        kind: kind of most cells; `nested` means objects, and lists of objects or lists.
        cells: nonempty cells of that kind.
        rows: number of rows of the sample.
        places: row of each cell.
        nulls, empty_lists: number of cells that are null, and of those that are [].
        objects: number of cells that are JSON objects, or lists of them; labels may be written so, texts not.
    """

    name: str
    kind: Kind
    cells: Sequence[Any]
    rows: int
    places: Sequence[int] = ()
    nulls: int = 0
    empty_lists: int = 0
    objects: int = 0

    @property
    def has_nulls_and_empty_lists(self) -> bool:
        """Whether some cells are null and others []: the former say that nobody has looked."""
        return self.nulls > 0 and self.empty_lists > 0

    @cached_property
    def distinct(self) -> int:
        """Number of different cells."""
        return len(
            {
                str(cell) if isinstance(cell, list | dict) else cell
                for cell in self.cells
            }
        )

    @property
    def distinct_share(self) -> float:
        """Number of distinct cells as a share of all cells."""
        return self.distinct / max(len(self.cells), 1)

    @cached_property
    def words(self) -> float:
        """Mean number of words per cell; 0 if the column is not text."""
        if self.is_paragraphs:
            return sum(_words(" ".join(cell)) for cell in self.cells) / len(self.cells)
        if self.kind != "text" or not self.cells:
            return 0.0
        return sum(map(_words, self.cells)) / len(self.cells)

    @cached_property
    def is_paragraphs(self) -> bool:
        """Whether cells are lists of paragraphs: most have a long item, and long items hold most words and differ."""
        if self.kind != "list" or not all(
            isinstance(item, str) for cell in self.cells for item in cell
        ):
            return False
        words_by_item = [[(item, _words(item)) for item in cell] for cell in self.cells]
        long = [
            (item, words)
            for cell in words_by_item
            for item, words in cell
            if words > _PARAGRAPH_WORDS
        ]
        with_long = sum(
            any(words > _PARAGRAPH_WORDS for _, words in cell) for cell in words_by_item
        )
        all_words = sum(words for cell in words_by_item for _, words in cell)
        different = {item for item, _ in long}
        return (
            with_long > len(self.cells) / 2
            and sum(words for _, words in long) > all_words / 2
            and len(different) > _DIFFERENT * len(long)
        )

    @property
    def is_split(self) -> bool:
        """Whether its values are train, dev and test, or two of them."""
        if len(self.cells) < self.rows:
            return False
        splits = {SPLIT_NAMES.get(str(cell).strip().lower()) for cell in self.cells}
        return None not in splits and "train" in splits and len(splits) > 1

    @cached_property
    def is_lists(self) -> bool:
        """Whether most cells are lists, or lists as text."""
        if self.kind != "text":
            return self.kind == "list" and not self.is_paragraphs
        lists = sum(_is_written_list(cell) for cell in self.cells)
        return lists > len(self.cells) / 2

    @property
    def is_indicator(self) -> bool:
        """Whether it holds only 0 and 1, or true and false."""
        return (
            bool(self.cells)
            and {str(cell).capitalize() for cell in self.cells} <= ZERO | ONE
        )

    @cached_property
    def is_marks(self) -> bool:
        """Whether cells only say whether a label fits, or that nobody knows: 0 and 1, yes and no, or ticks."""
        marks = {str(cell).strip().capitalize() for cell in self.cells}
        return bool(marks) and marks <= FITS | FITS_NOT | UNKNOWN

    @property
    def has_only_ticks(self) -> bool:
        """Whether it never says that a label does not fit, but by a blank."""
        return self.is_marks and all(mark_of(cell) for cell in self.cells)

    def parts(self, separator: str | None) -> Iterator[list[str]]:
        """Yield the labels of each cell, if this is a label column."""
        for cell in self.cells:
            try:
                yield list(labels_of(cell, separator)[0])
            except ValueError:  # `choose_roles` says why
                yield []

    @cached_property
    def separation(self) -> Separator | None:
        """What seems to separate labels in the cells; None if each cell is one label or a list."""
        if self.kind != "text" or self.is_lists or self.words > _MOST_WORDS:
            return None
        return separator_of(
            Counter(cell for cell in self.cells if isinstance(cell, str))
        )

    def separator(self) -> str | None:
        """Return the separator of labels in the cells, if there is clear evidence for one."""
        return (
            self.separation.text
            if self.separation is not None and self.separation.sure
            else None
        )


def marked(columns: Sequence[ColumnFacts]) -> ColumnFacts:
    """Join columns of 0 and 1 to a column with the lists of those that have 1."""
    rows: list[list[str]] = [[] for _ in range(columns[0].rows)]
    for column in columns:
        for place, cell in zip(column.places, column.cells, strict=True):
            if mark_of(cell):
                rows[place].append(column.name)
    return ColumnFacts("", "list", rows, len(rows), range(len(rows)))


def joined(columns: Sequence[ColumnFacts]) -> ColumnFacts:
    """Join columns that hold a label each to a column with the lists of them."""
    rows: list[list[str]] = [[] for _ in range(columns[0].rows)]
    for column in columns:
        for place, cell in zip(column.places, column.cells, strict=True):
            rows[place].append(str(cell))
    return ColumnFacts("", "list", rows, len(rows), range(len(rows)))


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
        labels_by_row = [
            list(dict.fromkeys(labels)) for labels in column.parts(separator)
        ]
        several = sum(len(labels) > 1 for labels in labels_by_row)
        labelled = sum(len(labels) > 0 for labels in labels_by_row)
        return cls(
            Counter(chain.from_iterable(labels_by_row)),
            column.rows,
            several,
            column.rows - labelled,
        )

    @property
    def repeated(self) -> float:
        """Share of the pairs whose label also has another document."""
        return 1 - len(self.counts) / max(self.counts.total(), 1)


def read_facts(
    rows: Iterable[Row | Rejected], place: str, *, within: bool = False
) -> list[ColumnFacts]:
    """Describe the columns of a sample.

    Args:
        rows: rows of a table. The sample is drawn from many of the first rows, because files are often sorted by label.
        place: the table, for messages.
        within: whether what is in objects is described, too, as in `fields.text`.

    Raises:
        DataError: there are no rows, or none can be read.
    """
    sample, first_bad = _sampled(rows)
    if not sample and first_bad is not None:
        raise DataError(
            f"{first_bad.where}: {first_bad.reason}; no row can be read, correct the file"
        )
    if not sample:
        raise DataError(f"{place}: no rows; give a file with documents")
    names = dict.fromkeys(name for cells in sample for name in cells)
    objects = tuple(
        f"{name}."
        for name in names
        if any(isinstance(cells.get(name), Mapping) for cells in sample)
    )
    return [
        _facts(name, sample) for name in names if within or not name.startswith(objects)
    ]


def _sampled(
    rows: Iterable[Row | Rejected],
) -> tuple[list[Mapping[str, Any]], Rejected | None]:
    """Draw a random sample of the first rows, in order; also return the first bad row."""
    draw = random.Random(0)
    begun = perf_counter()
    sample: dict[int, tuple[int, Mapping[str, Any]]] = {}
    first_bad: Rejected | None = None
    for number, row in enumerate(islice(rows, _FIRST)):
        if isinstance(row, Rejected):
            first_bad = first_bad or row
        else:
            place = len(sample) if len(sample) < SAMPLE else draw.randrange(number + 1)
            if place < SAMPLE:
                sample[place] = (number, row.cells)
        if perf_counter() - begun > _SECONDS:
            break
    in_order = sorted(sample.values(), key=lambda numbered: numbered[0])
    return [cells for _, cells in in_order], first_bad


def _facts(name: str, rows: Sequence[Mapping[str, Any]]) -> ColumnFacts:
    """Describe a column by the cells of its commonest kind; one nested cell makes the column nested."""
    raw_cells = [_tried(plain, row.get(name)) for row in rows]
    cells = [
        _tried(unwrapped, cell) if isinstance(cell, list | dict) else cell
        for cell in raw_cells
    ]
    kinds: list[Kind] = [_kind(cell) for cell in cells]
    counts = Counter(kinds)
    del counts["empty"]
    if not counts:
        return ColumnFacts(name, "empty", (), len(rows))
    kind: Kind = "nested" if counts["nested"] else counts.most_common(1)[0][0]
    places = [place for place, kind_of_cell in enumerate(kinds) if kind_of_cell == kind]
    return ColumnFacts(
        name=name,
        kind=kind,
        cells=[cells[place] for place in places],
        rows=len(rows),
        places=places,
        nulls=sum(cell is None for cell in cells),
        empty_lists=sum(cell == [] for cell in cells),
        objects=sum(map(_holds_objects, raw_cells)),
    )


def _holds_objects(cell: Any) -> bool:
    return isinstance(cell, Mapping) or (
        isinstance(cell, list) and any(isinstance(item, Mapping) for item in cell)
    )


def _words(text: str) -> int:
    """Count words, also in scripts without blanks between them."""
    between_blanks = len(text.split())
    return (
        between_blanks if text.isascii() else max(between_blanks, len(words_of(text)))
    )


def _is_written_list(cell: str) -> bool:
    try:
        return not isinstance(list_in(cell), str)
    except (
        ValueError
    ):  # a list in a form that is not read, which `choose_roles` refuses
        return True


def _tried(convert: Callable[[Any], Any], cell: Any) -> Any:
    try:
        return convert(cell)
    except ValueError:  # bytes that are no text, such as an image
        return cell


def _kind(cell: Any) -> Kind:
    if isinstance(cell, list):
        if any(isinstance(item, list | dict) for item in cell):
            return "nested"
        return "list" if cell else "empty"
    if absent(cell):
        return "empty"
    if isinstance(cell, date | time):
        return "date"
    if isinstance(cell, str):
        return "date" if _DATE.fullmatch(cell) else "text"
    return "number" if isinstance(cell, Real | Decimal) else "nested"
