"""Annotations in the formats of other tools: Label Studio's tasks, and Argilla's records.

Both have one entry for a document, with the labels that each person gave it and those that the model suggested.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args
from uuid import NAMESPACE_URL, UUID, uuid5
from xml.sax.saxutils import quoteattr

from pydantic import BaseModel, Field

from xmtc.desk.annotate.annotations import KEYS, annotation_lines, document_of
from xmtc.errors import DataError
from xmtc.files import reading, write_text

Format = Literal["label-studio", "argilla"]
FORMATS: tuple[Format, ...] = get_args(Format)
_QUESTION = "labels"
NOBODY = "unknown"
"""Stands for a person whom the annotations do not name."""
JOINED = "text"
"""Of a document with several fields, Label Studio shows this one: all fields, joined."""
PEOPLE = "annotators"
"""Metadata of a record of Argilla: the names of its people, in the order of their responses."""


_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Suggested(BaseModel):
    """What is exported of a label that the model suggested."""

    label: str
    predicted: bool
    score: _Number | None = None


class _Line(BaseModel):
    """What is exported of an annotation, beside the columns of its document."""

    labels: list[str]
    by: str | None = None
    at: str | None = None
    model: dict[str, str | None] | None = None
    suggested: list[_Suggested] | None = None
    rejected: list[str] | None = None
    seconds: _Number | None = None


@dataclass(frozen=True)
class ReviewedDocument:
    """A document with everything that people and the model said of it.

    Attributes:
        id: its identifier.
        cells: its columns: texts, and values of categories.
        lines: the annotations of it, one for each person.
    """

    id: str
    cells: Mapping[str, Any]
    lines: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def suggestions(self) -> Sequence[Mapping[str, Any]]:
        """The labels that the model predicted, as the first person saw them."""
        for line in self.lines:
            if line.get("suggested"):
                return [
                    suggestion
                    for suggestion in line["suggested"]
                    if suggestion["predicted"]
                ]
        return []

    @property
    def model(self) -> str:
        """Name and version of the model that made the suggestions."""
        about = next((line["model"] for line in self.lines if line.get("model")), {})
        return " ".join(
            part for part in (about.get("name"), about.get("version")) if part
        )


def read_reviewed(paths: Iterable[Path]) -> list[ReviewedDocument]:
    """Read files of annotations, document by document.

    Raises:
        DataError: a file is missing or empty, or a line is not an annotation.
    """
    documents: dict[str, ReviewedDocument] = {}
    for path in paths:
        if not path.exists():
            raise DataError(
                f"{path}: no such file; give what xmtc serve --annotations writes"
            )
        for number, line in enumerate(annotation_lines(path), start=1):
            with reading(
                f"{path}: annotation {number}",
                fix="correct this line",
                what="not valid",
            ):
                _Line.model_validate(line, strict=True)
            cells = {
                column: value for column, value in line.items() if column not in KEYS
            }
            document_id = document_of(line)
            documents.setdefault(
                document_id, ReviewedDocument(document_id, cells)
            ).lines.append(line)
    if not documents:
        raise DataError(
            "no annotations in these files; give what xmtc serve --annotations writes"
        )
    return list(documents.values())


class Exported(NamedTuple):
    """How much was exported.

    Attributes:
        documents: documents with annotations.
        labels: labels that the labelling interface of Label Studio offers.
        unjudged: annotations that leave predicted labels unjudged.
    """

    documents: int
    labels: int
    unjudged: int


def export_annotations(
    paths: Sequence[Path],
    format_name: Format,
    output: Path,
    labels: Sequence[str] = (),
) -> Exported:
    """Write annotations in the format of another tool.

    Args:
        paths: files of `xmtc serve --annotations`.
        format_name: the tool.
        output: JSON file to write; Label Studio's labelling interface is written beside it, as XML.
        labels: labels that the interface offers besides those in the annotations.

    Raises:
        DataError: a file is missing or empty, or a line is not an annotation.
        StorageError: a file cannot be written.
    """
    documents = read_reviewed(paths)
    entries = [_ENTRIES[format_name](document) for document in documents]
    write_text(output, json.dumps(entries, ensure_ascii=False, indent=1) + "\n")
    offered = sorted({*labels, *_labels_in(documents)})
    if format_name == "label-studio":
        write_text(output.with_suffix(".xml"), labelling_interface(offered))
    unjudged = sum(
        _leaves_unjudged(line) for document in documents for line in document.lines
    )
    return Exported(len(documents), len(offered), unjudged)


def _leaves_unjudged(line: Mapping[str, Any]) -> bool:
    """Whether a predicted label was neither accepted nor rejected."""
    rejected = line.get("rejected")
    if rejected is None:
        return False
    judged = {*line["labels"], *rejected}
    return any(
        suggestion["predicted"] and suggestion["label"] not in judged
        for suggestion in line.get("suggested") or ()
    )


def label_studio_task(document: ReviewedDocument) -> dict[str, Any]:
    """Describe a document as a task of Label Studio, with its annotations and predictions."""
    data = dict(document.cells)
    if JOINED not in data:
        texts = (value for value in data.values() if isinstance(value, str))
        data[JOINED] = "\n".join(texts)
    task: dict[str, Any] = {
        "data": {"id": document.id, **data},
        "annotations": [
            {
                "result": [_choices(line["labels"])],
                "completed_by": {"email": line.get("by") or NOBODY},
                "created_at": line.get("at"),
                "lead_time": line.get("seconds"),
            }
            for line in document.lines
        ],
    }
    if document.suggestions:
        labels = [suggestion["label"] for suggestion in document.suggestions]
        scores = [
            suggestion["score"]
            for suggestion in document.suggestions
            if "score" in suggestion
        ]
        prediction = {
            "model_version": document.model,
            "result": [_choices(labels)],
        }
        task["predictions"] = [prediction | ({"score": min(scores)} if scores else {})]
    return task


def _choices(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "from_name": _QUESTION,
        "to_name": JOINED,
        "type": "choices",
        "value": {"choices": list(labels)},
    }


def _labels_in(documents: Iterable[ReviewedDocument]) -> set[str]:
    """Return the labels that people gave or saw."""
    labels: set[str] = set()
    for document in documents:
        for line in document.lines:
            labels.update(line["labels"])
            labels.update(one["label"] for one in line.get("suggested") or ())
    return labels


def labelling_interface(labels: Sequence[str]) -> str:
    """Write Label Studio's labelling interface, which offers some labels."""
    choices = "\n".join(f"    <Choice value={quoteattr(label)}/>" for label in labels)
    return (
        "<View>\n"
        f'  <Text name="{JOINED}" value="${JOINED}"/>\n'
        f'  <Choices name="{_QUESTION}" toName="{JOINED}" choice="multiple" showInline="true">\n'
        f"{choices}\n"
        "  </Choices>\n"
        "</View>\n"
    )


