"""What a user says of data beside columns: how files are written, more files; and folders whose names tell splits."""

import csv
import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from formats import Said, labels_by_text, run_xmtc

TOPICS = ["politics", "sport", "economy", "art", "science", "health"]
WORDS = ["court", "finds", "act", "council", "trade", "fish", "apply", "goods", "case"]
Documents = list[tuple[str, list[str]]]


def documents() -> Documents:
    draw = random.Random(1)
    return [
        (
            " ".join([f"text {i}", *draw.choices(WORDS, k=14)]),
            draw.sample(TOPICS, draw.randint(1, 3)),
        )
        for i in range(100)
    ]


MADE = documents()


def write_csv(path: Path, made: Documents, header: tuple[str, str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".txt" else ",")
        writer.writerow(header)
        writer.writerows([text, "|".join(labels)] for text, labels in made)
    return path


def write_jsonl(path: Path, made: Documents) -> Path:
    rows = [{"text": text, "labels": labels} for text, labels in made]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fasttext(made: Documents) -> str:
    lines = [
        " ".join([*(f"__label__{label}" for label in labels), text])
        for text, labels in made
    ]
    return "\n".join(lines) + "\n"


def tasks(made: Documents, *, annotated: bool) -> str:
    """Label Studio's export."""
    items = []
    for number, (text, labels) in enumerate(made):
        result = {"value": {"choices": labels}, "type": "choices"}
        annotations = [{"result": [result], "was_cancelled": False}]
        items.append(
            {
                "id": number,
                "data": {"text": text},
                "annotations": annotations if annotated else [],
            }
        )
    return json.dumps(items)


def write_sparse(folder: Path, made: Documents) -> None:
    """A layout of the Extreme Classification Repository."""
    (folder / "train.raw.txt").write_text("".join(f"{text}\n" for text, _ in made))
    rows = [
        " ".join(f"{TOPICS.index(label)}:1" for label in labels) for _, labels in made
    ]
    header = f"{len(made)} {len(TOPICS)}"
    (folder / "trn_X_Y.txt").write_text("\n".join([header, *rows]) + "\n")
    (folder / "label.raw.txt").write_text("".join(f"{name}\n" for name in TOPICS))


def write_products(folder: Path, made: Documents) -> None:
    """Another one."""
    rows = [
        {
            "uid": str(number),
            "title": text,
            "content": "",
            "target_ind": [TOPICS.index(label) for label in labels],
        }
        for number, (text, labels) in enumerate(made)
    ]
    names = [{"uid": name, "title": name} for name in TOPICS]
    for file, objects in (("trn.json.gz", rows), ("lbl.json.gz", names)):
        lines = "".join(json.dumps(item) + "\n" for item in objects)
        (folder / file).write_bytes(gzip.compress(lines.encode()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path / "files"


def init(folder: Path, *arguments: object) -> Said:
    return run_xmtc(folder.parent / "work", ["init", *map(str, arguments)])


def written(folder: Path) -> Any:
    (config,) = (folder.parent / "work").glob("*.yaml")
    return yaml.safe_load(config.read_text())["data"]["source"]


def read(folder: Path) -> dict[str, frozenset[str]]:
    (config,) = (folder.parent / "work").glob("*.yaml")
    return labels_by_text(config, folder.parent / "spool")


def expected(made: Documents) -> dict[str, frozenset[str]]:
    return {text: frozenset(labels) for text, labels in made}


def test_a_table_under_another_name_is_read_as_its_kind(folder: Path) -> None:
    path = write_csv(folder / "data.txt", MADE, ("text", "topics"))
    assert init(folder, path).status == 0
    assert written(folder)["kind"] == "csv"
    assert read(folder) == expected(MADE)


def test_the_encoding_of_windows_is_named(folder: Path) -> None:
    made = [(f"{text} – Café", labels) for text, labels in MADE]
    path = write_csv(folder / "a.csv", made, ("text", "topics"))
    path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
    refused = init(folder, path)
    assert refused.status == 1
    assert "a.csv:2: not UTF-8 text" in refused.output
    assert "give data.source.encoding=cp1252" in refused.output
    assert init(folder, path, "data.source.encoding=cp1252").status == 0
    assert read(folder) == expected(made)


def test_what_is_said_of_the_dialect_is_written_down(folder: Path) -> None:
    path = write_csv(folder / "a.csv", MADE, ("text", "topics"))
    said = init(folder, path, "data.source.quoting=none", "data.source.delimiter=,")
    assert said.status == 0, said.output
    assert (written(folder)["quoting"], written(folder)["delimiter"]) == ("none", ",")
    assert read(folder) == expected(MADE)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.source.quotin=none", "did you mean 'quoting'"),
        ("data.source.quoting=all", "must be 'minimal' or 'none'"),
        ("data.source.encoding=klingon", "no such encoding"),
        ("data.source.encoding=ascii", "not ascii text"),
        ("data.source.kind=mimic", "finds the columns of jsonl, csv"),
        ("data.source.columns.text=body", "give --text"),
        ("finetune.batch_size=4", "takes data.source.KEY=VALUE"),
        ("none", "takes data.source.KEY=VALUE"),
    ],
)
def test_what_cannot_be_said_of_a_source(
    folder: Path, override: str, words: str
) -> None:
    path = write_csv(folder / "a.csv", [("é", []), *MADE], ("text", "topics"))
    said = init(folder, path, override)
    assert said.status == 1
    assert said.fault is None
    assert words in said.output
    assert not list((folder.parent / "work").iterdir())


def test_files_of_other_formats_are_added(folder: Path) -> None:
    first = write_csv(folder / "papers.csv", MADE[:60], ("body", "topics"))
    lines = write_jsonl(folder / "more 😀.jsonl", MADE[60:80])
    (folder / "tasks.json").write_text(tasks(MADE[80:], annotated=True))
    said = init(folder, first, "--add", lines, "--add", folder / "tasks.json")
    assert said.status == 0, said.output
    assert written(folder)["files"] == {
        "train": str(first),
        "added": [str(lines), str(folder / "tasks.json")],
    }
    assert "40 added documents, all for training" in said.output
    assert read(folder) == expected(MADE)


def test_nothing_is_added_to_a_folder_of_a_known_layout(folder: Path) -> None:
    write_sparse(folder, MADE)
    more = write_jsonl(folder.parent / "more.jsonl", MADE)
    said = init(folder, folder, "--add", more)
    assert said.status == 1
    assert "xc_repository has no files to add to" in said.output


def test_of_two_layouts_the_user_names_one_unless_one_is_incomplete(
    folder: Path,
) -> None:
    write_sparse(folder, MADE)
    write_products(folder, MADE)
    refused = init(folder, folder)
    assert refused.status == 1
    assert "layouts (json, sparse); give data.source.form=json" in refused.output
    assert init(folder, folder, "data.source.form=sparse").status == 0
    assert written(folder)["form"] == "sparse"
    names = {str(number): name for number, name in enumerate(TOPICS)}
    assert {
        text: frozenset(names[label] for label in labels)
        for text, labels in read(folder).items()
    } == expected(MADE)
    wrong = init(folder, folder, "data.source.form=rows", "-o", "other.yaml")
    assert wrong.status == 1
    assert "must be 'json', 'sparse' or 'texts'" in wrong.output


def test_a_layout_without_its_texts_is_none(folder: Path) -> None:
    write_sparse(folder, MADE)
    write_products(folder, MADE)
    (folder / "train.raw.txt").unlink()
    assert init(folder, folder).status == 0
    assert read(folder) == expected(MADE)


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "test.txt"),
        ("cooking.train", "cooking.valid"),
        ("news_train.txt", "news-val.txt"),
    ],
)
def test_files_of_other_tools_are_told_by_the_split_in_their_names(
    folder: Path, names: Sequence[str]
) -> None:
    for name, made in zip(names, (MADE[:80], MADE[80:]), strict=True):
        (folder / name).write_text(fasttext(made))
    said = init(folder, folder)
    assert said.status == 0, said.output
    assert written(folder)["kind"] == "fasttext"
    assert len(written(folder)["files"]) == 2
    assert read(folder) == expected(MADE)


