"""Annotations of Label Studio and Argilla go on here: exports come back equal, and what the tools write is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from annotation_lines import LINES
from commands import xmtc
from xmtc.desk.annotate.exporting import export_annotations
from xmtc.desk.annotate.importing import import_annotations
from xmtc.errors import ConfigError, DataError

__all__ = ["xmtc"]

KEPT = ("id", "document", "labels", "by", "title", "body", "text", "type")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, entries: Any) -> Path:
    path.write_text(json.dumps(entries))
    return path


def kept(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in KEPT if key in line}


@pytest.mark.parametrize("format_name", ["label-studio", "argilla"])
def test_what_was_exported_comes_back(xmtc, tmp_path: Path, format_name: str) -> None:
    before = tmp_path / "before.jsonl"
    before.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    exported, after = tmp_path / "exported.json", tmp_path / "after.jsonl"
    export_annotations([before], format_name, exported)
    outcome = xmtc("annotations", "import", exported, "-o", after)
    assert (outcome.code, outcome.out) == (
        0,
        f"{after}: 3 annotations of 2 documents\n",
    )
    imported = lines_of(after)
    # a document's categories are those that its first person saw
    expected = [kept(line) for line in LINES]
    expected[1]["type"] = LINES[0]["type"]
    assert [kept(line) for line in imported] == expected
    first = imported[0]
    assert [one["label"] for one in first["suggested"]] == ["fish"]
    assert first["accepted"] == ["fish"]
    assert first["rejected"] == first["added"] == []
    assert imported[1]["rejected"] == ["fish"]
    assert first["model"] == {"name": "sea", "version": "3"}
    if format_name == "label-studio":
        assert (first["at"], first["seconds"]) == ("2026-01-01T00:00:00+00:00", 4.5)
    else:
        assert first["suggested"][0]["score"] == 0.9
    again = tmp_path / "again.json"
    export_annotations([after], format_name, again)
    assert [_without_scores(entry) for entry in json.loads(again.read_text())] == [
        _without_scores(entry) for entry in json.loads(exported.read_text())
    ]
    assert xmtc("annotations", "report", after).code == 0


def _without_scores(task: dict[str, Any]) -> dict[str, Any]:
    """Label Studio keeps one score of all labels, which is that of none, and a time only with suggestions."""
    for prediction in task.get("predictions", ()):
        prediction.pop("score", None)
    for annotation in task.get("annotations", ()):
        annotation.pop("lead_time")
    return task


def test_what_label_studio_writes(tmp_path: Path) -> None:
    def choice(*labels: str) -> list[dict[str, Any]]:
        return [{"type": "choices", "value": {"choices": list(labels)}}]

    tasks = [
        {
            "id": 7,
            "data": {"text": "Steel."},
            "annotations": [
                {
                    "completed_by": 3,
                    "updated_at": "2026-02-02T00:00:00Z",
                    "result": choice("late", "late"),
                },
                {
                    "completed_by": {"id": 4, "email": "bo@example.org"},
                    "result": [{"value": {"taxonomy": [["metal", "iron"]]}}],
                },
                {
                    "completed_by": 3,
                    "updated_at": "2026-01-01T00:00:00Z",
                    "result": choice("early"),
                },
                {"completed_by": 5, "was_cancelled": True, "result": choice("no")},
            ],
            "predictions": [],
        },
        {"id": 8, "data": {"text": "Wood."}, "annotations": []},
    ]
    path = write(tmp_path / "tasks.json", tasks)
    output, queue = tmp_path / "new.jsonl", tmp_path / "queue.jsonl"
    assert import_annotations([path], output, queue) == (2, 1, 1)
    by_person = {line["by"]: line for line in lines_of(output)}
    assert by_person["3"]["labels"] == ["late"]
    assert by_person["bo@example.org"]["labels"] == ["iron"]
    assert {line["id"] for line in by_person.values()} == {"7", "7~2"}
    assert lines_of(queue) == [{"id": "8", "text": "Wood."}]
    with pytest.raises(ConfigError, match=r"new\.jsonl: is already there"):
        import_annotations([path], output)


def test_what_argilla_writes(tmp_path: Path) -> None:
    users = [f"00000000-0000-0000-0000-00000000000{number}" for number in range(3)]
    records = [
        {
            "id": "r1",
            "fields": {"title": "On steel", "body": "Steel."},
            "metadata": {"year": 1990},
            "suggestions": {"topic": {"value": "iron", "score": 0.5, "agent": "m"}},
            "responses": {
                "topic": [
                    {"value": "iron", "user_id": users[0], "status": "submitted"},
                    {"value": ["wood"], "user_id": users[1]},
                    {"value": "no", "user_id": users[2], "status": "draft"},
                ]
            },
        },
        {"id": "r2", "fields": {"title": "b", "body": "c"}, "responses": {}},
    ]
    path = write(tmp_path / "records.json", records)
    output = tmp_path / "new.jsonl"
    assert import_annotations([path], output) == (2, 1, 1)
    first, second = lines_of(output)
    assert (first["by"], first["labels"]) == (users[0], ["iron"])
    assert (second["by"], second["labels"]) == (users[1], ["wood"])
    assert (first["year"], first["title"]) == (1990, "On steel")
    assert second["document"] == "r1"
    assert first["suggested"][0]["score"] == 0.5


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"text": "a", "labels": ["x"]}], "neither Label Studio's"),
        ([{"data": {"text": "a"}, "annotations": []}], "item 1.*has no id"),
        ([{"id": 1, "data": {"text": "a"}, "annotations": []}], "nobody has judged"),
        (
            [{"id": 1, "data": {"labels": "a"}, "annotations": [{"result": []}]}],
            "the column 'labels' is a key of annotations",
        ),
        (
            [{"id": 1, "data": {"text": "a"}, "annotations": [{"result": []}]}] * 2,
            "item 2.*a second document with the id '1'",
        ),
        (
            [{"id": 1, "data": {"text": "a"}, "annotations": [{"result": [3]}]}],
            "item 1.*not as Label Studio writes it",
        ),
        (
            [
                {
                    "id": 1,
                    "data": {"text": "a"},
                    "annotations": [
                        {
                            "result": [
                                {"type": "choices", "value": {"choices": [["law"]]}}
                            ]
                        }
                    ],
                }
            ],
            "item 1.*(not a label|not as Label Studio)",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, entries: Any, words: str
) -> None:
    path = write(tmp_path / "some.json", entries)
    with pytest.raises(DataError, match=words):
        import_annotations([path], tmp_path / "new.jsonl")
    assert not (tmp_path / "new.jsonl").exists()
    with pytest.raises(DataError, match="no such file"):
        import_annotations([tmp_path / "none.json"], tmp_path / "new.jsonl")
