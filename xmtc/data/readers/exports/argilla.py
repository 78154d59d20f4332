"""Argilla: records with the responses of people, and the annotations of its first version."""

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from xmtc.data.readers.exports.base import ID, LABELS, JsonExport, UnjudgedError

_RESPONSES = ".responses"
"""Ending of the columns with responses in a table of records."""


class Argilla(JsonExport):
    """Records: `{"fields": {"text": …}, "responses": {"labels": [{"value": ["a"], "status": "submitted"}]}}`.

    Labels of all people who submitted a response are joined. Records without one are left out.
    """

    identity = "argilla"
    what = "Argilla"

    @override
    @classmethod
    def is_document(cls, item: Mapping[str, Any]) -> bool:
        records = isinstance(item.get("fields"), Mapping) and "responses" in item
        first_version = (
            "annotation" in item
            and "status" in item
            and ("text" in item or "inputs" in item)
        )
        return records or first_version or any(key.endswith(_RESPONSES) for key in item)

    @override
    def document(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        cells = dict(item.get("fields") or item.get("inputs") or _plain_columns(item))
        if item.get(ID) is not None:
            cells[ID] = str(item[ID])
        values = [value for _, value in submitted_values(item)]
        if not values:
            raise UnjudgedError("a record without a submitted response")
        labels: dict[str, None] = {}
        for value in values:
            labels.update(dict.fromkeys(value if isinstance(value, list) else [value]))
        cells[LABELS] = list(labels)
        return cells


def _plain_columns(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a table of records that are texts: others have a dot, an underscore or a known name."""
    known = {
        "id",
        "status",
        "labels",
        "annotation",
        "prediction",
        "metadata",
        "inserted_at",
        "updated_at",
    }
    return {
        key: value
        for key, value in item.items()
        if isinstance(value, str)
        and key not in known
        and "." not in key
        and not key.startswith("_")
    }


def submitted_values(item: Mapping[str, Any]) -> Iterator[tuple[str | None, Any]]:
    """Yield the person, if it is known, and the value of each submitted response."""
    if "annotation" in item:
        if item["annotation"] is not None and item.get("status") == "Validated":
            yield item.get("annotation_agent"), item["annotation"]
        return
    responses = item.get("responses")
    if isinstance(responses, Mapping):
        for answers in responses.values():
            yield from (
                (answer.get("user_id"), answer["value"])
                for answer in answers
                if answer.get("status", "submitted") == "submitted"
            )
    for key, answers in item.items():
        if key.endswith(_RESPONSES) and answers:
            statuses = item.get(f"{key}.status") or ["submitted"] * len(answers)
            people = item.get(f"{key}.users") or [None] * len(answers)
            yield from (
                (person, answer)
                for person, answer, status in zip(
                    people, answers, statuses, strict=True
                )
                if status == "submitted" and answer is not None
            )
