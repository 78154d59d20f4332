"""Infer the role of each column from its content; names decide between equal candidates."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from xmtc.data.config import Task
from xmtc.data.readers.base import no_column, quoted_label, shown_column
from xmtc.data.readers.cells import labels_of
from xmtc.data.readers.columns import NUMERIC
from xmtc.data.readers.exports.base import ID, LABELS, OF_QUESTION, REJECTED
from xmtc.data.separators import Separator
from xmtc.errors import DataError
from xmtc.init.answers import Answers
from xmtc.init.facts import ColumnFacts, Labels, joined, marked

_TITLES = (
    "title",
    "headline",
    "heading",
    "subject",
    "summary",
    "abstract",
    "name",
    "entry",
    "term",
    "headword",
)
_TITLE_WORDS = 1.2
"""Least mean number of words of a title; codes are one word each."""
_TEXT_WORDS = 3
"""Least mean number of words of a text."""
_REPEATED_WORDS = 12
"""Least mean number of words of a text that several rows have; names of labels, which repeat too, have fewer."""
_LABELS = (
    *(
        "labels",
        "label",
        "tags",
        "tag",
        "categories",
        "category",
        "classes",
        "class",
        "topics",
        "topic",
    ),
    *(
        "codes",
        "code",
        "subjects",
        "keywords",
        "genres",
        "genre",
        "target",
        "targets",
        "sentiment",
        "intent",
        "y",
    ),
)
"""Usual names of columns of labels, from the clearest."""
_IDS = ("id", "doc_id", "docid", "document_id", "uid", "uuid", "key", "pmid", "url")
_SHORT_WORDS = 8
"""Most words of a label …"""
_SHORT_SHARE = 0.9
"""… in this share of the labels."""
_MOST_WORDS = 50
"""Cells with more on average are texts, not lists of labels."""
_CLEAR = 0.5
"""Share of repeated parts of cells from which on labels may be longer."""
_REPEATED = 0.2
"""Share of repeated values from which on they may be labels."""
_LEAST_VALUES = 2
"""Different cells of a column of labels."""
_SEVERAL_INDICATORS = 3
"""Columns of 0 and 1 that are labels together; one or two may be anything."""
_CATEGORY_WORDS = 4
"""Most words of a category."""
_CATEGORY_ROWS = 20
"""Rows that each value of a category has on average, at least."""
_STATUS = frozenset(
    {
        *("answer", "status", "state", "decision", "accepted", "approved", "reviewed"),
        *("verified", "validated", "valid", "checked", "confirmed", "annotated"),
    }
)
"""Words in the names of columns by which tools say whether somebody accepted the labels …"""
_REFUSAL = frozenset(
    {"rejected", "refused", "ignored", "skipped", "discarded", "deleted", "invalid"}
)
"""… or refused them."""
_WORD = re.compile(r"[^\W\d_]+")
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where a word of a name such as isValid begins."""
_STATUS_VALUES = 8
"""Most values of such a column."""
_ACCEPTED = (
    "accept",
    "accepted",
    "true",
    "1",
    "yes",
    "done",
    "completed",
    "submitted",
    "validated",
    "reviewed",
    "valid",
    "approved",
    "confirmed",
    "y",
    "t",
    "ok",
)
"""Values that probably say so."""
_NOT_REFUSED = ("false", "0", "no", "n", "f")
"""Values that probably say that nobody refused them."""
_ANNOTATED = frozenset(("model", "by", "at", "rejected"))
_REVIEWED = frozenset(("suggested", "accepted", "added"))
"""Columns of what `xmtc serve --annotations` writes when a person judged suggestions."""
_OF_ANNOTATION = frozenset(
    {
        *(
            "annotator",
            "annotators",
            "annotated_by",
            "user",
            "reviewer",
            "completed_by",
            "updated_by",
            "created_by",
        ),
        *(
            "annotation_id",
            "lead_time",
            "created_at",
            "updated_at",
            "agreement",
            "session",
            "confidence",
        ),
    }
)
"""Columns that tools fill in while labels are given."""
_NUMBERED = re.compile(r"([^\W\d_]+)[ _.-]?\d+")
"""Names such as label1 or tag_2."""
_DESCRIBED = 30
"""Columns that a message describes."""
_LONGEST_ID = 100
"""Most characters of an identifier."""
_PARTS = 0.2
"""From this share of rows on whose text occurs before with another label, rows are labels and not documents."""
_ALONE = 0.1
"""Most rows with a label, but without a text."""
_SAME = 0.95
"""Share of the documents of a label from which on their common category tells the label."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The roles of the columns.

    Attributes:
        text: columns to join.
        categories: columns with categories.
        labels: the column, or several columns of 0 and 1 named as the labels, or several columns of labels.
        label_cells: what several columns hold; see `ColumnsConfig`.
        rejected: column with labels that were judged not to fit.
        null_labels: what null labels mean.
        status: column that says whether labels were accepted, with the values that count; None if none does.
        join_rows: whether rows of the same text are one document.
        id, split: columns.
        separator: separator of labels in a cell; None if a cell is one label or a list.
        separation: evidence for a separator, whether it is taken or too thin; None if nothing seems to separate labels,
            or the user says what does.
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
    label_cells: Literal["marks", "ticks", "labels"] = "marks"
    rejected: str | None = None
    null_labels: Literal["none", "unjudged"] = "none"
    status: tuple[str, tuple[str, ...]] | None = None
    join_rows: bool = False
    separator: str | None
    separation: Separator | None
    task: Task
    found: Labels
    unused: tuple[str, ...]
    why: dict[str, str]


@dataclass(frozen=True)
class Surroundings:
    """What the files say about columns beside their content.

    Attributes:
        export_columns: whether `labels`, `rejected` and `id` are the columns of these roles, as other tools' formats
            have them.
        later_columns: columns of files with new texts; None if there are none. Others are not known for new texts.
    """

    export_columns: bool = False
    later_columns: frozenset[str] | None = None


def choose_roles(
    columns: Sequence[ColumnFacts],
    answers: Answers,
    place: str,
    around: Surroundings = Surroundings(),
) -> Roles:
    """Infer the roles of the columns.

    Args:
        columns: columns of a sample.
        answers: options of the user.
        place: the data, for messages.
        around: what the files say about them.

    Raises:
        DataError: no column can be the text or the labels, or it is not clear which documents were accepted; the
            message describes the columns and names the option.
    """
    nameless = [column.name for column in columns if not _has_name(column)]
    columns = [column for column in columns if _has_name(column)]
    by_name = {column.name: column for column in columns}
    if by_name.keys() >= _ANNOTATED or by_name.keys() >= _REVIEWED:
        around = replace(around, export_columns=True)
        columns = [column for column in columns if column.name not in _REVIEWED]
    if around.export_columns:
        _check_questions(by_name, answers, place)
        columns = [
            column
            for column in columns
            if not column.name.startswith(OF_QUESTION) or column.name == answers.labels
        ]
        answers = replace(
            answers,
            labels=answers.labels or LABELS,
            id=answers.id
            or (ID if ID in by_name and _identifies(by_name[ID]) else None),
        )
    _check_names(columns, answers, place)
    rejected = REJECTED if around.export_columns and REJECTED in by_name else None
    not_status = set() if rejected is None else {rejected}
    status = accepted_values(_without(columns, not_status), answers, place)
    split = answers.split_column or next(
        (column.name for column in columns if column.is_split), None
    )

    used = {
        column
        for column in (answers.labels, answers.id, split, rejected)
        if column is not None
    }
    if status is not None:
        used.add(status[0])
    text = tuple(answers.text) or _text(_without(columns, used), columns, place)
    used.update(text)
    if answers.labels:
        labels = (answers.labels,)
    else:
        candidates = _without(columns, used)
        labels = _by_name(_labels(candidates, columns, place), candidates)
    used.update(labels)
    identifier = answers.id or _identifier(_without(columns, used))
    if identifier is not None:
        used.add(identifier)

    label_facts = [by_name[name] for name in labels]
    _check_texts([by_name[name] for name in text], label_facts, place)
    are_marks = all(column.is_marks for column in label_facts)
    label_cells: Literal["marks", "ticks", "labels"] = "marks"
    if len(labels) > 1 and not are_marks:
        label_cells = "labels"
    elif len(labels) > 1 and all(column.has_only_ticks for column in label_facts):
        label_cells = "ticks"
    if len(labels) == 1:
        column = label_facts[0]
    else:
        column = marked(label_facts) if are_marks else joined(label_facts)
    separator = (
        column.separator()
        if answers.label_separator is None
        else answers.label_separator or None
    )
    _check_labels(column, separator, f"{place}: {label_facts[0].name!r}")
    labels_found = Labels.of(column, separator)
    are_parts = (
        answers.task != "single_label"
        and not labels_found.several
        and _are_parts(by_name[text[-1]], column)
    )
    if are_parts:
        column = _joined_by_text(by_name[text[-1]], column)
        labels_found = Labels.of(column, None)
    task, task_reason = _task(labels_found, answers.task)
    candidates = [
        candidate
        for candidate in _without(columns, used)
        if not are_parts and _is_category(candidate)
    ]
    categories = [
        candidate.name
        for candidate in candidates
        if _is_known_later(candidate.name, around)
        and not _tells(candidate, column, labels_found, separator)
    ]
    used.update(categories)
    return Roles(
        text=text,
        categories=tuple(categories),
        labels=labels,
        label_cells=label_cells,
        rejected=rejected,
        null_labels="unjudged"
        if len(labels) == 1 and column.has_nulls_and_empty_lists
        else "none",
        status=status,
        join_rows=are_parts,
        id=identifier,
        split=split,
        separator=separator,
        separation=column.separation if answers.label_separator is None else None,
        task=task,
        found=labels_found,
        unused=(*(unused.name for unused in _without(columns, used)), *nameless),
        why={
            "text": f"{sum(by_name[name].words for name in text):,.0f} words on average",
            "labels": f"{_how_written(column, labels, labels_found, separator, are_marks, are_parts)}; "
            f"{len(labels_found.counts):,} different ones in {labels_found.rows:,} rows",
            "task": task_reason,
        },
    )


def _check_questions(
    columns: Mapping[str, ColumnFacts], answers: Answers, place: str
) -> None:
    """Ask which of several questions the labels answer.

    Raises:
        DataError: there are several, and the user names none.
    """
    questions = [name for name in columns if name.startswith(OF_QUESTION)]
    if len(questions) > 1 and answers.labels is None:
        options = " or ".join(f"--labels {shlex.quote(name)}" for name in questions)
        raise DataError(
            f"{place}: the labels answer several questions; give {options}, or --labels {LABELS} for all of them"
        )


def _are_parts(texts: ColumnFacts, labels: ColumnFacts) -> bool:
    """Whether many texts occur again with another label, so that a row is one label of a document."""
    seen: defaultdict[str, set[str]] = defaultdict(set)
    again = 0
    for text, label in _pairs(texts, labels):
        again += bool(seen[text] - {label})
        seen[text].add(label)
    return again >= _PARTS * max(len(labels.cells), 1)


def _joined_by_text(texts: ColumnFacts, labels: ColumnFacts) -> ColumnFacts:
    """Join the labels of each text to a list."""
    by_text: defaultdict[str, list[str]] = defaultdict(list)
    for text, label in _pairs(texts, labels):
        by_text[text].append(label)
    lists = [list(dict.fromkeys(labels_of_text)) for labels_of_text in by_text.values()]
    return ColumnFacts(labels.name, "list", lists, len(lists), range(len(lists)))


def _pairs(texts: ColumnFacts, labels: ColumnFacts) -> Iterator[tuple[str, str]]:
    """Yield the text and the label of each row with both."""
    text_of_row = dict(zip(texts.places, texts.cells, strict=True))
    for place, label in zip(labels.places, labels.cells, strict=True):
        if place in text_of_row:
            yield str(text_of_row[place]), str(label)


def _check_texts(
    texts: Sequence[ColumnFacts], labels: Sequence[ColumnFacts], place: str
) -> None:
    """Refuse a table that gives some labels in rows of their own, below the text.

    Raises:
        DataError: it does.
    """
    with_text = {row for column in texts for row in column.places}
    alone = {row for column in labels for row in column.places} - with_text
    rows = texts[0].rows
    if len(alone) > _ALONE * rows:
        names = " or ".join(shown_column(column.name) for column in texts)
        raise DataError(
            f"{place}: {len(alone):,} of {rows:,} rows have labels and no text in {names}; if "
            "they belong to the text above, write it into these rows, too (OpenRefine: Edit cells > Fill down; pandas: "
            "table.ffill()): rows of the same text become one document; if they do not, take them out"
        )


def _is_known_later(name: str, around: Surroundings) -> bool:
    """Whether new texts will have a column: annotation tools fill some in only when labels are given."""
    if around.later_columns is not None and name not in around.later_columns:
        return False
    return name.lower() not in _OF_ANNOTATION and not _is_status(name)


def accepted_values(
    columns: Sequence[ColumnFacts], answers: Answers, place: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return the column that says whether labels were accepted, with the values that count.

    Raises:
        DataError: a column may say so, and the user does not say whether it does; or names none.
    """
    by_name = {column.name: column for column in columns}
    if answers.accept is not None and answers.accept != "all":
        name, equals, values = answers.accept.partition("=")
        if not equals or name not in by_name:
            raise DataError(
                f"{place}: --accept {answers.accept}: {no_column(name, by_name)}; give COLUMN=VALUE, or all"
            )
        return name, tuple(value.strip() for value in values.split(","))
    if answers.accept == "all":
        return None
    for column in columns:
        if (
            not _is_status(column.name)
            or column.name in answers.columns()
            or column.distinct < 2
        ):
            continue
        counts = Counter(str(cell) for cell in column.cells).most_common(_STATUS_VALUES)
        if column.distinct <= _STATUS_VALUES:
            shown = ", ".join(
                f"{quoted_label(value)} {number:,}" for value, number in counts
            )
            good = _NOT_REFUSED if _words_of(column.name) & _REFUSAL else _ACCEPTED
            likely = next(
                (value for value, _ in counts if value.lower() in good), counts[0][0]
            )
            raise DataError(
                f"{place}: the column {column.name!r} may say whether labels were accepted ({shown}); give "
                f"--accept '{column.name}={likely}' to leave the other documents out, or --accept all"
            )
    return None


