"""What people make of suggestions: acceptance, labels always refused or never offered, agreement, course over time."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
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
_DAYS = 90  # a longer time is shown by months


class Mentioned(BaseModel):
    """A label that a person saw or added."""

    label: str
    name: str = ""
    train_count: NonNegativeInt = 0
    predicted: bool = False
    words: list[str] = []


class Annotation(BaseModel):
    """A line of an annotations file, without the text; see `xmtc.desk.annotate.annotations`."""

    document: str
    labels: list[str]
    by: str | None = None
    at: AwareDatetime | None = None
    model: Mapping[str, str] | None = None
    suggested: list[Mentioned] | None = None
    added: list[Mentioned] = []
    seconds: float | None = None

    @property
    def offered(self) -> list[Mentioned]:
        """The labels that were suggested as predicted."""
        return [one for one in self.suggested or () if one.predicted]


def read_annotations(paths: Sequence[Path]) -> list[Annotation]:
    """Read files of annotations; lines with the same document are different people's.

    Raises:
        DataError: a file is missing, empty or a sample, or a line is not an annotation.
    """
    found: dict[str, Annotation] = {}  # by line: a file may be given twice, or with its copy
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file; give what xmtc serve --annotations writes")
        for number, line in enumerate(annotation_lines(path), 1):
            if {"stratum", "expected"} <= line.keys():
                raise DataError(f"{path}: a sample, with labels of the model; give what xmtc serve --annotations wrote")
            with reading(f"{path}: annotation {number}", fix="correct this line", what="not valid"):
                found[json.dumps(line)] = Annotation.model_validate({**line, "document": document_of(line)})
    if not found:
        raise DataError(f"{paths[0]}: no annotations in it")
    return list(found.values())


def acceptance_parts(annotations: Sequence[Annotation]) -> list[Part]:
    """Make the tables of the report.

    Raises:
        DataError: no annotation says what was suggested.
    """
    judged = [one for one in annotations if one.suggested is not None]
    if not judged:
        raise DataError("no annotation says what the model suggested: annotate with the page, or send `review`")
    text = (
        "Acceptance is the share of the labels predicted that people accepted: precision as they see it. Found is the "
        "share of their labels that were predicted. Intervals are of 95 %."
    )
    tables = (_by_bin, _by_time, _by_label, _refused, _never_offered)
    return [Paragraph(text), *(table(judged) for table in tables), agreement_table(annotations)]


def _row(lines: Sequence[Annotation], only: str | None = None) -> list[str]:
    """Compute acceptance and share found, of the labels in one bin or all."""

    def inside(labels: Sequence[Mentioned]) -> list[Mentioned]:
        return [one for one in labels if only is None or _bin_of(one.train_count) == only]

    offered = [inside(line.offered) for line in lines]
    given = [
        [one for one in inside([*(line.suggested or ()), *line.added]) if one.label in line.labels] for line in lines
    ]
    accepted = [sum(one.label in line.labels for one in some) for line, some in zip(lines, offered, strict=True)]
    documents = [line.document for line in lines]
    shares = [_share(accepted, list(map(len, whole)), documents) for whole in (offered, given)]
    return [f"{sum(map(len, offered)):,}", f"{sum(accepted):,}", f"{sum(map(len, given)):,}", *shares]


def _share(counts: Sequence[int], wholes: Sequence[int], documents: Sequence[str]) -> str:
    """Show the ratio of sums with its interval. Several people's of a document belong together, because they saw the
    same suggestions.
    """
    _, document_N = np.unique(documents, return_inverse=True)
    ratio = Ratio.of(*(np.bincount(document_N, some) for some in (counts, wholes)))
    return percent(ratio.value, list(ratio_interval(ratio))) if sum(wholes) else "–"


@cache
def _bin_of(count: int) -> str:
    return next(name for name in BINS if bin_mask(name, np.array([count]))[0])


_COLUMNS = ("predicted", "accepted", "labels given", "acceptance, %", "found, %")


def _by_bin(lines: Sequence[Annotation]) -> Table:
    rows = [["all", *_row(lines)], *([name, *_row(lines, name)] for name in BINS)]
    return Table("acceptance", ["training documents", *_COLUMNS], rows, caption="Acceptance by bin of labels")


def _by_time(lines: Sequence[Annotation]) -> Table:
    times = [line.at for line in lines if line.at is not None]
    style = "%Y-%m" if times and (max(times) - min(times)).days > _DAYS else "%Y-%m-%d"
    groups: dict[tuple[str, str], list[Annotation]] = defaultdict(list)
    for line in lines:
        when = "–" if line.at is None else line.at.strftime(style)
        groups[when, (line.model or {}).get("version", "")[:12]].append(line)
    rows = []
    for (when, version), some in sorted(groups.items()):
        seconds = [line.seconds for line in some if line.seconds is not None]
        documents = len({line.document for line in some})
        rows.append([when, version, f"{documents:,}", *_row(some), f"{median(seconds):.0f}" if seconds else "–"])
    columns = ["time", "version", "documents", *_COLUMNS, "seconds"]
    return Table("time", columns, rows, words=2, caption="Course over time; median seconds for a document")


def _by_label(lines: Sequence[Annotation]) -> Table:
    rows = []
    for one, right, documents, _ in _judged_labels(lines):
        share = _share(right, [1] * len(right), documents)
        counts = [f"{count:,}" for count in (one.train_count, len(right), sum(right))]
        rows.append([label_title(one.label, one.name), *counts, share])
    columns = ["label", "training documents", "predicted", "accepted", "acceptance, %"]
    return Table("labels", columns, rows, caption="Acceptance by label, the most predicted first")


def _judged_labels(lines: Sequence[Annotation]) -> list[tuple[Mentioned, list[bool], list[str], Counter[str]]]:
    """List each predicted label, which of its predictions were accepted, of which documents, and its evidence; the most
    predicted first.
    """
    found: dict[str, tuple[Mentioned, list[bool], list[str], Counter[str]]] = {}
    for line in lines:
        for one in line.offered:
            _, right, documents, words = found.setdefault(one.label, (one, [], [], Counter()))
            right.append(one.label in line.labels)
            documents.append(line.document)
            words.update(set(one.words))
    return sorted(found.values(), key=lambda row: (-len(row[1]), row[0].label))


def _refused(lines: Sequence[Annotation]) -> Table:
    rows = []
    for one, right, _, words in _judged_labels(lines):
        if len(right) >= _OFTEN and not any(right):
            shown = ", ".join(word for word, _ in words.most_common(5)) or "–"
            rows.append([label_title(one.label, one.name), shown, f"{one.train_count:,}", f"{len(right):,}"])
    columns = ["label", "words of evidence", "training documents", "refused"]
    return Table("refused", columns, rows, words=2, caption=f"Predicted {_OFTEN} times or more, and always refused")


def _never_offered(lines: Sequence[Annotation]) -> Table:
    shown = {one.label for line in lines for one in line.suggested or ()}
    added = Counter(one.label for line in lines for one in line.added if one.label not in shown)
    about = {one.label: one for line in lines for one in line.added}
    often = [(about[label], f"{count:,}") for label, count in added.most_common() if count >= _OFTEN]
    rows = [[label_title(one.label, one.name), f"{one.train_count:,}", count] for one, count in often]
    columns = ["label", "training documents", "added"]
    return Table("added", columns, rows, caption=f"Added {_OFTEN} times or more, and never suggested")


def agreement_table(lines: Sequence[Annotation]) -> Table:
    """Compare each two people's labels of one document; what was shown and neither gave counts as agreed."""
    documents: dict[str, list[Annotation]] = defaultdict(list)
    for line in lines:
        documents[line.document].append(line)
    pairs: dict[tuple[str, str], list[tuple[str, list[int]]]] = defaultdict(list)
    for document, some in documents.items():
        for one, other in combinations(some, 2):
            names = sorted((one.by or "–", other.by or "–"))
            a, b = set(one.labels), set(other.labels)
            items = a | b | {shown.label for line in (one, other) for shown in line.suggested or ()}
            counts = [len(a & b), len(a | b), len(items) - len(a ^ b), len(items)]
            for key in ((names[0], names[1]), ("all", "")):
                pairs[key].append((document, counts))
    rows = []
    for (one, other), found in sorted(pairs.items()):
        of, columns_4N = [document for document, _ in found], np.array([counts for _, counts in found]).T
        shares = (_share(columns_4N[top].tolist(), columns_4N[top + 1].tolist(), of) for top in (0, 2))
        rows.append([one, other, f"{len(set(of)):,}", *shares])
    columns = ["person", "other", "documents", "labels of both among labels of either, %", "equal decisions, %"]
    return Table("agreement", columns, rows, words=2, caption="Agreement of two people on one document")
