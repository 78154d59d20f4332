"""Files to label are read as the training files were: the same columns, joined in the same way."""

import io
import json
import sys

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

import xmtc as package
from xmtc.artefact.info import read_info
from xmtc.data.fields import field_parts
from xmtc.data.readers.columns import ColumnsConfig, DocumentColumns
from xmtc.data.readers.config import PydocsConfig
from xmtc.data.readers.table_config import CsvConfig, SplitFilesConfig, document_columns
from xmtc.errors import DataError
from xmtc.score.inputs import input_files, read_inputs, text_columns
from xmtc.score.shell import texts_to_predict
from xmtc.storage.config import StorageConfig
from xmtc.storage.fetch import fetch
from xmtc.storage.remote import Remote

ROWS = [
    {"id": "a", "title": "fishing", "text": "lawery, and the\nlawing"},
    {"id": "b", "title": "", "text": "steelery"},
    {"id": "c", "title": "schooling", "text": "of"},
]
TEXTS = ["fishing\nlawery, and the\nlawing", "steelery", "schooling\nof"]
TRAINED_ON = DocumentColumns(id="id", text=("title", "text"))


def write_all(folder):
    frame = pd.DataFrame(ROWS)
    frame.to_json(folder / "rows.jsonl", orient="records", lines=True)
    frame.to_json(folder / "zipped.jsonl.gz", orient="records", lines=True)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_csv(folder / "rows.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "rows.parquet")
    return ["rows.jsonl", "zipped.jsonl.gz", "rows.csv", "rows.tsv", "rows.parquet"]


def test_a_source_says_its_columns():
    columns = ColumnsConfig(id="id", text=("title", "text"), labels="l")
    assert (
        document_columns(
            CsvConfig(files=SplitFilesConfig(train="a.csv"), columns=columns)
        )
        == TRAINED_ON
    )
    assert document_columns(PydocsConfig()) is None


def test_every_structured_file_is_read_as_in_training(tmp_path):
    for name in write_all(tmp_path):
        found = texts_to_predict(
            tmp_path / name, text_columns(None, None, TRAINED_ON), TRAINED_ON
        )
        assert list(found) == [
            ({"id": row["id"]}, text) for row, text in zip(ROWS, TEXTS, strict=True)
        ], name
    folder = texts_to_predict(
        tmp_path, text_columns(None, None, TRAINED_ON), TRAINED_ON
    )
    assert sorted(text for _, text in folder) == sorted(5 * TEXTS)
    other = texts_to_predict(
        tmp_path / "rows.csv", text_columns(["text"], "title", TRAINED_ON), TRAINED_ON
    )
    assert [text for _, text in other] == [row["text"] for row in ROWS]
    without = texts_to_predict(
        tmp_path / "rows.csv", text_columns(["text"], None), None
    )
    assert [place for place, _ in without] == [
        {"id": f"rows.csv:{n}"} for n in (1, 2, 3)
    ]


def test_several_columns_are_one_field_of_a_model_that_has_one(tmp_path):
    path = tmp_path / write_all(tmp_path)[0]
    found = list(
        texts_to_predict(
            path, text_columns(["title", "text"], None, DocumentColumns()), None
        )
    )
    assert [field_parts(text, 1) for _, text in found] == [[text] for text in TEXTS]
    with pytest.raises(DataError, match="a document has 2 fields, but the model has 3"):
        field_parts(found[0][1], 3)


def test_a_model_remembers_its_columns_and_labels_files_by_them(whole, xmtc, tmp_path):
    model = whole.run / "model"
    assert read_info(model).columns == DocumentColumns(id="id", text=("text",))
    rows = [
        json.loads(line)
        for line in (whole.folder / "dev.jsonl").read_text().splitlines()
    ]
    said = [
        json.loads(line)
        for line in xmtc(
            "predict", model, "--input", whole.folder / "dev.jsonl"
        ).out.splitlines()
    ]
    assert [row["id"] for row in said] == [row["id"] for row in rows]
    expected = package.Model.from_pretrained(model).predict(
        [row["text"] for row in rows]
    )
    assert [row["labels"][0]["label"] for row in said] == [
        best[0].label for best in expected
    ]

    assert (
        xmtc("score", model, whole.folder / "dev.jsonl", "-o", tmp_path / "scored").code
        == 0
    )
    scored = pq.read_table(next((tmp_path / "scored").glob("part-*.parquet")))
    assert scored["doc_id"].to_pylist() == [row["id"] for row in rows]
    (tmp_path / "no_id.jsonl").write_text('{"text": "fishing"}\n')
    assert (
        xmtc("score", model, tmp_path / "no_id.jsonl", "-o", tmp_path / "scored2").code
        == 0
    )
    scored = pq.read_table(next((tmp_path / "scored2").glob("part-*.parquet")))
    assert scored["doc_id"].to_pylist() == ["no_id.jsonl:1"]
    assert (
        xmtc(
            "explain",
            model,
            "--input",
            whole.folder / "dev.jsonl",
            "--doc-id",
            rows[3]["id"],
        ).code
        == 0
    )


def test_ids_and_categories_are_found_where_the_first_object_has_none(tmp_path, caplog):
    path, trained_on = (
        tmp_path / "a.jsonl",
        DocumentColumns(id="nr", text=("text",), categories=("type",)),
    )
    path.write_text(
        '{"text": "cod", "nr": "", "x": 1}\n{"text": "fish", "nr": 7, "type": "Law"}\n'
    )
    assert [
        row.doc_id
        for row in read_inputs(
            [str(path)], text_columns(None, None, trained_on), trained_on
        )
    ] == [
        "a.jsonl:1",
        "7",
    ]
    assert not caplog.records
    path.write_text('{"text": "cod"}\n{"text": "fish", "nr": 7}\n')
    first, second = read_inputs(
        [str(path)], text_columns(None, None, trained_on), trained_on
    )
    assert ("no column 'nr'" in first.reason, second.doc_id) == (True, "7")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.jsonl",
            '{"text": "fish"}\n{"body": "Mrs Smith"}\n',
            "a.jsonl:2: no column 'text'",
        ),
        ("a.jsonl", '{"text": "fish"}\nMrs Smith\n', "a.jsonl:2: malformed JSON"),
        ("a.json", '["Mrs Smith"]', "a.json:1: a JSON list, not an object"),
        ("a.csv", "body,x\nMrs Smith,2\n", "no column 'text'"),
        ("a.csv", "text\n", "has no rows"),
        ("a.parquet", "PAR1Mrs SmithPAR1", "cannot be read as Parquet"),
        ("a.txt", '\n{"text": "Mrs Smith"}\n', "line 2 is a JSON object"),
        ("-", '{"text": "Mrs Smith"}\n', "line 1 is a JSON object"),
        ("a.yaml", "name: Mrs Smith\n", "a configuration, not texts"),
    ],
)
def test_a_file_of_another_structure_is_refused_without_its_text(
    whole, xmtc, tmp_path, monkeypatch, name, content, words
):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    (tmp_path / name).write_text(content)
    outcome = xmtc(
        "predict",
        whole.run / "model",
        "--input",
        "-" if name == "-" else tmp_path / name,
    )
    assert (outcome.code, outcome.out) == (1, "")
    assert words in outcome.err
    assert "Mrs Smith" not in outcome.err