def _words_of(name: str) -> set[str]:
    return set(_WORD.findall(_CAPITAL.sub(" ", name).lower()))


def _is_status(name: str) -> bool:
    """Whether a column's name says that it tells whether labels were accepted."""
    return not _words_of(name).isdisjoint(_STATUS | _REFUSAL)


def _without(columns: Sequence[ColumnFacts], names: set[str]) -> list[ColumnFacts]:
    return [column for column in columns if column.name not in names]


def _has_name(column: ColumnFacts) -> bool:
    """Whether a configuration can name the column; pandas writes its index without a name."""
    return bool(column.name) and not any(
        "\ud800" <= letter <= "\udfff" for letter in column.name
    )


def _check_labels(column: ColumnFacts, separator: str | None, where: str) -> None:
    """Raise DataError if a cell of the sample holds no labels."""
    try:
        for cell in column.cells:
            labels_of(cell, separator)
    except ValueError as problem:
        raise DataError(f"{where} {problem}") from None


def _how_written(
    column: ColumnFacts,
    labels: Sequence[str],
    found: Labels,
    separator: str | None,
    are_marks: bool,
    are_parts: bool,
) -> str:
    """Say in words how labels are written in the rows."""
    if are_parts:
        return "one in each row of a text, joined; --task single_label reads each row as a document"
    if separator:
        return f"separated by {separator!r}"
    if len(labels) > 1:
        return "columns of 0 and 1" if are_marks else "several columns"
    return "a list" if column.is_lists or found.several else "one label in each row"


