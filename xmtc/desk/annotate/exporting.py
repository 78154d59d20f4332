"""Annotations in the formats of other tools: Label Studio's tasks, and Argilla's records.

Both have one entry for a document, with the labels that each person gave it and those that the model suggested.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""Metadata of a record of Argilla, and data of a task of Label Studio: the names of its people, in the order of their
answers."""
_MOST_CHOICES = 100
"""Labels that Label Studio shows beside each other; more of them are a taxonomy, which people search."""


_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Named(BaseModel):
    """A label, and its name for people; empty or none if it has none."""

    label: str
    name: str | None = None


class _Suggested(_Named):
    """What is exported of a label that the model suggested."""

    predicted: bool
    score: _Number | None = None


class _Line(BaseModel):
    """What is exported of an annotation, beside the columns of its document."""

    labels: list[str]
    by: str | None = None
    at: str | None = None
    model: dict[str, str | None] | None = None
    suggested: list[_Suggested] | None = None
    added: list[_Named] | None = None
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
    names: Mapping[str, str] | None = None,
) -> Exported:
    """Write annotations in the format of another tool.

    Args:
        paths: files of `xmtc serve --annotations`.
        format_name: the tool.
        output: JSON file to write; Label Studio's labelling interface is written beside it, as XML.
        names: labels that the interface offers besides those in the annotations, with their names.

    Raises:
        DataError: a file is missing or empty, or a line is not an annotation.
        StorageError: a file cannot be written.
    """
    documents = read_reviewed(paths)
    offered = _labels_in(documents) | dict(names or {})
    if format_name == "label-studio":
        control = Control.of(offered)
        entries = [label_studio_task(document, control) for document in documents]
        write_text(output.with_suffix(".xml"), control.interface(offered))
    else:
        entries = [argilla_record(document) for document in documents]
    write_text(output, json.dumps(entries, ensure_ascii=False, indent=1) + "\n")
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


@dataclass(frozen=True)
class Control:
    """The part of Label Studio's labelling interface in which people choose labels.

    Attributes:
        kind: type of its results.
        tag: its beginning in the interface, without the name and the text to which it belongs.
    """

    kind: Literal["choices", "taxonomy"]
    tag: str

    @classmethod
    def of(cls, labels: Collection[str]) -> "Control":
        """Choose the control for so many labels: Label Studio draws all choices at once, but searches a taxonomy."""
        if len(labels) > _MOST_CHOICES:
            return cls("taxonomy", "Taxonomy")
        return cls("choices", 'Choices choice="multiple" showInline="true"')

    def result(self, labels: Sequence[str]) -> list[dict[str, Any]]:
        """Write chosen labels as a result; none if no label was chosen."""
        if not labels:
            return []
        chosen = (
            [[label] for label in labels] if self.kind == "taxonomy" else list(labels)
        )
        return [
            {
                "from_name": _QUESTION,
                "to_name": JOINED,
                "type": self.kind,
                "value": {self.kind: chosen},
            }
        ]

    def interface(self, names: Mapping[str, str]) -> str:
        """Write the labelling interface, which offers some labels by their names, in the order of these.

        Where an `alias` says which label is meant, Label Studio shows the value and keeps the alias in its results.
        """
        element, _, options = self.tag.partition(" ")
        choices = "\n".join(
            f"    <Choice value={quoteattr(shown)}"
            + (f" alias={quoteattr(label)}/>" if label != shown else "/>")
            for label, shown in sorted(
                _told_apart(names).items(), key=lambda entry: entry[1]
            )
        )
        attributes = f'name="{_QUESTION}" toName="{JOINED}" {options}'.strip()
        return (
            "<View>\n"
            f'  <Text name="{JOINED}" value="${JOINED}"/>\n'
            f"  <{element} {attributes}>\n"
            f"{choices}\n"
            f"  </{element}>\n"
            "</View>\n"
        )


def _told_apart(names: Mapping[str, str]) -> dict[str, str]:
    """Return what people see of each label, each something else: Label Studio leaves out a second choice of a value.

    That is the name of a label, or the label itself if it has none. A name that several labels have, or that is another
    label, is followed by the label.
    """
    plain = {label: name or label for label, name in names.items()}
    uses = Counter(plain.values())
    is_clear = {
        label: name == label or (uses[name] == 1 and name not in names)
        for label, name in plain.items()
    }
    taken = {name for label, name in plain.items() if is_clear[label]} | names.keys()
    shown: dict[str, str] = {}
    for label, name in plain.items():
        if is_clear[label]:
            shown[label] = name
            continue
        text = f"{name} ({label})"
        while text in taken:
            text = f"{text} ({label})"
        taken.add(text)
        shown[label] = text
    return shown


def _account(person: str | None) -> dict[str, Any]:
    """Name a person by an e-mail address, if the annotations do: Label Studio refuses to import any other name."""
    if person is None or "@" not in person:
        return {}
    return {"completed_by": {"email": person}}


def label_studio_task(document: ReviewedDocument, control: Control) -> dict[str, Any]:
    """Describe a document as a task of Label Studio, with its annotations and predictions.

    Label Studio gives annotations of people without an e-mail address to whoever imports them. Their names are in the
    task's data.
    """
    data = dict(document.cells)
    if JOINED not in data:
        texts = (value for value in data.values() if isinstance(value, str))
        data[JOINED] = "\n".join(texts)
    people = [line.get("by") or "" for line in document.lines]
    task: dict[str, Any] = {
        "data": {"id": document.id, **data} | ({PEOPLE: people} if any(people) else {}),
        "annotations": [
            {
                "result": control.result(line["labels"]),
                **_account(line.get("by")),
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
            "result": control.result(labels),
        }
        task["predictions"] = [prediction | ({"score": min(scores)} if scores else {})]
    return task


def _labels_in(documents: Iterable[ReviewedDocument]) -> dict[str, str]:
    """Return the labels that people gave or saw, with their names; empty where no annotation has one."""
    names: dict[str, str] = {}
    for document in documents:
        for line in document.lines:
            names |= {label: names.get(label, "") for label in line["labels"]}
            for one in (*(line.get("suggested") or ()), *(line.get("added") or ())):
                names[one["label"]] = one.get("name") or names.get(one["label"], "")
    return names


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
