"""`xmtc init` on files and `xmtc.train` on lists: what is written, what is refused, and that it trains."""

import csv
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import xmtc
from tiny_runs import LABELS, documents, write_jsonl
from xmtc.cli import app
from xmtc.config.load import load_config
from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.languages import languages_of
from xmtc.data.prepare import prepare
from xmtc.data.pretrained import DEFAULT_BACKBONE, MULTILINGUAL
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.data.readers.cells import labels_of
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.estimate.probe import HeadSpeed
from xmtc.estimate.seconds import Speeds
from xmtc.estimate.size import Size, Survey, size_of_source, survey
from xmtc.init import plan
from xmtc.init.answers import Answers
from xmtc.init.budget import seconds_of
from xmtc.init.command import config_for, name_of, write_config
from xmtc.init.commented import commented_yaml, reasons
from xmtc.init.data_files import find_files, label_columns
from xmtc.init.facts import read_facts
from xmtc.init.plan import data_section, encoder_for, roles_of
from xmtc.init.recipes import Room, Task, candidates, choose, lengths_to_try
from xmtc.init.roles import choose_roles
from xmtc.init.summary import label_doubts
from xmtc.own_data import documents_table
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.run.state import RunState
from xmtc.stages.table import stage_seconds
from xmtc.track.progress import Progress

ROWS = [
    {**row, "text": f"document {row['text']} and more words"} for row in documents(80)
]
SOURCE = {
    "kind": "csv",
    "files": {"train": "news.csv"},
    "columns": {"text": "text", "labels": "labels"},
}
SPEEDS = Speeds(
    core_s=0.2, encode_s={96: 0.02, 512: 0.1, 256: 0.05, 128: 0.03}, head=None
)
LENGTHS = np.array([100, 300, 400])