def test_documents_that_nobody_annotated_are_no_test_split(folder: Path) -> None:
    (folder / "train.json").write_text(tasks(MADE[:80], annotated=True))
    (folder / "test.json").write_text(tasks(MADE[80:], annotated=False))
    said = init(folder, folder)
    assert said.status == 0, said.output
    assert "not read, because without labels: test.json" in said.output
    assert read(folder) == expected(MADE[:80])


def test_a_test_split_may_have_another_format(folder: Path) -> None:
    write_csv(folder / "train.csv", MADE[:80], ("body", "topics"))
    (folder / "test.json").write_text(tasks(MADE[80:], annotated=True))
    assert init(folder, folder).status == 0
    assert written(folder)["files"]["test"] == str(folder / "test.json")
    assert read(folder) == expected(MADE)


def train(folder: Path, *arguments: object) -> Said:
    return run_xmtc(folder.parent / "work", ["train", *map(str, arguments)])


def test_train_takes_the_options_of_init(folder: Path) -> None:
    path = folder / "a.csv"
    config = folder.parent / "work/a.yaml"
    rows = [
        f"{text},{'|'.join(labels)},{['done', 'open'][number % 2]}\n"
        for number, (text, labels) in enumerate(MADE)
    ]
    path.write_text("".join(["text,topics,status\n", *rows]))
    assert "--accept 'status=done'" in train(folder, path).output
    more = write_jsonl(folder / "more.jsonl", MADE[:10])
    options = ("--accept", "status=done", "--budget", "2m", "--add", more)
    said = train(folder, path, *options, "--print-config")
    assert said.status == 0, said.output
    assert re.search(r'^recipe "[\w, ]+": \w', said.output, re.MULTILINE)
    estimate = re.search(r"Estimate.* of (\S+)\.\n", config.read_text())
    assert estimate is not None
    assert estimate[1] == "2"
    assert written(folder)["columns"]["accepted"] == ["done"]
    assert written(folder)["files"] == {"train": str(path), "added": str(more)}
    assert str(more) in said.output

    again = train(folder, path, *options, "--print-config")
    assert again.status == 0, again.output
    assert "using the existing configuration a.yaml" in again.output
    another = write_jsonl(folder / "another.jsonl", MADE[10:20])
    before = config.read_bytes()
    for other, there in (
        (("--accept", "status=open"), "there: status=done"),
        (("--accept", "all"), "there: status=done"),
        (("--budget", "3m"), "there: 2m"),
        (("--labels", "subject"), "there: topics"),
        (("--text", "titel"), "there: text"),
        (("--text", "text", "--text", "topics"), "there: text"),
        (("--id", "text"), "there: none"),
        (("--split-column", "status"), "there: none"),
        (("--label-separator", ";"), "there: '|'"),
        (("--task", "single_label"), "there: multi_label"),
        (("--add", another), "not read there"),
    ):
        refused = train(folder, path, *other, "--print-config")
        assert refused.status == 1
        assert refused.fault is None
        assert f"{other[0]} {other[1]}" in refused.output.replace("';'", ";")
        assert there in refused.output
        assert "add name=OTHER" in refused.output
    assert "budget ten: give hours" in train(folder, path, "--budget", "ten").output
    assert config.read_bytes() == before

    renamed = train(folder, path, *options, "name=b", "--print-config")
    assert "name: b\n" in renamed.output  # the options agree, so that edits are kept
    assert not config.with_name("b.yaml").exists()
    other = ("--accept", "status=done", "--budget", "2m", "--add", another)
    said = train(folder, path, *other, "name=c", "--print-config")
    assert said.status == 0, said.output
    assert str(another) in said.output
    assert str(more) not in said.output
    assert "name: c\n" in config.with_name("c.yaml").read_text()
    said = train(folder, "a.yaml", "--add", another, "--print-config")
    assert all(str(name) in said.output for name in (path, more, another))
    for option in (("--budget", "1m"), ("--labels", "topics"), ("--accept", "all")):
        refused = train(folder, "a.yaml", *option)
        assert refused.status == 1
        assert f"{option[0]}: a.yaml says what is trained" in refused.output


def test_how_files_are_written_is_said_to_train(folder: Path) -> None:
    path = write_csv(folder / "data.txt", MADE, ("text", "topics"))
    said = train(folder, path, "data.source.kind=csv", "--print-config", "seed=5")
    assert said.status == 0, said.output
    assert "seed: 5" in said.output
    assert written(folder)["kind"] == "csv"
