"""Infer the role of each column from its content; names decide between equal candidates."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from xmtc.data.config import Task
from xmtc.data.readers.base import no_column, shown_column
from xmtc.data.readers.cells import labels_of
from xmtc.data.readers.columns import NUMERIC
from xmtc.errors import DataError
from xmtc.init.facts import ColumnFacts, Labels, marked

_TITLES = ("title", "headline", "heading", "subject", "summary", "abstract", "name", "entry", "term", "headword")
_TITLE_WORDS = 1.2  # mean number; codes are one word each
_LABELS = (
    *("labels", "label", "tags", "tag", "categories", "category", "classes", "class", "topics", "topic"),
    *("codes", "code", "subjects", "keywords", "genres", "genre", "target", "targets", "sentiment", "intent", "y"),
)
_IDS = ("id", "doc_id", "docid", "document_id", "uid", "uuid", "key", "pmid", "url")
_SHORT_WORDS, _MOST = 8, 0.9  # most labels have fewer words than a text
_MOST_WORDS = 50  # cells with more on average are texts, not lists of labels
_CLEAR = 0.5  # share of repeated parts of cells, which may then be longer
_SEVERAL_INDICATORS = 3
_CATEGORY_WORDS, _CATEGORY_ROWS = 4, 20
_SAME = 0.95


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The user's options about the data. Default: inferred from the columns' content.

    Attributes:
        text, labels, id, split_column: columns.
        label_separator: separator of labels in a cell; if empty, a cell is one label.
        task: whether a document has one label or any number.
    """

    text: Sequence[str] = ()
    labels: str | None = None
    id: str | None = None
    split_column: str | None = None
    label_separator: str | None = None
    task: Task | None = None


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of the columns.

    Attributes:
        text: columns to join.
        categories: columns with categories.
        labels: the column, or several columns of 0 and 1 named as the labels.
        id, split: columns.
        separator: separator of labels in a cell; None if a cell is one label or a list.
        task: whether a document has one label or any number.
        found: labels of the sample.
        unused: columns that nothing reads.
        why: reasons by role, for the comments in the configuration.
    """

    text: tuple[str, ...]
    categories: tuple[str, ...]
    labels: tuple[str, ...]
    id: str | None
    split: str | None
    separator: str | None
    task: Task
    found: Labels
    unused: tuple[str, ...]
    why: dict[str, str]


def choose_roles(columns: Sequence[ColumnFacts], answers: Answers, place: str) -> Roles:
    """Infer the roles of the columns.

    Args:
        columns: columns of a sample.
        answers: options of the user.
        place: the data, for messages.

    Raises:
        DataError: no column can be the text or the labels; the message describes the columns and names the option.
    """
    nameless = [column.name for column in columns if not _has_name(column)]
    columns = [column for column in columns if _has_name(column)]
    _check_names(columns, answers, place)
    by_name = {column.name: column for column in columns}
    split = answers.split_column or next((column.name for column in columns if column.is_split), None)
    taken = {name for name in (answers.labels, answers.id, split) if name is not None}
    text = tuple(answers.text) or _text([column for column in columns if column.name not in taken], columns, place)
    taken |= set(text)
    rest = [column for column in columns if column.name not in taken]
    labels = _labels(rest, columns, place) if answers.labels is None else (answers.labels,)
    taken |= set(labels)
    column = by_name[labels[0]] if len(labels) == 1 else marked([by_name[name] for name in labels])
    identifier = answers.id or _identifier([column for column in columns if column.name not in taken])
    separator = column.separator() if answers.label_separator is None else answers.label_separator or None
    try:
        for cell in column.cells:
            labels_of(cell, separator)
    except ValueError as problem:
        raise DataError(f"{place}: {labels[0]!r} {problem}") from None
    found = Labels.of(column, separator)
    task, reason = _task(found, answers.task)
    used = {*text, *labels, identifier, split}
    possible = [column for column in columns if column.name not in used and _is_category(column)]
    categories = tuple(one.name for one in possible if not _tells(one, column, found, separator))
    alone = "a list" if column.is_lists or found.several else "one label in each row"
    alone = alone if len(labels) == 1 else "columns of 0 and 1"
    return Roles(
        text=text,
        categories=categories,
        labels=labels,
        id=identifier,
        split=split,
        separator=separator,
        task=task,
        found=found,
        unused=(*(column.name for column in columns if column.name not in {*used, *categories}), *nameless),
        why={
            "text": f"{sum(by_name[name].words for name in text):,.0f} words on average",
            "labels": f"{f'separated by {separator!r}' if separator else alone}; {len(found.counts):,} different ones "
            f"in {found.rows:,} rows",
            "task": reason,
        },
    )


def _has_name(column: ColumnFacts) -> bool:
    """Whether a configuration can name the column; pandas writes its index without a name."""
    return bool(column.name) and not any("\ud800" <= letter <= "\udfff" for letter in column.name)


def check_header(columns: Sequence[ColumnFacts], place: str) -> None:
    """Refuse a CSV file whose first line is a document, where the names of the columns should be.

    Raises:
        DataError: it is.
    """
    # pandas numbers columns that have no names
    numbered = all(column.name.isdecimal() for column in columns if column.name)
    if not numbered and any(_is_named_by_a_cell(column) for column in columns):
        raise DataError(
            f"{place}: the first line looks like a document and not like the names of {len(columns)} columns; "
            "add a line with their names above it, such as text,labels"
        )


def _is_named_by_a_cell(column: ColumnFacts) -> bool:
    """Whether a column's name is a text like its cells, or holds the same labels."""
    words = len(column.name.split())
    text = words > _SHORT_WORDS and words >= column.words / 2
    if text or column.words > _MOST_WORDS:  # the search for labels would take seconds
        return text
    separator = column.separator()
    name = next(ColumnFacts(column.name, "text", [column.name], 1).parts(separator), [])
    counts = Labels.of(column, separator).counts
    least = 2 if separator == " " else 1  # short texts may contain the name of their column
    return column.kind == "text" and len(name) >= least and all(counts[part] > 1 for part in name)