def write_csv(
    path: Path, rows: list[dict], delimiter: str = ",", separator: str = "|"
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "text", "labels"])
        writer.writerows(
            [row["id"], row["text"], separator.join(row["labels"])] for row in rows
        )
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A configuration for a CSV file with semicolons, bars between labels, and two documents without labels."""
    folder = tmp_path_factory.mktemp("init")
    rows = [
        *ROWS,
        *(
            {"id": f"bare{i}", "text": f"nothing fits this one {i}", "labels": []}
            for i in range(2)
        ),
    ]
    data = write_csv(folder / "news.csv", rows, delimiter=";")
    return write_config(str(data), Answers(), budget="1m", output=folder / "news.yaml")


def test_what_is_written_is_a_configuration_that_says_why(written):
    config = load_config(RunConfig, written, [])
    assert config.data.source.columns.label_separator == "|"
    assert config.data.source.columns.id == "id"
    assert config.data.max_length % 32 == 0
    text = written.read_text()
    assert "# Estimate on this machine:" in text
    assert re.search(r"6 different ones in\s+82 rows", text), text
    assert f"#   xmtc train {written}\n" in written.read_text()
    with pytest.raises(ConfigError, match=r"news\.yaml .*-o"):
        write_config(
            str(written.with_name("news.csv")), Answers(), budget="1m", output=written
        )


def test_a_file_that_another_process_wrote_meanwhile_is_kept(
    tmp_path, written, monkeypatch
):
    output = tmp_path / "late.yaml"
    monkeypatch.setattr(
        "xmtc.init.plan.make_plan", lambda *_: output.write_text("mine")
    )
    with pytest.raises(ConfigError, match=r"late\.yaml already exists"):
        write_config(str(written.with_name("news.csv")), Answers(), output=output)
    assert output.read_text() == "mine"


def test_a_run_is_named_as_its_file_and_the_name_of_another_run_is_refused(
    tmp_path, written, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    config = load_config(RunConfig, written, ["name=second"])
    names: list[str] = []

    def planned(*arguments: object) -> SimpleNamespace:
        names.append(str(arguments[-1]))
        return SimpleNamespace(config=config)

    monkeypatch.setattr("xmtc.init.plan.make_plan", planned)
    run = tmp_path / "runs" / "second"
    RunState.open(run, replace(config, seed=config.seed + 1)).close()
    (run / "model").mkdir()
    (run / "model" / "config.json").touch()
    data = str(written.with_name("news.csv"))
    with pytest.raises(ConfigError, match=r"runs/second: a run of .*--name OTHER"):
        write_config(data, Answers(), output=Path("second.yaml"))
    assert names == ["second"]
    assert not Path("second.yaml").exists()


def test_the_configuration_of_other_data_of_the_same_name_is_not_used(
    tmp_path, written, monkeypatch
):
    monkeypatch.chdir(written.parent)
    assert config_for("news.csv") == Path("news.yaml")
    assert config_for(str(written.parent / "news.csv")) == Path("news.yaml")
    write_csv(tmp_path / "news.csv", ROWS)
    with pytest.raises(
        ConfigError,
        match=r"news\.yaml exists, .* it reads other data than .*add name=OTHER",
    ):
        config_for(str(tmp_path / "news.csv"))


def test_texts_in_memory_become_a_model(tmp_path):
    texts, labels = [row["text"] for row in ROWS], [row["labels"] for row in ROWS]
    directory = tmp_path / "news"
    model = xmtc.train(texts, labels, budget="1s", directory=directory)
    best = model.predict([f"{texts[0]} lawery lawing"], top_k=2)[0]
    assert best[0].label in {"law", "fish", "heart", "trade", "school", "steel"}
    assert (directory / "eval/dev/report.html").is_file()
    assert model.info.name == "news"
    with pytest.raises(
        DataError, match=r"one length; there are 3 in text, 2 in labels"
    ):
        xmtc.train(["a", "b", "c"], [["x"], ["y"]], directory=directory)
    with pytest.raises(DataError, match="texts is not a table with columns"):
        xmtc.train(["a", "b"], directory=directory)
    for wrong in ({"task": "single"}, {"budget": 600}):
        with pytest.raises(
            ConfigError,
            match=r"task='single': give multi_label or single_label|^budget 600: give .*10m",
        ):
            xmtc.train(texts, labels, directory=tmp_path, **wrong)
    before = (directory / "documents.parquet").read_bytes()
    with pytest.raises(DataError, match="holds other documents"):
        xmtc.train(["a", "b"], ["x", "y"], directory=directory)
    assert (directory / "documents.parquet").read_bytes() == before


def test_documents_from_which_nothing_can_be_learnt_do_not_keep_others_away(tmp_path):
    for label in ("x", "y"):  # every document has the same one
        with pytest.raises(
            DataError, match="nothing to learn; name another column of labels, or"
        ):
            xmtc.train(
                [row["text"] for row in ROWS], [label for _ in ROWS], directory=tmp_path
            )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("directory", [3, b"news", ["news"]])
def test_a_directory_that_is_no_path_is_refused_before_anything_is_read(directory):
    with pytest.raises(ConfigError, match=r"directory=.*give the path of a folder"):
        xmtc.train(iter([]), iter([]), directory=directory)


def test_a_directory_with_other_files_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "config.yaml").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds other files, such as config\.yaml"):
        xmtc.train(["a"], ["x"], directory=tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_a_directory_whose_name_a_run_cannot_have_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"my news.*letters, digits"):
        xmtc.train(["a"], ["x"], directory=tmp_path / "my news")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "news").touch()
    for place in (tmp_path / "news", tmp_path / "news" / "more"):
        with pytest.raises(StorageError, match=r"news.*cannot be written"):
            xmtc.train(["a"], ["x"], directory=place)


@pytest.mark.parametrize("name", [None, 1.5, b"text"])
def test_the_name_of_a_text_column_of_another_type_is_no_column(name):
    with pytest.raises(DataError, match=r"no column .*there are: text, labels"):
        xmtc.train({"text": ["a"], "labels": ["x"]}, text=name)


def test_tables_of_every_kind_are_the_same_table():
    texts, labels = ["a b", "c d", "e f"], [["x", "y"], [], ["x"]]
    frame = pd.DataFrame({"text": texts, "labels": labels})
    expected = documents_table(texts, labels, ["text"], "labels")
    for given in (
        frame,
        pa.table({"text": texts, "labels": labels}),
        {"text": texts, "labels": labels},
    ):
        assert documents_table(given, None, ["text"], "labels").equals(expected)
    assert documents_table(frame["text"], frame["labels"], ["text"], "labels").equals(
        expected
    )
    assert documents_table(frame, labels, ["text"], "labels").equals(expected)
    two_fields = {"title": ["a", "c", "e"], "body": ["b", "d", "f"], "year": [1, 2, 3]}
    assert documents_table(two_fields, labels, ["title", "body"], "labels").equals(
        pa.table({**two_fields, "labels": expected["labels"]}).drop_columns(["year"])
    )
    with pytest.raises(DataError, match=r"text=\['title'\] names columns"):
        documents_table(texts, labels, ["title"], "labels")
    with pytest.raises(DataError, match="cannot hold both text and labels"):
        documents_table(frame, None, ["labels"], "labels")
    one = documents_table(
        pd.Series(texts), pd.Series(["x", None, "y"]), ["text"], "labels"
    )
    assert one["labels"].to_pylist() == [["x"], [], ["y"]]
    assert documents_table(texts, [1, 0, 1], ["text"], "labels")[
        "labels"
    ].to_pylist() == [["1"], ["0"], ["1"]]
    with pytest.raises(DataError, match="item 1 is a number or a date, not a text"):
        documents_table(["a", 3, "b"], labels, ["text"], "labels")
    with pytest.raises(DataError, match=r"'text'.* body"):
        documents_table({"body": texts}, None, ["text"], "labels")


def test_columns_without_names_have_numbers():
    frame = pd.DataFrame([["a text", ["law"]], ["a note", ["tax"]]])
    assert documents_table(frame, None, ["0"], "1").to_pylist() == [
        {"0": "a text", "1": ["law"]},
        {"0": "a note", "1": ["tax"]},
    ]
    with pytest.raises(DataError, match="no column '3'; there are 2"):
        xmtc.train(frame, text=0, label_column=3)
    with pytest.raises(DataError, match="no column '2'; there are 2"):
        xmtc.train(frame, text=(0, 2), label_column=1)


def test_a_first_line_that_is_a_document_is_no_header(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text(
        "a good film,positive\n" + "a bad film,negative\nanother one,positive\n" * 20
    )
    with pytest.raises(DataError, match=r"train\.csv: the first line .*text,labels"):
        write_config(str(path), Answers(), output=tmp_path / "a.yaml")
    path.write_text(f"{'word ' * 40},law\n" + "a bad film,fish\n" * 20)
    with pytest.raises(DataError, match=r"train\.csv: the first line"):
        write_config(str(path), Answers(), output=tmp_path / "a.yaml")


def test_names_of_json_are_names_whatever_the_cells_are(tmp_path):
    rows = [{**row, "law": "law" if "law" in row["labels"] else None} for row in ROWS]
    files = find_files(str(write_jsonl(tmp_path / "train.jsonl", rows)))
    assert roles_of(files, Answers()).labels == ("labels",)
    pd.DataFrame(rows).assign(labels=[";".join(row["labels"]) for row in rows]).to_csv(
        tmp_path / "a.csv", index=False
    )
    with pytest.raises(DataError, match="first line looks like a document"):
        roles_of(find_files(str(tmp_path / "a.csv")), Answers())


def test_iris_are_separated_by_blanks_and_lose_their_brackets(tmp_path):
    path = tmp_path / "train.csv"
    rows = (
        f"document number {n},<http://a.org/x/{n % 5}> <http://a.org/x/{n % 3}>\n"
        for n in range(60)
    )
    path.write_text("text,subjects\n" + "".join(rows))
    config = load_config(
        RunConfig,
        write_config(str(path), Answers(), budget="1m", output=tmp_path / "a.yaml"),
        [],
    )
    assert config.data.source.columns.label_separator == " "
    assert labels_of("<http://a.org/x/1> <http://a.org/x/2>", " ")[0] == (
        "http://a.org/x/1",
        "http://a.org/x/2",
    )


def test_folders_name_splits_and_label_files(tmp_path):
    for name in (
        "train-00000-of-00002",
        "train-00001-of-00002",
        "validation-00000-of-00001",
        "labels",
    ):
        write_jsonl(tmp_path / f"{name}.jsonl", ROWS[:3])
    found = find_files(str(tmp_path))
    assert {split: len(names) for split, names in found.by_split.items()} == {
        "train": 2,
        "dev": 1,
    }
    assert found.labels == str(tmp_path / "labels.jsonl")
    (tmp_path / "validation-00000-of-00001.jsonl").rename(
        tmp_path / "development.jsonl"
    )
    assert find_files(str(tmp_path)).by_split["dev"] == (
        str(tmp_path / "development.jsonl"),
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"\.jsonl.*notes\.txt"):
        find_files(str(tmp_path / "other"))
    for name in ("north", "south"):
        write_jsonl(tmp_path / f"other/{name}.jsonl", ROWS[:3])
    alike = find_files(str(tmp_path / "other"))
    assert {Path(name).stem for name in alike.by_split["train"]} == {"north", "south"}
    write_jsonl(tmp_path / "other/east.jsonl", [{"body": "a text", "labels": []}])
    with pytest.raises(
        DataError,
        match=r"train: east\.jsonl, north\.jsonl, south\.jsonl; .*east\.jsonl --add",
    ):
        find_files(str(tmp_path / "other"))
    with pytest.raises(DataError, match="no such file"):
        find_files(str(tmp_path / "none.csv"))


def test_files_of_a_folder_that_are_left_out_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "news"
    (folder / "data").mkdir(parents=True)
    for place in ("train", "extra", "data/more"):
        write_csv(folder / f"{place}.csv", ROWS)
    for name in ("classes", "labels"):
        (folder / f"{name}.csv").write_text("label,name\nlaw,L\n")
    write_config(str(folder), Answers(), budget="1m")
    assert (
        "warning: left out, not named train, dev, test or labels: data/more.csv, extra.csv, labels.csv\n"
        in (capsys.readouterr().out)
    )
    config_for(str(folder))
    assert "does not read" not in capsys.readouterr().err
    write_csv(folder / "test.csv", ROWS)
    config_for(str(folder))
    said = capsys.readouterr().err
    assert "using the existing configuration news.yaml" in said
    assert "news.yaml does not read " in said


def test_a_vocabulary_names_labels_and_their_parents(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    concepts = "".join(
        f"e:{label} a skos:Concept ; skos:broader e:top .\n"
        for label in {*ROWS[0]["labels"], "top"}
    )
    prefixes = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n@prefix e: <http://example.org/> .\n"
    (tmp_path / "subjects.ttl").write_text(prefixes + concepts)
    files = find_files(str(tmp_path))
    columns = read_facts(files.rows(), files.place)
    assert files.labels == str(tmp_path / "subjects.ttl")
    assert label_columns(files, choose_roles(columns, Answers(), "here")) == {
        "label": "id",
        "parents": "parent_ids",
    }
    named = "".join(
        f'e:c{number} a skos:Concept ; skos:prefLabel "{label}"@de, "the {label}"@en .\n'
        for number, label in enumerate(sorted({*LABELS, "never"}))
    )
    (tmp_path / "subjects.ttl").write_text(prefixes + named)
    roles = choose_roles(columns, Answers(), "here")
    by_name = label_columns(files, roles)
    assert by_name == {"label": "label", "written": "name_de", "parents": "parents"}
    section = data_section(files, roles, "news")
    found = survey(adapter(DataConfig).validate_json(json.dumps(section)), Progress())
    assert set(found.label_counts) == {f"http://example.org/c{i}" for i in range(7)} - {
        f"http://example.org/c{sorted({*LABELS, 'never'}).index('never')}"
    }
    assert (found.named, found.unused_labels) == (6, 1)
    (tmp_path / "subjects.ttl").write_text(prefixes + "e:other a skos:Concept .\n")
    with pytest.raises(DataError, match=r"subjects\.ttl: .*'labels'"):
        write_config(str(tmp_path), Answers(), output=tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (
            "code;Description;parent;n",
            {"label": "code", "name": "Description", "parents": "parent"},
        ),
        (
            "label;broader;colour;n",
            {"label": "label", "name": None, "parents": "broader"},
        ),
        ("label;name;why;n", {"label": "label", "name": "name"}),
        ("id;label;why;n", {"label": "id", "name": "label"}),
    ],
)
def test_columns_of_a_label_file_are_told_by_the_labels_of_documents(
    tmp_path, header, columns
):
    write_csv(tmp_path / "train.csv", ROWS)
    there = sorted({label for row in ROWS for label in row["labels"]})
    rows = [f"{label};the {label};top;{number}\n" for number, label in enumerate(there)]
    (tmp_path / "labels.csv").write_text(header + "\n" + "".join(rows))
    files = find_files(str(tmp_path))
    facts = read_facts(files.rows(), files.place)
    assert label_columns(files, choose_roles(facts, Answers(), "here")) == columns


def test_what_a_label_file_gives_is_said(tmp_path, capsys):
    write_csv(tmp_path / "train.csv", ROWS)
    there = sorted({label for row in ROWS for label in row["labels"]})
    (tmp_path / "labels.csv").write_text(
        "code,title\n" + "".join(f"{label},the {label}\n" for label in there)
    )
    config = load_config(
        RunConfig,
        write_config(str(tmp_path), Answers(), output=tmp_path / "x.yaml"),
        [],
    )
    assert (
        "labels.csv: labels: code; names: title; parents: None\n"
        in capsys.readouterr().out
    )
    assert set(config.data.source.labels.read().names.values()) == {
        f"the {label}" for label in there
    }


def test_a_label_file_that_names_none_of_the_labels_is_refused(tmp_path):
    rows = [{**row, "labels": [f"00{i % 3}"]} for i, row in enumerate(ROWS)]
    write_csv(tmp_path / "train.csv", rows)
    (tmp_path / "labels.csv").write_text("label,name\n0,A\n1,B\n2,C\n")
    with pytest.raises(
        DataError,
        match=r"labels\.csv: no row stands for a label .*such as '000' of 'labels': .* --labels",
    ):
        write_config(str(tmp_path), Answers(), output=tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            ROWS[:3],
            r"3 different documents with text \(and 0 bad rows\); at least 20 are needed",
        ),
        (
            [
                {**row, "text": f"{ROWS[i % 15]['text']} again"}
                for i, row in enumerate(ROWS)
            ],
            "15 different documents with",
        ),
        (
            [{**row, "labels": ["same"]} for row in ROWS],
            "every document has the same labels in 'labels'",
        ),
        (
            [
                {**row, "labels": [["[0, 1]", "[1, 0]"][i % 2]]}
                for i, row in enumerate(ROWS)
            ],
            "vectors of zeros and ones",
        ),
        (
            [{**row, "labels": [row["id"]]} for row in ROWS],
            "no label of 'labels' has two documents.*--label-sep",
        ),
    ],
)
def test_data_from_which_nothing_can_be_learnt(tmp_path, rows, words):
    data = write_csv(tmp_path / "news.csv", rows)
    with pytest.raises(DataError, match=words):
        write_config(
            str(data),
            Answers(text=("text",), labels="labels"),
            output=tmp_path / "x.yaml",
        )
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("written", "separator", "words"),
    [
        (str, ",", None),
        (str, None, None),
        (";".join, None, "split at ';', there would be 6"),
        (";".join, ";", None),
    ],
)
def test_labels_that_may_be_something_else_are_doubted(
    tmp_path, written, separator, words
):
    rows = [{**row, "labels": written(row["labels"])} for row in ROWS]
    data = tmp_path / "rows.jsonl"
    write_jsonl(data, rows)
    files = find_files(str(data))
    columns = read_facts(files.rows(), "here")
    roles = choose_roles(
        columns,
        Answers(text=("text",), labels="labels", label_separator=separator or ""),
        "here",
    )
    source = {
        "kind": "jsonl",
        "files": {"train": str(data)},
        "columns": {"text": "text", "labels": "labels"},
    }
    source["columns"] |= {"label_separator": separator} if separator else {}
    config = adapter(DataConfig).validate_json(
        json.dumps({"source": source, "corpus": "unused"})
    )
    said = label_doubts(survey(config, Progress()), roles)
    assert [words in one for one in said] == ([True] if words else [])


def test_mixed_encodings_name_the_line(tmp_path):
    data = write_csv(tmp_path / "news.csv", ROWS)
    data.write_bytes(
        data.read_bytes() + "x,café und mehr Wörter,law\n".encode("latin-1")
    )
    with pytest.raises(DataError, match=r"news\.csv:82: "):
        write_config(str(data), Answers(), output=tmp_path / "x.yaml")


def test_a_survey_counts_what_preparation_will_find(tmp_path):
    rows = [*ROWS, {"id": "again", "text": ROWS[0]["text"], "labels": []}]
    for split, part in (("train", rows[:60]), ("dev", rows[60:])):
        write_jsonl(tmp_path / f"{split}.jsonl", part)
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "dev")}
    tree = {
        "source": {"kind": "jsonl", "files": files},
        "corpus": "c",
        "limit": {"train": 50},
    }
    found = survey(
        adapter(DataConfig).validate_json(json.dumps(tree)), Progress(enabled=False)
    )
    assert found.documents == {"train": 50, "dev": 20}
    assert (found.labels, found.bare, found.repeated, found.leaked, found.exact) == (
        6,
        1,
        1,
        1,
        True,
    )
    assert len(found.texts) == 81
    assert found.labels_per_document == pytest.approx(
        sum(len(row["labels"]) for row in rows) / 81
    )


def test_numbers_of_a_part_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        plan, "survey", lambda *given: replace(survey(*given), exact=False)
    )
    monkeypatch.setattr(plan, "core_seconds", lambda: 0.2)
    monkeypatch.setattr(
        plan,
        "encoder_seconds",
        lambda _, ids_N, lengths, **rest: dict.fromkeys(lengths, 0.02),
    )
    data = write_csv(
        tmp_path / "news.csv",
        [
            *ROWS,
            {"id": 0, "text": "x" * (LONGEST_DOCUMENT + 1), "labels": ["law"]},
            *({"id": i, "text": "", "labels": ["law"]} for i in range(2)),
        ],
    )
    text = write_config(
        str(data), Answers(), budget="1s", output=tmp_path / "x.yaml"
    ).read_text()
    printed = capsys.readouterr().out
    assert "about 80 documents" in printed
    assert "in the part read: 6 labels, " in printed
    assert (
        "in the part read: 3 rows that are not documents, skipped; the first is "
        f"{data}:82: the text has 10,000,001 characters; a document may have 10,000,000"
    ) in printed
    assert "# in the part read: 3 rows that are not documents" in text


@pytest.mark.parametrize("several", [True, False])
def test_what_becomes_of_documents_without_labels_is_said(
    tmp_path, monkeypatch, capsys, several
):
    monkeypatch.setattr(plan, "core_seconds", lambda: 0.2)
    monkeypatch.setattr(
        plan,
        "encoder_seconds",
        lambda _, ids_N, lengths, **rest: dict.fromkeys(lengths, 0.02),
    )
    rows = [
        {**row, "labels": row["labels"][: 2 if several else 1] if i % 9 else []}
        for i, row in enumerate(ROWS)
    ]
    write_config(
        str(write_csv(tmp_path / "a.csv", rows)),
        Answers(),
        budget="1s",
        output=tmp_path / "x.yaml",
    )
    out = "" if several else "; --task single_label leaves them out"
    assert (
        f"9 documents without labels, kept: no label fits them{out}\n"
        in capsys.readouterr().out
    )


def test_documents_that_preparation_leaves_out_are_not_counted(tmp_path):
    rows = [
        {**row, "labels": row["labels"][:i]}
        for i, row in zip([0, 1, 1, 1] * 15, ROWS, strict=False)
    ]
    write_jsonl(tmp_path / "train.jsonl", rows)
    write_jsonl(
        tmp_path / "dev.jsonl",
        [*rows[:8], *[{**rows[5], "text": f"other {i}"} for i in range(10)]],
    )
    files = {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "dev")}
    tree = {
        "source": {"kind": "jsonl", "files": files},
        "corpus": str(tmp_path / "c"),
        "task": "single_label",
    }
    config = adapter(DataConfig).validate_json(
        json.dumps(tree | {"without_labels": "drop"})
    )
    found, corpus = (
        survey(config, Progress(enabled=False)),
        prepare(config, DEFAULT_BACKBONE),
    )
    assert (
        found.documents
        == {name: len(corpus.split(name)) for name in corpus.splits}
        == {"train": 45, "dev": 10}
    )
    assert (found.bare, found.leaked, found.labels_per_document) == (17, 6, 1)


def test_a_readers_first_pass_does_not_count_as_time_of_a_survey(tmp_path, monkeypatch):
    files = {"train": str(write_jsonl(tmp_path / "train.jsonl", ROWS))}
    config = adapter(DataConfig).validate_json(
        json.dumps({"source": {"kind": "jsonl", "files": files}, "corpus": "c"})
    )
    clock, build = SimpleNamespace(now=0.0), type(config.source).build

    def slow_build(settings):
        reader = build(settings)
        rows = reader.read

        def read(*arguments):
            clock.now += 1000.0
            yield from rows(*arguments)

        reader.read = read
        return reader

    monkeypatch.setattr(type(config.source), "build", slow_build)
    monkeypatch.setattr(
        "xmtc.estimate.size.time", SimpleNamespace(perf_counter=lambda: clock.now)
    )
    assert survey(config, Progress(enabled=False), seconds=10.0).exact


def plan_for(seconds: float, documents: int, labels: int, *, single: bool = False):
    task = Task(
        source={
            "source": SOURCE,
            "corpus": "c",
            **({"task": "single_label"} if single else {}),
        },
        name="news",
        labels=labels,
        documents=documents,
        readable=True,
        single=single,
        trees=True,
    )
    found = Survey(
        documents={"train": documents, "dev": documents // 10},
        label_counts=Counter(dict.fromkeys(map(str, range(labels)), 5)),
        labels_per_document=5 * labels / (documents + documents // 10),
        bare=0,
        unjudged=0,
        rejected=0,
        first_rejected="",
        repeated=0,
        relabelled=0.0,
        added=0,
        replaced=0,
        leaked=0,
        named=0,
        unused_labels=0,
        texts=[row["text"] for row in ROWS],
        exact=True,
    )

    def timed(config: RunConfig, size: Size) -> dict[str, float]:
        per_token = 1 if config.model.head.reads_fixed else 200
        head = HeadSpeed(
            train_s=0.02 / per_token, step_s=0.01, score_s=0.01 / per_token
        )
        return stage_seconds(
            config,
            size,
            replace(SPEEDS, head=head if config.model.head.scores else None),
            384,
        )

    room = Room(seconds=seconds, memory=16 * 2**30, disk=100 * 2**30)
    options = list(candidates(task, lengths_to_try(400, 510)))
    return choose(
        options, lambda config: size_of_source(config, found, LENGTHS), timed, room
    )


def test_a_larger_budget_never_gives_a_cheaper_recipe():
    chosen = [
        plan_for(seconds, 4_000, 500) for seconds in (20, 60, 300, 900, 3_600, 36_000)
    ]
    order = ["words", "states", "head"]
    places = [order.index(one.candidate.recipe.name) for one in chosen]
    assert places == sorted(places)
    assert places[-1] == 2
    assert all(
        one.seconds <= seconds
        for one, seconds in zip(chosen[1:], (60, 300, 900, 3_600, 36_000), strict=True)
    )


def test_many_documents_are_worth_trees():
    assert plan_for(360_000, 40_000, 500).candidate.recipe.name == "trees"


def test_few_documents_with_many_labels_are_worth_attention():
    assert plan_for(900, 500, 500).candidate.recipe.name == "attention"
    assert plan_for(900, 500, 20).candidate.recipe.name != "attention"


def test_only_attention_and_single_labels_read_more_than_256_tokens():
    several = Task(
        source={"source": SOURCE, "corpus": "c"},
        name="run",
        labels=500,
        documents=500,
        readable=True,
        single=False,
    )
    longest = {
        one.recipe.name: one.max_length
        for one in reversed(list(candidates(several, [510, 256, 128])))
    }
    assert (longest["attention"], longest["head"], longest["states"]) == (510, 256, 256)
    one_each = list(candidates(replace(several, single=True), [510, 256, 128]))
    assert next(one for one in one_each if one.recipe.name == "head").max_length == 510


def test_what_does_not_fit_is_smaller_and_says_so():
    limited = plan_for(60, 2_000_000, 5_000)
    assert limited.candidate.tree["data"]["limit"]["train"] < 2_000_000
    assert any("would take" in words for words in limited.passed_over)
    assert not plan_for(0.5, 2_000_000, 5_000).fits
    assert any(
        "head at 256 tokens needs" in words
        for words in plan_for(36_000, 4_000, 800_000).passed_over
    )


@pytest.mark.parametrize(("single", "labels"), [(True, 2), (False, 30), (False, 3_000)])
def test_every_recipe_is_a_valid_configuration(single, labels):
    source = {
        "source": SOURCE,
        "corpus": "c",
        **({"task": "single_label"} if single else {}),
    }
    task = Task(
        source=source,
        name="news",
        labels=labels,
        documents=5_000,
        readable=True,
        single=single,
    )
    for candidate in candidates(task, [256, 128]):
        assert candidate.config().name == "news"


def test_the_encoder_trains_where_there_is_a_gpu():
    source = {"source": SOURCE, "corpus": "c"}
    task = Task(
        source=source,
        name="news",
        labels=90,
        documents=5_000,
        readable=True,
        single=False,
    )
    assert not any(encoder_use(one.config()).trains for one in candidates(task, [256]))
    first, *others = candidates(replace(task, gpu=True), [256])
    assert encoder_use(first.config()).trains
    assert [one.tree for one in others] == [one.tree for one in candidates(task, [256])]


@pytest.mark.parametrize("gpu", [False, True])
def test_the_encoder_trains_with_a_layer_over_its_mean_where_documents_have_one_label(
    gpu,
):
    source = {"source": SOURCE, "corpus": "c", "task": "single_label"}
    task = Task(
        source=source,
        name="news",
        labels=2,
        documents=5_000,
        readable=True,
        single=True,
        gpu=gpu,
    )
    for lengths, read in (([510, 256, 128], 128), ([160, 128], 160)):
        (trained,) = (
            one.config()
            for one in candidates(task, lengths)
            if encoder_use(one.config()).trains
        )
        assert (trained.data.max_length, encoder_use(trained).trained_length) == (
            lengths[0],
            read,
        )
        assert (trained.model.encoder.backbone.attention == "eager") != gpu


def test_the_encoder_trains_on_a_cpu_where_labels_are_few_or_have_many_documents():
    task = Task(
        source={"source": SOURCE, "corpus": "c"},
        name="n",
        labels=20,
        documents=5,
        readable=True,
        single=False,
    )
    found = [
        one
        for one in candidates(replace(task, trees=True), [510, 256, 128])
        if encoder_use(one.config()).trains
    ]
    assert [(one.max_length, one.config().model.scorers[-1].kind) for one in found] == [
        (128, "tree"),
        (128, "label_embeddings"),
    ]
    for per_label in (99, 100):
        some = candidates(
            replace(task, labels=51, per_label=per_label), [510, 256, 128]
        )
        assert any(encoder_use(one.config()).trains for one in some) == (
            per_label == 100
        )


@pytest.mark.parametrize(
    ("single", "labels", "documents", "wide", "terms"),
    [
        (True, 2, 20_000, True, (2, 0)),
        (True, 2, 20_001, False, (2, 0)),
        (True, 300, 20_000, True, (2, 6)),
        (True, 300, 20_001, False, (1, 6)),
        (True, 301, 5_000, False, (1, 6)),
        (False, 51, 5_000, False, (1, 6)),
    ],
)
def test_all_words_and_pairs_take_part_where_labels_are_few_and_documents_fit(
    single, labels, documents, wide, terms
):
    source = {
        "source": SOURCE,
        "corpus": "c",
        **({"task": "single_label"} if single else {}),
    }
    task = Task(
        source=source,
        name="n",
        labels=labels,
        documents=documents,
        readable=True,
        single=single,
    )
    task = replace(task, most_factorised=20_000)
    recipes = [one.config() for one in candidates(task, [256])]
    linear = recipes[0].model.scorers[0]
    assert (linear.weighting == "log_odds") == wide
    assert (linear.most_terms >= recipes[0].data.words.most_terms) == wide
    assert (recipes[0].data.words.ngrams, recipes[0].data.words.stems) == terms
    assert recipes[-1].model.scorers[0].most_terms == 4_000  # the cheapest


@pytest.mark.parametrize(
    ("recipe", "single", "planting", "finetuning", "encoder"),
    [
        (
            "trained",
            True,
            "a random start; rows planted",
            "the layer and the whole encoder together",
            "trains too",
        ),
        (
            "unfrozen",
            False,
            None,
            "the head alone, then the whole encoder",
            "trains too",
        ),
        ("attention", False, None, "the head, on hidden states from disk", "frozen"),
        (
            "head",
            True,
            "a random start; planted rows",
            "the head, on hidden states from disk",
            "frozen",
        ),
    ],
)
def test_the_reasons_are_those_of_the_recipe(
    recipe, single, planting, finetuning, encoder
):
    source = {
        "source": SOURCE,
        "corpus": "c",
        **({"task": "single_label"} if single else {}),
    }
    task = Task(
        source=source,
        name="news",
        labels=90,
        documents=500,
        readable=True,
        single=single,
        gpu=True,
    )
    chosen = next(one for one in candidates(task, [256]) if one.recipe.name == recipe)
    plan: Any = SimpleNamespace(
        found=SimpleNamespace(bare=0, rejected=0, labels=90, part=""),
        roles=SimpleNamespace(why={"text": "", "labels": "", "task": ""}),
        lengths=np.array([100, 300]),
        choice=SimpleNamespace(candidate=chosen),
        config=chosen.config(),
        encoder=DEFAULT_BACKBONE,
    )
    why, text = reasons(plan), commented_yaml(chosen.tree, reasons(plan), [])
    assert why["finetune"].startswith(finetuning)
    assert why["model.encoder"] == f"{encoder}; English; its package is here"
    assert re.findall(r"^plant:.*\n?.*?  # (.*)", text, re.MULTILINE)[:1] == (
        [why["plant"]] if planting else []
    )
    assert planting is None or why["plant"].startswith(planting)


@pytest.mark.parametrize(
    ("texts", "there", "expected"),
    [
        (["The committee adopted the report on fisheries."], True, DEFAULT_BACKBONE),
        (["Der Ausschuss nahm den Bericht über die Fischerei an."], True, MULTILINGUAL),
        (["委员会通过了关于渔业的报告。"], True, MULTILINGUAL),
        (
            ["Der Ausschuss nahm den Bericht über die Fischerei an."],
            False,
            DEFAULT_BACKBONE,
        ),
        (["401.9 250.00", "?"], True, DEFAULT_BACKBONE),
    ],
)
def test_the_encoder_knows_the_languages_of_the_texts(
    monkeypatch, texts, there, expected
):
    monkeypatch.setattr(plan, "is_there", lambda _: there)
    assert encoder_for(languages_of(texts)) == expected


@pytest.mark.parametrize("native", [True, False])
def test_runs_compute_in_bfloat16_where_it_is_native(monkeypatch, native):
    monkeypatch.setattr(
        "xmtc.distributed.config.native_bfloat16", lambda *, gpu: native
    )
    source = {"source": SOURCE, "corpus": "c"}
    task = Task(
        source=source,
        name="news",
        labels=90,
        documents=5_000,
        readable=True,
        single=False,
    )
    for one in candidates(task, [256]):
        assert one.tree.get("distributed") == (
            {"precision": "auto"} if one.recipe.encodes else None
        )
        assert one.config().distributed.precision == (
            "bf16" if native and one.recipe.encodes else "fp32"
        )


@pytest.mark.parametrize(
    ("documents", "own_dev"), [(2_000, False), (2_000, True), (30_000, False)]
)
def test_scorers_of_small_corpora_are_fitted_on_dev_too(documents, own_dev):
    task = Task(
        source={"source": SOURCE, "corpus": "c"},
        name="news",
        labels=90,
        documents=documents,
        readable=True,
        single=False,
        own_dev=own_dev,
    )
    found = {one.config().evaluate.fit_on_dev for one in candidates(task, [256])}
    assert found == {documents <= 20_000 and not own_dev}


def test_documents_that_are_given_for_dev_stay_apart(tmp_path, written):
    assert load_config(RunConfig, written, []).evaluate.fit_on_dev
    (tmp_path / "news").mkdir()
    for split, rows in (("train", ROWS[:60]), ("dev", ROWS[60:])):
        write_jsonl(tmp_path / f"news/{split}.jsonl", rows)
    path = write_config(
        str(tmp_path / "news"), Answers(), budget="1m", output=tmp_path / "a.yaml"
    )
    assert not load_config(RunConfig, path, []).evaluate.fit_on_dev


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("1h30m", 5400), ("90s", 90), (" 0.5 h ", 1800)]
)
def test_budgets(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "fast", "10x", "0m", "-5m", "1h junk"])
def test_budgets_that_are_none(text):
    with pytest.raises(ConfigError, match=r"^budget "):
        seconds_of(text)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path,
):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"x\.yaml: cannot be written"):
        write_config(
            str(tmp_path / "absent.csv"), Answers(), output=tmp_path / "file" / "x.yaml"
        )
    with pytest.raises(DataError, match="absent"):
        write_config(
            str(tmp_path / "absent.csv"), Answers(), output=tmp_path / "x.yaml"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_names_that_no_run_can_have(tmp_path):
    with pytest.raises(ConfigError, match=r"name \.\./x"):
        write_config(str(tmp_path / "none.csv"), Answers(), name="../x")


def test_names_and_comments():
    assert [name_of(data) for data in ("a/news.csv.gz", "s3://b/my data/", "..")] == [
        "news",
        "my-data",
        "run",
    ]
    text = commented_yaml(
        {"name": "x", "data": {"corpus": "c"}}, {"data.corpus": "reused"}, ["above"]
    )
    assert text.startswith("# above\nname: x\n")
    assert "# reused" in text
    assert "init" in {
        command.name or command.callback.__name__ for command in app.registered_commands
    }