def check_header(columns: Sequence[ColumnFacts], place: str) -> None:
    """Refuse a CSV file whose first line is a document, where the names of the columns should be.

    Raises:
        DataError: it is.
    """
    # pandas numbers columns that have no names
    numbered = all(column.name.isdecimal() for column in columns if column.name)
    if not numbered and any(_is_named_by_a_cell(column) for column in columns):
        raise DataError(
            f"{place}: the first line looks like a document and not like the names of {len(columns)} columns; give "
            f"their names with data.source.header='[{','.join(_proposed_names(columns))}]', or add a line with them"
        )


def _proposed_names(columns: Sequence[ColumnFacts]) -> list[str]:
    """Propose names for columns without names: text and labels by their content."""
    longest = max(columns, key=lambda column: column.words)
    others = [column for column in columns if column is not longest]
    labels = [column for column in others if _may_be_labels(column)] or others
    names = {id(longest): "text"} | {id(column): "labels" for column in labels[:1]}
    return [
        names.get(id(column), f"column{number}")
        for number, column in enumerate(columns, start=1)
    ]


def _is_named_by_a_cell(column: ColumnFacts) -> bool:
    """Whether a column's name is a text like its cells, or holds the same labels."""
    words = len(column.name.split())
    is_text = words > _SHORT_WORDS and words >= column.words / 2
    if is_text or column.words > _MOST_WORDS or column.kind != "text":
        return is_text
    separator = column.separator()
    parts = next(
        ColumnFacts(column.name, "text", [column.name], 1).parts(separator), []
    )
    counts = Labels.of(column, separator).counts
    least = (
        2 if separator == " " else 1
    )  # short texts may contain the name of their column
    return len(parts) >= least and all(counts[part] > 1 for part in parts)


