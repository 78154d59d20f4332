"""Annotations that were made in other tools, as lines of an annotations file: what `exporting` writes, read back.

Label Studio's JSON export and Argilla's records have one entry for a document. Each person who judged it becomes a
line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.cells import label_of
from xmtc.data.readers.exports import Argilla, LabelStudio, recognised
from xmtc.data.readers.exports.argilla import submitted_values
from xmtc.data.readers.exports.label_studio import choices_of, is_cancelled
from xmtc.data.readers.jsonl import JsonLines
from xmtc.desk.annotate.annotations import KEYS
from xmtc.desk.annotate.exporting import JOINED, NOBODY, PEOPLE, person_id
from xmtc.errors import ConfigError, DataError
from xmtc.files import write_text


class Judgement(NamedTuple):
    """What one person said of a document.

    Attributes:
        by: the person, if the tool names one.
        labels: the labels that they gave.
        at: when, ISO 8601.
        seconds: how long it took.
    """

    by: str | None
    labels: Sequence[str]
    at: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ForeignDocument:
    """A document of another tool.

    Attributes:
        id: its identifier.
        cells: its columns: texts, and values of categories.
        judgements: what people said of it; empty if nobody has judged it.
        suggested: the labels that a model suggested, with their probabilities where the tool keeps them.
        model: name and version of the model.
    """

    id: str
    cells: Mapping[str, Any]
    judgements: Sequence[Judgement]
    suggested: Mapping[str, float | None] = field(default_factory=dict)
    model: str = ""

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield a line of an annotations file for each person; the latest judgement of a person counts."""
        by_person = {judgement.by: judgement for judgement in self.judgements}
        name, _, version = self.model.partition(" ")
        model = {"name": name, "version": version} if name else None
        for number, judgement in enumerate(by_person.values(), start=1):
            is_first = number == 1
            labels = list(dict.fromkeys(filter(None, map(label_of, judgement.labels))))
            line = {"id": self.id if is_first else f"{self.id}~{number}", **self.cells}
            line["labels"] = labels
            if not is_first:
                line["document"] = self.id
            line |= {"model": model, "by": judgement.by, "at": judgement.at}
            yield line | self._outcome(labels, judgement.seconds)

    def _outcome(self, labels: Sequence[str], seconds: float | None) -> dict[str, Any]:
        """Say what became of the suggestions."""
        if not self.suggested:
            return {}
        return {
            "suggested": [
                _about(label)
                | {"predicted": True, "words": []}
                | ({} if score is None else {"score": score})
                for label, score in self.suggested.items()
            ],
            "accepted": [label for label in self.suggested if label in labels],
            "rejected": [label for label in self.suggested if label not in labels],
            "added": [_about(label) for label in labels if label not in self.suggested],
            "seconds": seconds,
        }


def _about(label: str) -> dict[str, Any]:
    return {"label": label, "name": "", "train_count": 0}


class Imported(NamedTuple):
    """How much was imported.

    Attributes:
        lines: annotations.
        documents: documents with annotations.
        unjudged: documents that nobody has judged.
    """

    lines: int
    documents: int
    unjudged: int