def _check_names(columns: Sequence[ColumnFacts], answers: Answers, place: str) -> None:
    there = [column.name for column in columns]
    named = [one for one in (*answers.text, answers.labels, answers.id, answers.split_column) if one is not None]
    if missing := [name for name in named if name not in there]:
        raise DataError(f"{place}: {no_column(missing[0], there)}")
    if twice := [name for name in named if named.count(name) > 1]:
        raise DataError(f"{place}: the column {twice[0]!r} is named twice; name it for one purpose")


def _text(candidates: Sequence[ColumnFacts], columns: Sequence[ColumnFacts], place: str) -> tuple[str, ...]:
    """Choose the column with the longest texts, preceded by a title if there is one; lists of labels come last."""
    titles = [column for column in candidates if column.words >= _TITLE_WORDS and column.distinct_share > 0.5]
    texts = [column for column in titles if column.words >= 3]
    if not texts:
        raise DataError(f"{place}: no column looks like text; name it with --text. {describe(columns)}")
    longest = max(texts, key=lambda column: (not (column.is_lists and _may_be_labels(column)), column.words))
    return (*[one.name for one in titles if one.name.lower() in _TITLES and one is not longest][:1], longest.name)


def _labels(candidates: Sequence[ColumnFacts], columns: Sequence[ColumnFacts], place: str) -> tuple[str, ...]:
    """Choose the column whose values repeat. Of several, prefer one with a usual name, then a list, then the first.

    Where there is none, a list is the labels, or three or more columns of 0 and 1.
    """
    ranked = sorted(
        [one for one in candidates if _may_be_labels(one)] or [one for one in candidates if one.is_lists],
        key=lambda column: ((*_LABELS, column.name.lower()).index(column.name.lower()), not column.is_lists),
    )
    if ranked:
        best, *others = ranked
        if best.name.lower() in _LABELS or not others or best.is_lists > others[0].is_lists:
            return (best.name,)
        names = ", ".join(shown_column(column.name) for column in ranked)
        raise DataError(
            f"{place}: several columns may be the labels; name it with --labels. They are: {names}. If several are, "
            "write one column that lists the labels of a row, separated by ';', and name it with --labels"
        )
    indicators = [column.name for column in candidates if column.is_indicator]
    if len(indicators) >= _SEVERAL_INDICATORS:
        return tuple(indicators)
    raise DataError(f"{place}: no column looks like labels; name it with --labels. {describe(columns)}")


