"""Annotations reach Label Studio and Argilla with people's labels and the model's suggestions."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from served import LABELS, NAMES, export

from annotation_lines import LINES
from commands import xmtc
from xmtc.desk.annotate.exporting import FORMATS, Format, export_annotations
from xmtc.desk.annotate.importing import import_annotations
from xmtc.errors import DataError

__all__ = ["xmtc"]


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_label_studio(xmtc, annotations: Path, tmp_path: Path) -> None:
    output = tmp_path / "tasks.json"
    assert (
        xmtc(
            "annotations",
            "export",
            annotations,
            "--format",
            "label-studio",
            "-o",
            output,
        ).code
        == 0
    )
    first, second = json.loads(output.read_text())
    assert first["data"] == {
        "id": "d1",
        "title": "On cod",
        "body": "Cod is a fish.",
        "type": ["a", "b"],
        "text": "On cod\nCod is a fish.",
        "annotators": ["ann", "bo"],
    }
    chosen = [
        [result["value"]["choices"] for result in one["result"]]
        for one in first["annotations"]
    ]
    assert chosen == [[["fish"]], []]  # no label fits, says `bo`
    assert not any("completed_by" in one for one in first["annotations"])
    assert first["predictions"][0]["result"][0]["value"]["choices"] == ["fish"]
    assert first["predictions"][0]["model_version"] == "sea 3"
    assert "predictions" not in second
    view = ElementTree.parse(output.with_suffix(".xml")).getroot()
    offered = [(one.get("value"), one.get("alias")) for one in view.iter("Choice")]
    assert offered == [("Fish", "fish"), ("Law", "law & order"), ("steel", None)]
    result = first["annotations"][0]["result"][0]
    assert view.find("Choices").get("name") == result["from_name"]
    assert view.find("Text").get("name") == result["to_name"]


def test_many_labels_are_a_taxonomy_and_people_are_named_by_their_addresses(
    tmp_path: Path,
) -> None:
    labels = [f"label {number}" for number in range(101)]
    names = dict.fromkeys(labels, "")
    names |= {
        "label 0": "Cod",
        "label 1": "Cod",
        "label 2": "label 3",
        "label 4": "Eel",
    }
    names["label 5"] = "Cod (label 0)"
    path, output = tmp_path / "some.jsonl", tmp_path / "tasks.json"
    line = {"id": "d1", "text": "x", "labels": labels[:2], "by": "ann@example.org"}
    path.write_text(json.dumps(line) + "\n")
    export_annotations([path], "label-studio", output, names)
    (annotation,) = json.loads(output.read_text())[0]["annotations"]
    assert annotation["completed_by"] == {"email": "ann@example.org"}
    (result,) = annotation["result"]
    assert (result["type"], result["value"]) == (
        "taxonomy",
        {"taxonomy": [["label 0"], ["label 1"]]},
    )
    view = ElementTree.parse(output.with_suffix(".xml")).getroot()
    taxonomy = view.find("Taxonomy")
    assert taxonomy is not None
    shown = {one.get("alias", one.get("value")): one.get("value") for one in taxonomy}
    assert shown == {label: label for label in labels} | {
        "label 0": "Cod (label 0) (label 0)",
        "label 1": "Cod (label 1)",
        "label 2": "label 3 (label 2)",
        "label 4": "Eel",
        "label 5": "Cod (label 0)",
    }
    assert list(shown.values()) == sorted(shown.values())
    import_annotations([output], tmp_path / "back.jsonl")
    back = json.loads((tmp_path / "back.jsonl").read_text())
    assert (back["labels"], back["by"]) == (labels[:2], "ann@example.org")


def test_the_interface_offers_all_labels_of_a_model_and_unjudged_ones_are_told(
    xmtc, annotations: Path, tmp_path: Path
) -> None:
    model = export(tmp_path / "model")
    line = {"id": "d3", "text": "x", "labels": [], "rejected": [], "suggested": []}
    line["suggested"] = [{"label": "cod", "name": "Cod", "predicted": True}]
    with annotations.open("a") as file:
        file.write(json.dumps(line) + "\n")
    output = tmp_path / "tasks.json"
    command = ("annotations", "export", annotations, "--format", "label-studio")
    few = xmtc(*command, "-o", output)
    assert "3 judged documents" in few.out
    assert "1 annotation with predicted labels that nobody judged" in few.out
    assert "4 labels that occur in the annotations; --model MODEL" in few.out
    every = xmtc(*command, "-o", output, "--model", model)
    assert "7 labels of the model and the annotations" in every.out
    view = ElementTree.parse(output.with_suffix(".xml")).getroot()
    offered = {
        one.get("alias", one.get("value")): one.get("value")
        for one in view.iter("Choice")
    }
    assert offered == dict(zip(LABELS, NAMES, strict=True)) | {
        "law": "Law (law)",
        "law & order": "Law (law & order)",
    }


def test_argilla(xmtc, annotations: Path, tmp_path: Path) -> None:
    output = tmp_path / "records.json"
    assert (
        xmtc(
            "annotations", "export", annotations, "--format", "argilla", "-o", output
        ).code
        == 0
    )
    first, second = json.loads(output.read_text())
    assert (first["id"], first["fields"]) == (
        "d1",
        {"title": "On cod", "body": "Cod is a fish."},
    )
    assert first["metadata"] == {"type": ["a", "b"], "annotators": ["ann", "bo"]}
    assert [one["value"] for one in first["responses"]["labels"]] == [["fish"], []]
    assert len({one["user_id"] for one in first["responses"]["labels"]}) == 2
    assert first["suggestions"]["labels"] == {
        "value": ["fish"],
        "score": [0.9],
        "agent": "sea 3",
    }
    assert second["suggestions"] == {}


def test_what_is_no_annotation_is_refused(xmtc, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for path, words in (
        (tmp_path / "none.jsonl", "no such file"),
        (empty, "no annotations"),
    ):
        outcome = xmtc(
            "annotations",
            "export",
            path,
            "--format",
            "argilla",
            "-o",
            tmp_path / "out.json",
        )
        assert outcome.code == 1
        assert words in outcome.err


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize(
    "change",
    [
        {"labels": None},
        {"labels": [["law"]]},
        {"labels": "law"},
        {"by": []},
        {"at": 3},
        {"model": "m 1"},
        {"model": {"name": []}},
        {"suggested": True},
        {"suggested": ["law"]},
        {"suggested": [{"label": {}, "predicted": True}]},
        {"suggested": [{"label": "law"}]},
        {"suggested": [{"label": "law", "predicted": True, "name": 3}]},
        {"added": [{"name": "Law"}]},
        {"suggested": [{"label": "law", "predicted": True, "score": float("nan")}]},
        {"seconds": float("inf")},
    ],
    ids=str,
)
def test_values_of_another_type_are_refused_with_their_place(
    tmp_path: Path, format_name: Format, change: dict[str, Any]
) -> None:
    path = tmp_path / "more.jsonl"
    line = {"id": "a", "text": "fish", "labels": ["law"]}
    path.write_text(f"{json.dumps(line)}\n{json.dumps(line | {'id': 'b'} | change)}\n")
    with pytest.raises(
        DataError, match=rf"more\.jsonl: annotation 2: not valid: {next(iter(change))}"
    ):
        export_annotations([path], format_name, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
