"""Formats of other tools: recognised, and read as documents with the labels that people gave them."""

import json
from pathlib import Path
from typing import Any

import pytest

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.exports import EXPORTS, recognised
from xmtc.data.readers.table import Row

LABEL_STUDIO = [
    {
        "id": 1,
        "data": {"text": "a"},
        "annotations": [
            {
                "result": [{"value": {"choices": ["x", "y"]}, "type": "choices"}],
                "was_cancelled": False,
            }
        ],
    },
    {"id": 2, "data": {"text": "b"}, "annotations": [{"result": []}]},
    {"id": 3, "data": {"text": "c"}, "annotations": []},
    {
        "id": 4,
        "data": {"text": "d"},
        "annotations": [{"result": [], "was_cancelled": True}],
    },
]
PRODIGY = [
    {"text": "a", "label": "x", "answer": "accept", "_input_hash": 7},
    {"text": "a", "label": "y", "answer": "reject", "_input_hash": 7},
    {
        "text": "b",
        "options": [{"id": "x"}, {"id": "y"}],
        "accept": ["y"],
        "answer": "accept",
    },
    {"text": "c", "options": [{"id": "x"}], "accept": ["x"], "answer": "reject"},
    {"text": "d", "label": "x", "answer": "ignore"},
]
ARGILLA = [
    {
        "id": "1",
        "fields": {"text": "a"},
        "responses": {"topic": [{"value": ["x", "y"], "status": "submitted"}]},
    },
    {
        "id": "2",
        "fields": {"text": "b"},
        "responses": {"topic": [{"value": ["x"], "status": "draft"}]},
    },
]
ARGILLA_1 = [
    {"text": "a", "annotation": ["x"], "status": "Validated", "prediction": None},
    {
        "text": "b",
        "annotation": None,
        "status": "Default",
        "prediction": [{"label": "x", "score": 1.0}],
    },
]
SPACY = [{"text": "a", "cats": {"x": 1.0, "y": 0.0}}, {"text": "b", "cats": {"x": 0}}]


def rows(path: Path) -> list[Row | Rejected]:
    export = recognised(path)
    assert export is not None
    return list(export().rows(path, None))


def read(path: Path) -> list[Any]:
    """Labels and rejected labels of each document; None for one that nobody judged."""
    found = []
    for row in rows(path):
        if isinstance(row, Rejected):
            assert row.unjudged
            found.append(None)
        else:
            found.append((row.cells["labels"], row.cells.get("rejected")))
    return found


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (LABEL_STUDIO, [(["x", "y"], None), ([], None), None, None]),
        (PRODIGY, [(["x"], ["y"]), (["y"], None), None, None]),
        (ARGILLA, [(["x", "y"], None), None]),
        (ARGILLA_1, [(["x"], None), None]),
        (SPACY, [(["x"], ["y"]), ([], ["x"])]),
        (
            [[one["text"], {"cats": one["cats"]}] for one in SPACY],
            [(["x"], ["y"]), ([], ["x"])],
        ),
    ],
)
def test_documents_that_nobody_judged_are_left_out(
    tmp_path, documents, expected, indent
):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(documents, indent=indent))
    assert read(path) == expected


def test_lines_without_a_header(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("__label__x __label__y a text\n__label__y another\n")
    assert [row.cells for row in rows(path)] == [
        {"text": "a text", "labels": ["x", "y"]},
        {"text": "another", "labels": ["y"]},
    ]
    path = tmp_path / "corpus.tsv"
    path.write_text("a text\t<http://e/x> <http://e/y>\nanother\t<http://e/y>\n")
    assert read(path) == [(["http://e/x", "http://e/y"], None), (["http://e/y"], None)]


def test_features_are_words(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("2 3 2\n0,1 0:2 2:0.5\n1 1:1\n")
    assert [row.cells["text"] for row in rows(path)] == ["f0 f0 f2", "f1"]
    (tmp_path / "Xf.txt").write_text("court\nfish\ntrade\n")
    (tmp_path / "Yf.txt").write_text("law\nfood\n")
    assert [row.cells for row in rows(path)] == [
        {"text": "court court trade", "labels": ["law", "food"]},
        {"text": "fish", "labels": ["food"]},
    ]


@pytest.mark.parametrize("ending", [".key", ".tsv"])
def test_a_folder_of_texts_with_subjects(tmp_path, ending):
    for name, subjects in (("a", ["x", "y"]), ("b", ["y"])):
        (tmp_path / f"{name}.txt").write_text(f"the text of {name}")
        (tmp_path / f"{name}{ending}").write_text(
            "".join(f"{subject}\tname\n" for subject in subjects)
        )
    (tmp_path / "c.txt").write_text("nobody has judged it")
    assert read(tmp_path) == [(["x", "y"], None), (["y"], None), None]


def test_places_in_the_text_are_refused(tmp_path):
    path = tmp_path / "export.json"
    result = {"value": {"start": 0, "end": 3, "labels": ["PER"]}, "type": "labels"}
    path.write_text(
        json.dumps([{"data": {"text": "a"}, "annotations": [{"result": [result]}]}])
    )
    (row,) = rows(path)
    assert isinstance(row, Rejected)
    assert "places of the text" in row.reason
    assert not row.unjudged


def test_plain_tables_are_no_exports(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "labels": ["x"]}\n')
    (tmp_path / "b.csv").write_text("text,labels\na,x\n")
    (tmp_path / "c.tsv").write_text("text\tlabels\na\tx\n")
    assert [recognised(tmp_path / name) for name in ("a.jsonl", "b.csv", "c.tsv")] == [
        None
    ] * 3
    assert recognised(tmp_path) is None
    assert len({export.identity for export in EXPORTS}) == len(EXPORTS)