def _check_names(columns: Sequence[ColumnFacts], answers: Answers, place: str) -> None:
    """Raise DataError if the user names a column that is not there, or one for two purposes."""
    present = [column.name for column in columns]
    named = answers.columns()
    for name in named:
        if name not in present:
            raise DataError(f"{place}: {no_column(name, present)}")
        if named.count(name) > 1:
            raise DataError(
                f"{place}: the column {name!r} is named twice; name it for one purpose"
            )


def _text(
    candidates: Sequence[ColumnFacts], columns: Sequence[ColumnFacts], place: str
) -> tuple[str, ...]:
    """Choose the column with the longest texts, preceded by a title if there is one; lists of labels come last."""
    candidates = [column for column in candidates if not column.objects]
    titles = [
        column
        for column in candidates
        if column.words >= _TITLE_WORDS and column.distinct_share > 0.5
    ]
    titles += [column for column in candidates if column.is_paragraphs]
    texts = [column for column in titles if column.words >= _TEXT_WORDS]
    if not texts:  # a row for each label, or for each annotator, repeats its text
        texts = [
            column
            for column in candidates
            if column.words >= _REPEATED_WORDS and not column.is_lists
        ]
    if not texts:
        raise DataError(
            f"{place}: no column looks like text; name it with --text. {describe(columns)}"
        )
    longest = max(
        texts,
        key=lambda column: (
            not (column.is_lists and _may_be_labels(column)),
            column.words,
        ),
    )
    for column in titles:
        if column.name.lower() in _TITLES and column is not longest:
            return (column.name, longest.name)
    return (longest.name,)


