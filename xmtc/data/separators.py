"""Which character stands between labels that share a cell, decided from the cells themselves.

Cells with several labels combine the same labels in ever new ways. So the parts of such cells repeat more often than
the cells do, and a part stands now first, now later, now alone. The parts of a name do not: of `Trade, foreign` and
`Trade, domestic`, `Trade` always comes first. This holds for any character, so that there is no list of separators.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from xmtc.data.readers.cells import split_cell

_RUN = re.compile(r"[^\w\s]+|\s+")
"""What may separate: a run of signs, or a run of blanks."""
_JOINERS = frozenset(" -.'’&/()")
"""Signs that stand within names of many languages, and so need more evidence than others."""
_BRACKETS = frozenset("\"'’()[]{}<>«»“”„")
"""Signs that come in pairs around a part."""
_IRI = "://"
_OF_IRIS = frozenset(":/.#?=&%-~+@!$*")
"""Signs that stand within IRIs."""
_SHARE = 0.02
"""Least share of the cells that have several parts, for a separator that is sure."""
_MORE = 0.1
"""By so much the share of repeated parts must exceed the share of repeated cells …"""
_HARDLY = 0.05
"""… unless at most so many cells repeat: nothing could be learned from them as they are."""
_SOMEWHAT = 0.02
"""By so much it must exceed it then."""
_MOST_WORDS = 6
"""Mean number of parts up to which blanks may separate words; more words are a text, more codes are labels."""
_CODES = 0.8
"""Share of the parts that are codes from which on all are."""
_MOBILE = 0.3
"""Least mobility of parts, where 1 is that of labels in random order, and about 0 that of the parts of names."""
_MOBILE_WORDS = 0.6
"""The same for a sign that stands within names, too."""
_CLASSES = 0.5
"""From this share of documents on whose cell another has, too, cells look like names of classes: `very negative`. A
sign that stands within names must then leave at most half as many parts as there are cells."""
_SORTED = 0.98
"""From this share of cells with sorted parts on, they are lists that somebody sorted; names are not."""
_TWICE = 0.3
"""From this share of cells with a part that occurs twice on, cells are texts: labels do not repeat in a document."""
_LONGER = 0.9
"""A longer separator is taken if its parts repeat at least so much, compared with those of the best."""
_NEARLY_ALL = 0.9
"""From this share of its places on that have a blank beside them, a sign is what separates, and not the blanks."""
_LEAST_CELLS = 2
"""Cells of several parts, below which nothing is inferred."""
_FEW_CELLS = 20
"""Below so many different cells of several parts, evidence is thin."""
_NAMES = {"\t": "tabs", "\n": "line breaks", " ": "blanks"}


@dataclass(frozen=True)
class Separator:
    """A separator of labels, and the evidence for it.

    Attributes:
        text: the separator, such as `;`.
        sure: whether cells should be split by it without asking.
        cells: number of different cells.
        joined: number of different cells that it parts.
        parts: number of different parts.
        examples: two cells that it parts.
    """

    text: str
    sure: bool
    cells: int
    joined: int
    parts: int
    examples: tuple[str, ...]

    @property
    def name(self) -> str:
        """The separator in words, for messages."""
        return _NAMES.get(self.text, f"'{self.text}'")


def separator_of(cells: Mapping[str, int]) -> Separator | None:
    """Infer the separator of labels.

    Args:
        cells: cell -> number of documents that have it; as one label each, if nothing separates them.

    Returns:
        The separator; None if cells seem to be one label each.
    """
    trials = [_Trial.of(cells, sign) for sign in _signs(cells)]
    likely = [trial for trial in trials if trial is not None and trial.is_likely]
    if not likely:
        return None
    if any(_leaves_blanks_to_words(cells, trial.sign) for trial in likely):
        likely = [trial for trial in likely if trial.sign != " "]
    best = max(likely, key=lambda trial: (trial.repeated, len(trial.sign)))
    for trial in likely:  # `::` before `:`, if labels contain the latter
        if (
            best.sign in trial.sign
            and len(trial.sign) > len(best.sign)
            and trial.repeated >= _LONGER * best.repeated
        ):
            best = trial
    examples = [cell for cell in cells if len(parts_of(cell, best.sign)) > 1][:2]
    return Separator(
        best.sign, best.is_sure, len(cells), best.joined, best.distinct, tuple(examples)
    )


def parts_of(cell: str, separator: str) -> list[str]:
    """Split a cell; return it whole if a part would begin or end within brackets or quotes."""
    pieces = cell.split() if separator == " " else split_cell(cell, separator)
    parts = [part.strip() for part in pieces if part.strip()]
    balanced = all(
        part.count("(") == part.count(")") and part.count('"') % 2 == 0
        for part in parts
    )
    return parts if balanced else [cell]


def _leaves_blanks_to_words(cells: Iterable[str], sign: str) -> bool:
    """Whether blanks part words, because another sign separates: it has a blank beside it, as in `law; trade`.

    Tabs and line breaks are never within a label, so they separate if anything does.
    """
    if sign.isspace():
        return sign != " "
    number = 0
    beside = 0
    for cell in cells:
        pieces = [piece for piece in cell.split(sign) if piece.strip()]
        number += max(
            len(pieces) - 1, 0
        )  # a sign behind the last label is not between two
        for before, after in itertools.pairwise(pieces):
            beside += before.endswith(" ") or after.startswith(" ")
    return beside >= _NEARLY_ALL * number


def _signs(cells: Iterable[str]) -> list[str]:
    """List what may separate: the runs of signs within cells, and each sign of them."""
    runs: Counter[str] = Counter()
    has_iris = False
    for cell in cells:
        has_iris = has_iris or _IRI in cell
        runs.update(set(_RUN.findall(cell.strip())))
    signs: Counter[str] = Counter()
    for run, number in runs.items():
        if run.isspace():
            for blank in set(run) & {"\t", "\n"} or {" "}:
                signs[blank] += number
            continue
        for sign in {run, *run} - {""}:
            signs[sign] += number
    return [
        sign
        for sign, number in signs.items()
        if number >= _LEAST_CELLS and _may_separate(sign, has_iris)
    ]


def _may_separate(sign: str, has_iris: bool) -> bool:
    if has_iris and not _OF_IRIS.isdisjoint(sign):
        return False
    is_mark = any(
        unicodedata.category(letter).startswith(("M", "C")) and not letter.isspace()
        for letter in sign
    )
    return _BRACKETS.isdisjoint(sign) and not is_mark


@dataclass(frozen=True)
class _Trial:
    """Cells split by a sign.

    Attributes:
        sign: the sign.
        cells: number of different cells.
        joined: number of different cells that it parts.
        documents: number of documents whose cells it parts, as a share.
        distinct: number of different parts.
        total: number of pairs of a document and a part.
        whole: share of documents whose cell another document has, too.
        mobility: see `_mobility`.
        twice: share of the parted cells in which a part occurs twice.
        ordered: share of the parted cells whose parts are sorted.
        within: whether the sign may be part of a name: it is one that stands within names, without blanks around it.
    """

    sign: str
    cells: int
    joined: int
    documents: float
    distinct: int
    total: int
    whole: float
    mobility: float
    twice: float
    ordered: float
    within: bool

    @classmethod
    def of(cls, cells: Mapping[str, int], sign: str) -> "_Trial | None":
        """Split cells; None if too few have several parts."""
        parts_by_cell = {cell: parts_of(cell, sign) for cell in cells}
        joined = [cell for cell, parts in parts_by_cell.items() if len(parts) > 1]
        split_cells = [parts_by_cell[cell] for cell in joined]
        if (
            len(joined) < _LEAST_CELLS
            or _is_prose(sign, split_cells)
            or _leaves_signs(split_cells)
        ):
            return None
        documents = sum(cells.values())
        uses: Counter[str] = Counter()
        for cell, parts in parts_by_cell.items():
            for part in set(parts):
                uses[part] += cells[cell]
        twice = sum(
            len(set(parts_by_cell[cell])) < len(parts_by_cell[cell]) for cell in joined
        )
        ordered = sum(
            parts_by_cell[cell] == sorted(parts_by_cell[cell], key=str.casefold)
            for cell in joined
        )
        return cls(
            sign=sign,
            cells=len(cells),
            joined=len(joined),
            documents=sum(cells[cell] for cell in joined) / documents,
            distinct=len(uses),
            total=uses.total(),
            whole=1 - len(cells) / documents,
            mobility=_mobility(parts_by_cell.values()),
            twice=twice / len(joined),
            ordered=ordered / len(joined),
            within=_may_be_within(sign, joined),
        )

    @property
    def repeated(self) -> float:
        """Share of the pairs of a document and a part whose part another document has, too."""
        return 1 - self.distinct / max(self.total, 1)

    @property
    def is_likely(self) -> bool:
        """Whether parts repeat more than cells do, and change their places as labels do."""
        more = _SOMEWHAT if self.whole < _HARDLY else _MORE
        recombined = self.distinct < self.cells or self.repeated > self.whole + more
        is_sorted = self.ordered >= _SORTED and self.joined >= _FEW_CELLS
        mobility = _MOBILE_WORDS if self.within and not is_sorted else _MOBILE
        if self.within and self.whole >= _CLASSES and 2 * self.distinct > self.cells:
            return False
        return (
            recombined
            and self.repeated > self.whole
            and self.mobility >= mobility
            and self.twice < _TWICE
        )

    @property
    def is_sure(self) -> bool:
        """Whether there is enough evidence to split cells without asking."""
        clearly = self.distinct < self.cells or self.repeated > self.whole + _MORE
        most_cells = self.whole < _HARDLY and self.joined > self.cells / 2
        enough = self.documents >= _SHARE and self.joined >= min(
            _FEW_CELLS, 0.2 * self.cells
        )
        return (clearly or most_cells) and enough


def _is_prose(sign: str, split_cells: Sequence[Sequence[str]]) -> bool:
    """Whether blanks part cells into too many words for labels that are words."""
    if sign != " ":
        return False
    parts = list(chain.from_iterable(split_cells))
    codes = sum(
        part.isupper() or any(letter.isdigit() or letter == "_" for letter in part)
        for part in parts
    )
    return len(parts) > _MOST_WORDS * len(split_cells) and codes < _CODES * len(parts)


def _leaves_signs(split_cells: Sequence[Sequence[str]]) -> bool:
    """Whether some cells have parts without a letter or digit, as blanks leave them around a separator."""
    leaving = sum(
        any(not any(map(str.isalnum, part)) for part in parts) for parts in split_cells
    )
    return leaving > _SHARE * len(split_cells)


def _may_be_within(sign: str, joined: Sequence[str]) -> bool:
    """Whether a sign stands within names of many languages, and here without blanks on both sides."""
    if _JOINERS.isdisjoint(sign):
        return False
    padded = sum(f" {sign} " in cell for cell in joined)
    return sign == " " or padded < len(joined) / 2


def _mobility(split_cells: Iterable[Sequence[str]]) -> float:
    """Say how freely parts change between the first place of a cell and a later one.

    Two occurrences of a part are drawn. The result is the probability that one is first and the other is not, divided
    by what it would be if places had nothing to do with parts. It is 1 for labels in random order, about 0.6 for
    sorted ones, and about 0 for the parts of names. A part alone in its cell stands first.
    """
    first: Counter[str] = Counter()
    later: Counter[str] = Counter()
    for parts in split_cells:
        first.update(parts[:1])
        later.update(parts[1:])
    mixed = 0.0
    repeated_first = 0
    repeated = 0
    for part in set(chain(first, later)):
        number = first[part] + later[part]
        if number > 1:
            mixed += 2 * first[part] * later[part] / (number - 1)
            repeated_first += first[part]
            repeated += number
    if repeated == 0:
        return 0.0
    share = repeated_first / repeated
    expected = 2 * share * (1 - share) * repeated
    return mixed / expected if expected else 0.0
