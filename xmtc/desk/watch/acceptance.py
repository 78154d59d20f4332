"""What people make of suggestions: acceptance, labels always refused or never offered, agreement, course over time."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
from pydantic import AwareDatetime, BaseModel, NonNegativeInt

from xmtc.data.bins import bin_mask
from xmtc.desk.annotate.annotations import annotation_lines, document_of
from xmtc.errors import DataError
from xmtc.evaluate.bootstrap import ratio_interval
from xmtc.evaluate.metrics import Ratio
from xmtc.evaluate.summary import percent
from xmtc.files import reading
from xmtc.fusion.config import BINS
from xmtc.report.section import Paragraph, Part, Table, label_title

_OFTEN = 3
"""Refusals or additions of a label from which it is listed."""
_DAYS = 90
"""A longer time is shown by months."""
_VERSION_DIGITS = 12
_SHOWN_WORDS = 5
_UNKNOWN = "–"


class Mentioned(BaseModel):
    """A label that a person saw or added."""

    label: str
    name: str = ""
    train_count: NonNegativeInt = 0
    predicted: bool = False
    words: list[str] = []

    @property
    def title(self) -> str:
        """The label with its name, for a table."""
        return label_title(self.label, self.name)

    @property
    def bin(self) -> str:
        """The bin of its number of training documents."""
        return _bin_of(self.train_count)


@cache
def _bin_of(count: int) -> str:
    return next(name for name in BINS if bin_mask(name, np.array([count]))[0])


class Annotation(BaseModel):
    """A line of an annotations file, without the text; see `xmtc.desk.annotate.annotations`."""

    document: str
    labels: list[str]
    by: str | None = None
    at: AwareDatetime | None = None
    model: Mapping[str, str] | None = None
    suggested: list[Mentioned] | None = None
    rejected: list[str] | None = None
    added: list[Mentioned] = []
    seconds: float | None = None

    def judges(self, label: str) -> bool:
        """Whether the person accepted or refused a label. An annotation that rejects none in words judges all."""
        return self.rejected is None or label in self.rejected or label in self.labels

    @property
    def offered(self) -> list[Mentioned]:
        """The labels that were suggested as predicted, and judged."""
        return [
            mentioned
            for mentioned in self.suggested or ()
            if mentioned.predicted and self.judges(mentioned.label)
        ]

    @property
    def given(self) -> list[Mentioned]:
        """The labels that the person gave, of those that were suggested or added."""
        return [
            mentioned
            for mentioned in (*(self.suggested or ()), *self.added)
            if mentioned.label in self.labels
        ]


def read_annotations(paths: Sequence[Path]) -> list[Annotation]:
    """Read files of annotations; lines with the same document are different people's.

    Raises:
        DataError: a file is missing, empty or a sample, or a line is not an annotation.
    """
    annotations: dict[
        str, Annotation
    ] = {}  # by line: a file may be given twice, or with its copy
    for path in paths:
        if not path.exists():
            raise DataError(
                f"{path}: no such file; give what xmtc serve --annotations writes"
            )
        for number, line in enumerate(annotation_lines(path), 1):
            if {"stratum", "expected"} <= line.keys():
                raise DataError(
                    f"{path}: a sample, with labels of the model; give what xmtc serve --annotations wrote"
                )
            with reading(
                f"{path}: annotation {number}",
                fix="correct this line",
                what="not valid",
            ):
                annotation = Annotation.model_validate(
                    {**line, "document": document_of(line)}
                )
            annotations[json.dumps(line)] = annotation
    if not annotations:
        raise DataError(
            f"{paths[0]}: no annotations in it; give what xmtc serve --annotations writes"
        )
    return list(annotations.values())


def acceptance_parts(annotations: Sequence[Annotation]) -> list[Part]:
    """Make the tables of the report.

    Raises:
        DataError: no annotation says what was suggested.
    """
    judged = [
        annotation for annotation in annotations if annotation.suggested is not None
    ]
    if not judged:
        raise DataError(
            "no annotation says what the model suggested: annotate with the page, or send `review`"
        )
    text = (
        "Acceptance is the share of the labels predicted that people accepted: precision as they see it. Found is the "
        "share of their labels that were predicted. Labels that nobody judged count in neither. Intervals are of 95 %."
    )
    return [
        Paragraph(text),
        _table_by_bin(judged),
        _table_by_time(judged),
        _table_by_label(judged),
        _table_of_refused(judged),
        _table_of_never_offered(judged),
        agreement_table(annotations),
    ]


_COLUMNS = ("predicted", "accepted", "labels given", "acceptance, %", "found, %")


def _acceptance_cells(
    annotations: Sequence[Annotation], bin_name: str | None = None
) -> list[str]:
    """Compute the cells of `_COLUMNS`, of the labels in one bin or of all."""
    offered_counts = []
    accepted_counts = []
    given_counts = []
    for annotation in annotations:
        offered = [
            label
            for label in annotation.offered
            if bin_name is None or label.bin == bin_name
        ]
        given = [
            label
            for label in annotation.given
            if bin_name is None or label.bin == bin_name
        ]
        offered_counts.append(len(offered))
        accepted_counts.append(
            sum(label.label in annotation.labels for label in offered)
        )
        given_counts.append(len(given))
    documents = [annotation.document for annotation in annotations]
    return [
        f"{sum(offered_counts):,}",
        f"{sum(accepted_counts):,}",
        f"{sum(given_counts):,}",
        _share(accepted_counts, offered_counts, documents),
        _share(accepted_counts, given_counts, documents),
    ]


def _share(
    counts: Sequence[int], wholes: Sequence[int], documents: Sequence[str]
) -> str:
    """Show the ratio of sums with its interval.

    The annotations of several people of one document belong together, because they saw the same suggestions.
    """
    if not sum(wholes):
        return _UNKNOWN
    _, document_N = np.unique(documents, return_inverse=True)
    ratio = Ratio.of(np.bincount(document_N, counts), np.bincount(document_N, wholes))
    return percent(ratio.value, list(ratio_interval(ratio)))


def _table_by_bin(annotations: Sequence[Annotation]) -> Table:
    rows = [["all", *_acceptance_cells(annotations)]]
    for name in BINS:
        rows.append([name, *_acceptance_cells(annotations, name)])
    return Table(
        "acceptance",
        ["training documents", *_COLUMNS],
        rows,
        caption="Acceptance by bin of labels",
    )


def _table_by_time(annotations: Sequence[Annotation]) -> Table:
    times = [annotation.at for annotation in annotations if annotation.at is not None]
    is_long = bool(times) and (max(times) - min(times)).days > _DAYS
    style = "%Y-%m" if is_long else "%Y-%m-%d"
    groups: dict[tuple[str, str], list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        time = _UNKNOWN if annotation.at is None else annotation.at.strftime(style)
        version = (annotation.model or {}).get("version", "")
        groups[time, version[:_VERSION_DIGITS]].append(annotation)
    rows = []
    for (time, version), group in sorted(groups.items()):
        seconds = [
            annotation.seconds for annotation in group if annotation.seconds is not None
        ]
        documents = {annotation.document for annotation in group}
        median_seconds = f"{median(seconds):.0f}" if seconds else _UNKNOWN
        rows.append(
            [
                time,
                version,
                f"{len(documents):,}",
                *_acceptance_cells(group),
                median_seconds,
            ]
        )
    columns = ["time", "version", "documents", *_COLUMNS, "seconds"]
    return Table(
        "time",
        columns,
        rows,
        words=2,
        caption="Course over time; median seconds for a document",
    )


@dataclass
class JudgedLabel:
    """A label that was predicted, and what people made of it.

    Attributes:
        label: the label.
        accepted: of each prediction, whether it was accepted.
        documents: the document of each prediction.
        words: how often each word of evidence was shown.
    """

    label: Mentioned
    accepted: list[bool] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)


def _judged_labels(annotations: Sequence[Annotation]) -> list[JudgedLabel]:
    """List the labels that were predicted, the most predicted first."""
    judged: dict[str, JudgedLabel] = {}
    for annotation in annotations:
        for mentioned in annotation.offered:
            entry = judged.setdefault(mentioned.label, JudgedLabel(mentioned))
            entry.accepted.append(mentioned.label in annotation.labels)
            entry.documents.append(annotation.document)
            entry.words.update(set(mentioned.words))
    return sorted(
        judged.values(), key=lambda entry: (-len(entry.accepted), entry.label.label)
    )


def _table_by_label(annotations: Sequence[Annotation]) -> Table:
    rows = []
    for entry in _judged_labels(annotations):
        share = _share(entry.accepted, [1] * len(entry.accepted), entry.documents)
        predicted = f"{len(entry.accepted):,}"
        accepted = f"{sum(entry.accepted):,}"
        rows.append(
            [
                entry.label.title,
                f"{entry.label.train_count:,}",
                predicted,
                accepted,
                share,
            ]
        )
    columns = ["label", "training documents", "predicted", "accepted", "acceptance, %"]
    return Table(
        "labels", columns, rows, caption="Acceptance by label, the most predicted first"
    )


def _table_of_refused(annotations: Sequence[Annotation]) -> Table:
    rows = []
    for entry in _judged_labels(annotations):
        if len(entry.accepted) < _OFTEN or any(entry.accepted):
            continue
        words = (
            ", ".join(word for word, _ in entry.words.most_common(_SHOWN_WORDS))
            or _UNKNOWN
        )
        rows.append(
            [
                entry.label.title,
                words,
                f"{entry.label.train_count:,}",
                f"{len(entry.accepted):,}",
            ]
        )
    columns = ["label", "words of evidence", "training documents", "refused"]
    return Table(
        "refused",
        columns,
        rows,
        words=2,
        caption=f"Predicted {_OFTEN} times or more, and always refused",
    )


def _table_of_never_offered(annotations: Sequence[Annotation]) -> Table:
    suggested = {
        mentioned.label
        for annotation in annotations
        for mentioned in annotation.suggested or ()
    }
    additions: Counter[str] = Counter()
    mentioned_by_label: dict[str, Mentioned] = {}
    for annotation in annotations:
        for mentioned in annotation.added:
            mentioned_by_label[mentioned.label] = mentioned
            if mentioned.label not in suggested:
                additions[mentioned.label] += 1
    rows = []
    for label, count in additions.most_common():
        if count >= _OFTEN:
            mentioned = mentioned_by_label[label]
            rows.append([mentioned.title, f"{mentioned.train_count:,}", f"{count:,}"])
    columns = ["label", "training documents", "added"]
    return Table(
        "added",
        columns,
        rows,
        caption=f"Added {_OFTEN} times or more, and never suggested",
    )


@dataclass(frozen=True)
class AgreementCounts:
    """How far two people agree on one document.

    Attributes:
        document: the document.
        both: number of labels that both gave.
        either: number of labels that one of them gave.
        equal: number of equal decisions: a label that both gave, or that neither gave.
        decisions: number of labels that one of them gave or saw, and both judged.
    """

    document: str
    both: int
    either: int
    equal: int
    decisions: int

    @classmethod
    def of(cls, one: Annotation, other: Annotation) -> "AgreementCounts":
        """Compare two annotations of one document."""
        labels_one = set(one.labels)
        labels_other = set(other.labels)
        shown = {
            mentioned.label
            for mentioned in (*(one.suggested or ()), *(other.suggested or ()))
        }
        decisions = {
            label
            for label in labels_one | labels_other | shown
            if one.judges(label) and other.judges(label)
        }
        differing = decisions & (labels_one ^ labels_other)
        return cls(
            document=one.document,
            both=len(labels_one & labels_other),
            either=len(labels_one | labels_other),
            equal=len(decisions) - len(differing),
            decisions=len(decisions),
        )


def agreement_table(annotations: Sequence[Annotation]) -> Table:
    """Compare each two people's labels of one document."""
    by_document: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in annotations:
        by_document[annotation.document].append(annotation)
    counts_by_pair: dict[tuple[str, str], list[AgreementCounts]] = defaultdict(list)
    for group in by_document.values():
        for one, other in combinations(group, 2):
            counts = AgreementCounts.of(one, other)
            first, second = sorted((one.by or _UNKNOWN, other.by or _UNKNOWN))
            counts_by_pair[first, second].append(counts)
            counts_by_pair["all", ""].append(counts)
    rows = []
    for (first, second), pair_counts in sorted(counts_by_pair.items()):
        documents = [counts.document for counts in pair_counts]
        both = [counts.both for counts in pair_counts]
        either = [counts.either for counts in pair_counts]
        equal = [counts.equal for counts in pair_counts]
        decisions = [counts.decisions for counts in pair_counts]
        shares = [_share(both, either, documents), _share(equal, decisions, documents)]
        rows.append([first, second, f"{len(set(documents)):,}", *shares])
    columns = [
        "person",
        "other",
        "documents",
        "labels of both among labels of either, %",
        "equal decisions, %",
    ]
    return Table(
        "agreement",
        columns,
        rows,
        words=2,
        caption="Agreement of two people on one document",
    )