def _labels(
    candidates: Sequence[ColumnFacts], columns: Sequence[ColumnFacts], place: str
) -> tuple[str, ...]:
    """Choose the column whose values repeat. Of several, prefer one with a usual name, then a list, then the first.

    Where there is none, a list is the labels, or three or more columns of 0 and 1.
    """
    indicators = [column.name for column in candidates if column.is_marks]
    are_labels = len(indicators) >= _SEVERAL_INDICATORS
    possible = [
        column
        for column in candidates
        if _may_be_labels(column) and not (are_labels and column.name in indicators)
    ]
    possible = possible or [column for column in candidates if column.is_lists]
    numbered = _numbered(candidates)
    if numbered:
        return numbered
    only_numbers = all(
        column.name.lower() not in _LABELS
        and all(NUMERIC.fullmatch(str(cell)) for cell in column.cells)
        for column in possible
    )
    if only_numbers and are_labels:
        return tuple(indicators)
    if possible:
        return (_best_labels(possible, place),)
    raise DataError(
        f"{place}: no column looks like labels; name it with --labels. {describe(columns)}"
    )


def _by_name(
    labels: tuple[str, ...], candidates: Sequence[ColumnFacts]
) -> tuple[str, ...]:
    """Replace a column of numbers of classes by one with their names, such as `label` by `label_text`."""
    (first, *others) = labels
    by_name = {column.name: column for column in candidates}
    numbers = by_name[first]
    if others or not all(str(cell).isdecimal() for cell in numbers.cells):
        return labels
    for column in candidates:
        is_name = column.kind == "text" and not column.is_marks
        pairs = set(_pairs(numbers, column))
        if (
            is_name
            and column.name.lower().startswith(first.lower())
            and 1 < len(pairs) == column.distinct == numbers.distinct
            and not any(cell.isdecimal() for cell in column.cells)
        ):
            return (column.name,)
    return labels


