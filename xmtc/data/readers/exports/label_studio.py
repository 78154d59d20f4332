"""Label Studio: tasks with their annotations, as its JSON export writes them. Its JSON-MIN and CSV are plain tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from xmtc.data.readers.exports.base import (
    ID,
    JsonExport,
    UnjudgedError,
    answers_to,
)


class LabelStudio(JsonExport):
    """Tasks: `{"id": 1, "data": {"text": …}, "annotations": [{"result": [{"value": {"choices": [...]}}]}]}`.

    The latest annotation that was not cancelled counts. Tasks without one are left out.
    """

    identity = "label_studio"
    what = "Label Studio"

    @override
    @classmethod
    def is_document(cls, item: Mapping[str, Any]) -> bool:
        return isinstance(item.get("data"), Mapping) and (
            "annotations" in item or "completions" in item
        )

    @override
    def document(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        annotations = item.get("annotations") or item.get("completions") or []
        judged = [
            annotation for annotation in annotations if not is_cancelled(annotation)
        ]
        if not judged:
            raise UnjudgedError("a task that nobody has annotated")
        latest = max(
            judged, key=lambda annotation: str(annotation.get("updated_at") or "")
        )
        cells = dict(item["data"])
        if "id" in item:
            cells[ID] = str(item["id"])
        labels_by_question: dict[str, list[str]] = {}
        for question, label in answers_of(latest):
            labels_by_question.setdefault(question, []).append(label)
        return cells | answers_to(labels_by_question)


def is_cancelled(annotation: Any) -> bool:
    """Whether somebody skipped the task."""
    return not isinstance(annotation, Mapping) or bool(annotation.get("was_cancelled"))


def choices_of(annotation: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels of a document in an annotation."""
    for _, label in answers_of(annotation):
        yield label


def answers_of(annotation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the question and the label of each choice; a path of a taxonomy is its last part."""
    for result in annotation.get("result") or ():
        value = result.get("value") or {}
        if "start" in value:
            raise ValueError(
                "marks places of the text, not labels of documents; export a project with choices"
            )
        question = str(result.get("from_name") or "")
        for choice in value.get("choices") or ():
            yield question, choice
        for path in value.get("taxonomy") or ():
            yield question, path[-1] if isinstance(path, list) else path