def import_annotations(
    paths: Iterable[Path], output: Path, queue: Path | None = None
) -> Imported:
    """Write an annotations file, with which work that was begun in another tool goes on.

    Args:
        paths: exports of Label Studio (JSON) or Argilla (records).
        output: JSON lines file to write, for `xmtc serve --annotations`.
        queue: JSON lines file to write with the documents that nobody has judged, for `xmtc serve --queue`.

    Raises:
        ConfigError: a file to write is already there.
        DataError: a file is not such an export, an entry cannot be read, or two have the same identifier.
        StorageError: a file cannot be written.
    """
    for target in (output, queue):
        if target is not None and target.exists():
            raise ConfigError(f"{target}: is already there; give a new file")
    documents: dict[str, ForeignDocument] = {}
    for path in paths:
        for where, document in read_foreign(path):
            if document.id in documents:
                raise DataError(
                    f"{where}: a second document with the id {document.id!r}; give each its own"
                )
            documents[document.id] = document
    lines = [line for document in documents.values() for line in document.lines()]
    unjudged = [
        {"id": document.id, **document.cells}
        for document in documents.values()
        if not document.judgements
    ]
    if not lines:
        raise DataError("nobody has judged a document in these files; export others")
    write_text(output, _json_lines(lines))
    if queue is not None:
        write_text(queue, _json_lines(unjudged))
    return Imported(len(lines), len(documents) - len(unjudged), len(unjudged))


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_foreign(path: Path) -> Iterator[tuple[str, ForeignDocument]]:
    """Yield the documents of an export, each with its place in the file.

    Raises:
        DataError: the file is not an export of Label Studio or Argilla, or an entry cannot be read.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file")
    export = recognised(path)
    if export not in (LabelStudio, Argilla):
        raise DataError(
            f"{path}: neither Label Studio's JSON export nor Argilla's records; export one of these"
        )
    convert = _task if export is LabelStudio else _record
    for row in JsonLines().rows(path, None):
        if isinstance(row, Rejected):
            raise DataError(f"{row.where}: {row.reason}")
        try:
            document = convert(row.cells)
            for _ in document.lines():  # refuses what is no label
                pass
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            is_clear = isinstance(problem, ValueError)
            reason = str(problem) if is_clear else f"not as {export.what} writes it"
            raise DataError(f"{row.where}: {reason}; correct the export") from None
        yield row.where, document


def _task(item: Mapping[str, Any]) -> ForeignDocument:
    """Read a task of Label Studio."""
    data = dict(item["data"])
    document_id = data.pop("id", item.get("id"))
    joined = data.pop(JOINED, None)
    people = data.pop(PEOPLE, None) or ()
    texts = [value for value in data.values() if isinstance(value, str)]
    if joined is not None and joined != "\n".join(texts):
        data[JOINED] = joined
    annotations = item.get("annotations") or item.get("completions") or ()
    if len(people) == len(annotations):  # nobody in that tool has added to them
        annotations = [
            {"completed_by": by or None, **one}
            for by, one in zip(people, annotations, strict=True)
        ]
    judged = [one for one in annotations if not is_cancelled(one)]
    judged.sort(key=lambda one: str(one.get("updated_at") or one.get("created_at")))
    predictions = item.get("predictions") or ()
    last = predictions[-1] if predictions else {}
    return ForeignDocument(
        id=_identifier(document_id),
        cells=_checked(data),
        judgements=[
            Judgement(
                _person(one.get("completed_by")),
                list(choices_of(one)),
                one.get("created_at"),
                one.get("lead_time"),
            )
            for one in judged
        ],
        suggested=dict.fromkeys(choices_of(last)),
        model=str(last.get("model_version") or ""),
    )


def _person(completed_by: Any) -> str | None:
    """Return the name of a person: Label Studio gives an object or a number."""
    if isinstance(completed_by, Mapping):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return None if completed_by in (None, NOBODY) else str(completed_by)


def _record(item: Mapping[str, Any]) -> ForeignDocument:
    """Read a record of Argilla: its people are known by identifiers, and by name if xmtc exported the record."""
    metadata = dict(item.get("metadata") or {})
    names = {person_id(name): name for name in metadata.pop(PEOPLE, None) or ()}
    answers: dict[str | None, list[str]] = {}
    for user, value in submitted_values(item):
        by = None if user == person_id(None) else names.get(str(user), user)
        labels = value if isinstance(value, list) else [value]
        answers.setdefault(by, []).extend(labels)
    suggested: dict[str, float | None] = {}
    model = ""
    for suggestion in (item.get("suggestions") or {}).values():
        value, score = suggestion["value"], suggestion.get("score")
        labels = value if isinstance(value, list) else [value]
        scores = score if isinstance(score, list) else [score] * len(labels)
        suggested |= dict(zip(labels, scores, strict=True))
        model = str(suggestion.get("agent") or "")
    texts = item.get("fields") or item.get("inputs") or {JOINED: item.get(JOINED)}
    return ForeignDocument(
        id=_identifier(item.get("id")),
        cells=_checked(dict(texts) | metadata),
        judgements=[Judgement(by, labels) for by, labels in answers.items()],
        suggested=suggested,
        model=model,
    )


def _identifier(given: Any) -> str:
    if given is None or not str(given):
        raise ValueError("has no id")
    return str(given)


def _checked(cells: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse columns that an annotations file has for something else."""
    if clashing := KEYS & set(cells):
        raise ValueError(f"the column {min(clashing)!r} is a key of annotations")
    return cells