def _numbered(candidates: Sequence[ColumnFacts]) -> tuple[str, ...]:
    """List columns such as label1, label2, label3, which hold a label each."""
    by_stem: defaultdict[str, list[str]] = defaultdict(list)
    for column in candidates:
        match = _NUMBERED.fullmatch(column.name)
        if (
            match is not None
            and match[1].lower() in _LABELS
            and column.kind == "text"
            and not column.is_indicator
        ):
            by_stem[match[1]].append(column.name)
    return next((tuple(names) for names in by_stem.values() if len(names) > 1), ())


def _best_labels(possible: Sequence[ColumnFacts], place: str) -> str:
    """Choose one of the columns that may be the labels.

    Raises:
        DataError: nothing decides between them.
    """
    usual = [*_LABELS]

    def rank(column: ColumnFacts) -> tuple[int, bool]:
        name = column.name.lower()
        return usual.index(name) if name in usual else len(usual), not column.is_lists

    best, *rest = sorted(possible, key=rank)
    if best.name.lower() in usual or not rest or best.is_lists > rest[0].is_lists:
        return best.name
    called = [column.name for column in possible if _words_of(column.name) & {*_LABELS}]
    if len(called) == 1:
        return called[0]
    names = ", ".join(shown_column(column.name) for column in (best, *rest))
    raise DataError(
        f"{place}: several columns may be the labels; name it with --labels. They are: {names}. If several are, "
        "write one column that lists the labels of a row, separated by ';', and name it with --labels"
    )


def _may_be_labels(column: ColumnFacts) -> bool:
    """Whether values are short and repeat. One of several columns of 0 and 1 also needs a usual name."""
    has_usual_name = column.name.lower() in _LABELS
    if column.kind in ("empty", "date", "nested") or column.name.lower() in _IDS:
        return False
    if (column.is_indicator or column.distinct < _LEAST_VALUES) and not has_usual_name:
        return False
    if column.kind == "number":
        return has_usual_name or (
            column.distinct_share < 0.05
            and all(_is_whole(cell) for cell in column.cells)
        )
    separator = column.separator()
    labels = Labels.of(column, separator)
    short = sum(len(label.split()) <= _SHORT_WORDS for label in labels.counts)
    mostly_short = short >= _SHORT_SHARE * len(labels.counts)
    parted = column.is_lists or (separator is not None and labels.repeated > _CLEAR)
    return has_usual_name or (labels.repeated > _REPEATED and (mostly_short or parted))


def _is_whole(cell: float) -> bool:
    return float(cell).is_integer()


def _identifier(candidates: Sequence[ColumnFacts]) -> str | None:
    """Choose a column of distinct short values without spaces; of several, one with a usual name."""
    identifiers = [column.name for column in candidates if _identifies(column)]
    for name in identifiers:
        if name.lower() in _IDS:
            return name
    return identifiers[0] if identifiers else None