def _may_be_labels(column: ColumnFacts) -> bool:
    """Whether values are short and repeat. One of several columns of 0 and 1 also needs a usual name."""
    named = column.name.lower() in _LABELS
    if column.kind in ("empty", "date", "nested") or column.name.lower() in _IDS or (column.is_indicator and not named):
        return False
    if column.kind == "number":
        return named or (column.distinct_share < 0.05 and all(float(cell).is_integer() for cell in column.cells))
    separator = column.separator()
    found = Labels.of(column, separator)
    short = sum(len(label.split()) <= _SHORT_WORDS for label in found.counts) >= _MOST * len(found.counts)
    parted = column.is_lists or (separator is not None and found.repeated > _CLEAR)
    return named or (found.repeated > 0.2 and (short or parted))


def _identifier(candidates: Sequence[ColumnFacts]) -> str | None:
    """Choose a column of distinct short values without spaces; of several, one with a usual name."""
    found = [
        column.name
        for column in candidates
        if column.kind in ("text", "number")
        and len(column.cells) == column.rows == column.distinct
        and all(" " not in str(cell) and len(str(cell)) <= 100 for cell in column.cells)
    ]
    return next((name for name in found if name.lower() in _IDS), found[0] if found else None)


def _is_category(column: ColumnFacts) -> bool:
    """Whether a column may be a category.

    At least half of the rows have a value, which is text of at most 4 words and no number, date, true or false, there
    are two values or more, and each occurs in 20 rows on average.
    """
    cells = column.cells
    if column.kind != "text" or column.is_indicator or "=" in column.name or not column.rows / 2 <= len(cells):
        return False
    short = all(len(cell.split()) <= _CATEGORY_WORDS for cell in cells)
    return short and 2 <= column.distinct <= len(cells) / _CATEGORY_ROWS and not any(map(NUMERIC.fullmatch, cells))


def _tells(column: ColumnFacts, labels: ColumnFacts, found: Labels, separator: str | None) -> bool:
    """Whether values are labels, or nearly all documents of a label have the same one: its name, or its group.

    Such a column is not known before the labels are.
    """
    values, by_label = dict(zip(column.places, column.cells, strict=True)), defaultdict[str, Counter[str]](Counter)
    for place, some in zip(labels.places, labels.parts(separator), strict=True):
        for label in some if place in values else ():
            by_label[label][values[place]] += 1
    several = [counts for counts in by_label.values() if counts.total() > 1]
    same = sum(max(counts.values()) for counts in several) > _SAME * sum(counts.total() for counts in several)
    return same or found.counts.keys() >= set(column.cells)


def _task(found: Labels, answer: Task | None) -> tuple[Task, str]:
    if answer is not None:
        return answer, "as requested"
    if found.several:
        return "multi_label", f"{found.several / found.rows:.0%} of the documents have more than one label"
    if found.none:
        return "multi_label", f"{found.none / found.rows:.0%} of the documents have no label"
    return "single_label", "each document has exactly one label"


def describe(columns: Sequence[ColumnFacts]) -> str:
    """Describe each column's kind, number of words and number of distinct values, without showing any value."""
    shown = [f"{shown_column(one.name)} ({_content(one)}, {one.distinct:,} different)" for one in columns]
    return f"The columns of {columns[0].rows if columns else 0:,} rows: {', '.join(shown)}"


def _content(column: ColumnFacts) -> str:
    if column.kind == "text" and not column.is_lists:
        return f"{column.words:,.0f} word{'' if round(column.words) == 1 else 's'}"
    known = {"empty": "empty", "nested": "objects, which xmtc does not read", "text": "lists"}
    return known.get(column.kind, f"{column.kind}s")