def argilla_record(document: ReviewedDocument) -> dict[str, Any]:
    """Describe a document as a record of Argilla, with its responses and suggestions."""
    texts = {
        column: value
        for column, value in document.cells.items()
        if isinstance(value, str)
    }
    metadata = {
        column: value
        for column, value in document.cells.items()
        if not isinstance(value, str)
    }
    people = [line["by"] for line in document.lines if line.get("by")]
    record: dict[str, Any] = {
        "id": document.id,
        "fields": texts,
        "metadata": metadata | ({PEOPLE: people} if people else {}),
        "vectors": {},
        "responses": {
            _QUESTION: [
                {
                    "value": line["labels"],
                    "user_id": person_id(line.get("by")),
                }
                for line in document.lines
            ]
        },
        "suggestions": {},
    }
    if document.suggestions:
        record["suggestions"][_QUESTION] = {
            "value": [suggestion["label"] for suggestion in document.suggestions],
            "score": [suggestion.get("score") for suggestion in document.suggestions],
            "agent": document.model,
        }
    return record


def person_id(name: str | None) -> str:
    """Return the UUID by which Argilla knows a person: always the same one for a name; a UUID is its own."""
    try:
        return str(UUID(name))
    except (TypeError, ValueError):
        return str(uuid5(NAMESPACE_URL, name or NOBODY))


_ENTRIES: Mapping[Format, Callable[[ReviewedDocument], dict[str, Any]]] = {
    "label-studio": label_studio_task,
    "argilla": argilla_record,
}