def _identifies(column: ColumnFacts) -> bool:
    if (
        column.kind not in ("text", "number")
        or not len(column.cells) == column.rows == column.distinct
    ):
        return False
    return all(
        " " not in str(cell) and len(str(cell)) <= _LONGEST_ID for cell in column.cells
    )


def _is_category(column: ColumnFacts) -> bool:
    """Whether a column may be a category.

    At least half of the rows have a value, which is text of at most 4 words and no number, date, true or false, there
    are two values or more, and each occurs in 20 rows on average.
    """
    cells = column.cells
    if (
        column.kind != "text"
        or column.is_indicator
        or "=" in column.name
        or len(cells) < column.rows / 2
    ):
        return False
    if not 2 <= column.distinct <= len(cells) / _CATEGORY_ROWS:
        return False
    return all(
        len(cell.split()) <= _CATEGORY_WORDS and not NUMERIC.fullmatch(cell)
        for cell in cells
    )


def _tells(
    column: ColumnFacts, labels: ColumnFacts, found: Labels, separator: str | None
) -> bool:
    """Whether values are labels, or nearly all documents of a label have the same one: its name, or its group.

    Such a column is not known before the labels are.
    """
    if found.counts.keys() >= set(column.cells):
        return True
    value_of_row = dict(zip(column.places, column.cells, strict=True))
    values_by_label: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, labels_of_row in zip(
        labels.places, labels.parts(separator), strict=True
    ):
        if place in value_of_row:
            for label in labels_of_row:
                values_by_label[label][value_of_row[place]] += 1
    repeated = [values for values in values_by_label.values() if values.total() > 1]
    same = sum(max(values.values()) for values in repeated)
    return same > _SAME * sum(values.total() for values in repeated)


def _task(found: Labels, answer: Task | None) -> tuple[Task, str]:
    """Say whether documents have one label each, and why it is thought so."""
    if answer is not None:
        return answer, "as requested"
    if found.several:
        return (
            "multi_label",
            f"{found.several / found.rows:.0%} of the documents have more than one label",
        )
    if found.none:
        return (
            "multi_label",
            f"{found.none / found.rows:.0%} of the documents have no label",
        )
    return "single_label", "each document has exactly one label"


def separation_notes(roles: Roles) -> list[str]:
    """Say by what cells are split, or that they may have to be, with two example cells."""
    separation = roles.separation
    if separation is None:
        return []
    examples = " and ".join(quoted_label(cell, "cell") for cell in separation.examples)
    if roles.separator is not None:
        return [
            f"labels are separated by {separation.name}, as in {examples}; --label-separator names another one"
        ]
    return [
        f"warning: {separation.joined:,} of {separation.cells:,} different cells of labels hold {separation.name}, "
        f"such as {examples}; the evidence is thin, so that each is one label; to split them, give "
        f"--label-separator {separation.text!r}"
    ]


def describe(columns: Sequence[ColumnFacts]) -> str:
    """Describe each column's kind, number of words and number of distinct values, without showing any value."""
    rows = columns[0].rows if columns else 0
    shown = [
        f"{shown_column(column.name)} ({_content(column)}, {column.distinct:,} different)"
        for column in columns[:_DESCRIBED]
    ]
    if len(columns) > _DESCRIBED:
        shown.append(f"and {len(columns) - _DESCRIBED:,} more")
    return f"The columns of {rows:,} rows: {', '.join(shown)}{_opening(columns)}"


def _opening(columns: Sequence[ColumnFacts]) -> str:
    """Say why objects are no labels; nothing if there are no objects."""
    for column in columns:
        if column.objects:
            try:
                labels_of(column.cells[0] if column.cells else None)
            except ValueError as problem:
                return f". {column.name!r} {problem}"
    return ""


def _content(column: ColumnFacts) -> str:
    """Say what a column holds."""
    if column.kind == "nested" or (column.objects and column.kind == "text"):
        return "objects, which xmtc does not read"
    if column.is_lists:
        return "lists"
    if column.kind == "empty":
        return "empty"
    if column.kind == "text":
        words = f"{column.words:,.0f}"
        return "1 word" if words == "1" else f"{words} words"
    return f"{column.kind}s"
