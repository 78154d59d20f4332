"""Prodigy: JSON lines with an `answer` to each question, of a choice among options or of one label."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.exports.base import ID, LABELS, REJECTED, Export, Sample
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.table import Row

_ANSWERS = frozenset({"accept", "reject", "ignore"})
_OWN = frozenset(
    {
        "label",
        "labels",
        "accept",
        "options",
        "answer",
        "spans",
        "tokens",
        "config",
        "cats",
    }
)
"""Keys that are not the document's own."""


class Prodigy(Export):
    """Answers: `{"text": …, "label": "A", "answer": "reject"}` or `{"text": …, "options": […], "accept": ["a"]}`.

    The answers to all questions about a text are one document. A question about one label judges that label alone; a
    choice that was accepted judges all. Texts with no other answer than `ignore`, or a rejected choice, are left out.
    """

    identity = "prodigy"
    what = "Prodigy"

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        return bool(sample.objects) and all(
            item.get("answer") in _ANSWERS for item in sample.objects
        )

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        answers_by_text: dict[str, list[Row]] = {}
        for row in JsonLines().rows(path, None, longest):
            if isinstance(row, Rejected):
                yield row
            elif not isinstance(row.cells.get("text"), str):
                yield Rejected(row.where, "no text")
            else:
                answers_by_text.setdefault(row.cells["text"], []).append(row)
        for answers in answers_by_text.values():
            yield _document(answers)


def _document(answers: list[Row]) -> Row | Rejected:
    """Join the answers about a text."""
    first = answers[0]
    labels: dict[str, None] = {}
    refused: dict[str, None] = {}
    complete = False
    for answer in answers:
        verdict = answer.cells.get("answer")
        if verdict not in ("accept", "reject"):
            continue
        if isinstance(answer.cells.get("label"), str):
            (labels if verdict == "accept" else refused)[answer.cells["label"]] = None
        elif verdict == "accept":
            labels.update(dict.fromkeys(_accepted(answer.cells)))
            complete = True
    if not labels and not refused and not complete:
        return Rejected(
            first.where, "its labels were rejected or ignored", unjudged=True
        )
    cells: dict[str, Any] = {
        key: value for key, value in first.cells.items() if _is_own(key)
    }
    if "_input_hash" in first.cells:
        cells[ID] = str(first.cells["_input_hash"])
    cells[LABELS] = list(labels)
    cells[REJECTED] = (
        None if complete else [label for label in refused if label not in labels]
    )
    return Row(cells, first.where, first.number)


def _accepted(cells: Mapping[str, Any]) -> list[str]:
    """Return the labels of an accepted answer: chosen options by their text, or marks by label."""
    if isinstance(cells.get("cats"), Mapping):
        return [label for label, mark in cells["cats"].items() if mark]
    return [str(label) for label in cells.get("accept") or ()]


def _is_own(key: str) -> bool:
    return key not in _OWN and not key.startswith("_")