LONG = "lawery of fishing " * 600_000


def write_long(path):
    row = {"id": "a", "text": LONG}
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(row) + "\n")
    elif path.suffix == ".csv":
        pd.DataFrame([row]).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pd.DataFrame([row]).to_parquet(path)
    else:
        path.write_text(f"{LONG}\n")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.txt"])
def test_the_advice_about_a_long_document_works_when_it_is_followed(
    whole, xmtc, tmp_path, name
):
    write_long(tmp_path / name)
    words = ["predict", whole.run / "model", "--input", tmp_path / name]
    outcome = xmtc(*words)
    assert (outcome.code, outcome.out) == (1, "")
    assert "--longest-document" in outcome.err
    outcome = xmtc(*words, "--longest-document", len(LONG))
    assert outcome.code == 0, outcome.err
    assert len(outcome.out.splitlines()) == 1


def test_a_long_document_is_scored_explained_and_sampled_if_that_is_asked(
    whole, xmtc, tmp_path
):
    model, file, scores = whole.run / "model", tmp_path / "a.jsonl", tmp_path / "out"
    write_long(file)
    more = ("--longest-document", len(LONG))
    score = ("score", model, file, "-o", scores, "--id", "id", "--threshold", "tuned")
    assert "--longest-document" in xmtc(*score, "--max-rejected", 0).err
    assert xmtc(*score, *more, "--overwrite").code == 0
    assert pq.read_table(scores)["doc_id"].to_pylist() == ["a"]
    sample = ("annotations", "sample", scores, "--model", model, "--id", "id")
    for command in (
        ("explain", model, "--doc-id", "a", "--id", "id"),
        (*sample, "--size", 1, "-o", tmp_path / "sample.jsonl"),
    ):
        outcome = xmtc(*command, "--input", file)
        assert (outcome.code, "--longest-document" in outcome.err) == (1, True)
        outcome = xmtc(*command, "--input", file, *more)
        assert outcome.code == 0, outcome.err


def test_the_source_of_a_configuration_is_scored_with_its_longest_document(
    xmtc, whole, tmp_path
):
    row = {"id": "a", "text": LONG, "labels": ["law"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    settings = yaml.safe_load(whole.config.read_text())
    settings["data"]["source"]["files"] = {"train": str(tmp_path / "a.jsonl")}
    settings["data"]["longest_document"] = len(LONG)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(settings))
    words = ["score", whole.run / "model", config, "-o", tmp_path / "out"]
    outcome = xmtc(*words, "--longest-document", 5)
    assert "leave out --longest-document" in " ".join(outcome.err.split())
    assert xmtc(*words).code == 0
    assert pq.read_table(tmp_path / "out").num_rows == 1


def test_a_column_that_is_named_twice_is_refused():
    with pytest.raises(DataError, match=r"--text-column title: named twice"):
        text_columns(["title", "text", "title"], None)


@pytest.mark.parametrize("pattern", ["*.jsonl", "**/*.jsonl", "sub/*", "s*/**"])
def test_a_pattern_of_a_uri_means_what_it_means_on_a_disk(tmp_path, pattern):
    remote = Remote("memory://patterns")
    for name in ("x.jsonl", "sub/y.jsonl", "sub/deep/z.jsonl"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        remote.upload(path, name)
    here = [
        file.path.removeprefix(f"{tmp_path}/in/")
        for file in input_files([f"{tmp_path}/in/{pattern}"])
    ]
    there = [
        file.path.removeprefix("memory://patterns/")
        for file in input_files([f"memory://patterns/{pattern}"])
    ]
    copies = fetch(
        f"memory://patterns/{pattern}", StorageConfig(cache=str(tmp_path / "cache"))
    )
    assert here == there
    assert len(input_files([str(copies)])) == len(here)
