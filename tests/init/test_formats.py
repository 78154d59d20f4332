"""A hundred documents as people have them, in each format: `init` finds their texts and labels, or says what to do."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.readers.base import Document, Rejected
from xmtc.errors import ConfigError, DataError
from xmtc.init.answers import Answers
from xmtc.init.command import config_for
from xmtc.init.data_files import find_files
from xmtc.init.plan import data_section, roles_of
from xmtc.track.progress import Progress

TOPICS = ["politics", "sport", "economy", "art", "science", "health"]
WORDS = ["court", "finds", "act", "council", "trade", "fish", "apply", "goods", "case"]
ANY = Answers()
Documents = list[tuple[str, list[str]]]


def documents(most: int = 3) -> Documents:
    draw = random.Random(1)
    return [
        (
            " ".join([f"text {i}", *draw.choices(WORDS, k=14)]),
            draw.sample(TOPICS, draw.randint(1, most)),
        )
        for i in range(100)
    ]


def read(place: Path, answers: Answers = ANY) -> dict[str, frozenset[str]]:
    """Labels by text, as the configuration that `init` writes reads them."""
    return {
        row.text: frozenset(row.labels)
        for row in rows(place, answers)
        if isinstance(row, Document)
    }


def rows(place: Path, answers: Answers = ANY) -> list[Document | Rejected]:
    files = find_files(str(place))
    roles = roles_of(files, answers)
    section = data_section(files.with_labels(roles.labels), roles, "run")
    config: DataConfig = adapter(DataConfig).validate_json(json.dumps(section))
    return list(
        config.source.build().read(
            lambda function, items: map(function, items), Progress(enabled=False)
        )
    )


def expected(made: Documents) -> dict[str, frozenset[str]]:
    return {text: frozenset(labels) for text, labels in made}


def _csv(rows: Sequence[Sequence[str]], delimiter: str = ",", first: str = "") -> str:
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    return first + "".join(delimiter.join(row) + "\n" for row in quoted)


def _table(made: Documents, write: Callable[[list[str]], str], **options: str) -> str:
    return _csv(
        [
            ["id", "text", "label"],
            *([str(i), t, write(ls)] for i, (t, ls) in enumerate(made)),
        ],
        **options,
    )


def _json(
    made: Documents,
    item: Callable[[int, str, list[str]], Any],
    indent: int | None = None,
) -> str:
    items = [item(i, text, labels) for i, (text, labels) in enumerate(made)]
    if indent is not None:
        return json.dumps(items, indent=indent)
    return "".join(json.dumps(one) + "\n" for one in items)


def _studio(i: int, text: str, labels: list[str]) -> Any:
    return {
        "id": i,
        "data": {"text": text},
        "annotations": [
            {
                "result": [{"value": {"choices": labels}, "type": "choices"}],
                "was_cancelled": False,
            }
        ],
    }


FORMATS: dict[str, tuple[str, Callable[[Documents], str]]] = {
    "Label Studio, JSON": ("a.json", lambda made: _json(made, _studio, 2)),
    "Label Studio, JSON-MIN": (
        "a.json",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "id": i,
                "text": t,
                "topic": {"choices": ls},
                "annotator": 1,
            },
            2,
        ),
    ),
    "Label Studio, CSV": (
        "a.csv",
        lambda made: _table(made, lambda labels: json.dumps({"choices": labels})),
    ),
    "doccano, JSONL": (
        "a.jsonl",
        lambda made: _json(made, lambda i, t, ls: {"id": i, "data": t, "label": ls}),
    ),
    "doccano, CSV": ("a.csv", lambda made: _table(made, "#".join)),
    "Prodigy, choice": (
        "a.jsonl",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "text": t,
                "options": [{"id": topic, "text": topic} for topic in TOPICS],
                "accept": ls,
                "answer": "accept",
            },
        ),
    ),
    "Argilla": (
        "a.json",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "id": str(i),
                "fields": {"text": t},
                "responses": {
                    "topic": [{"value": ls, "status": "submitted", "user_id": "u"}]
                },
            },
            2,
        ),
    ),
    "spaCy": (
        "a.jsonl",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "text": t,
                "cats": {topic: float(topic in ls) for topic in TOPICS},
            },
        ),
    ),
    "fastText": (
        "a.txt",
        lambda made: "".join(
            " ".join([*(f"__label__{label}" for label in ls), t]) + "\n"
            for t, ls in made
        ),
    ),
    "Annif, TSV": (
        "a.tsv",
        lambda made: "".join(
            f"{t}\t{' '.join(f'<http://e.org/{label}>' for label in ls)}\n"
            for t, ls in made
        ),
    ),
    "JSON array": (
        "a.json",
        lambda made: _json(made, lambda i, t, ls: {"text": t, "labels": ls}, 1),
    ),
    "colons": ("a.csv", lambda made: _table(made, "::".join)),
    "pluses": ("a.csv", lambda made: _table(made, "+".join)),
    "tildes": ("a.csv", lambda made: _table(made, "~".join)),
    "blanks": ("a.csv", lambda made: _table(made, " ".join)),
    "entities": (
        "a.csv",
        lambda made: _table(
            made, lambda labels: "".join(f"&lt;{label}&gt;" for label in labels)
        ),
    ),
    "Excel's first line": (
        "a.csv",
        lambda made: _table(made, "|".join, delimiter=";", first="sep=;\n"),
    ),
    "objects": (
        "a.jsonl",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "text": t,
                "labels": [{"id": 3, "name": label} for label in ls],
            },
        ),
    ),
    "Spark's lists": (
        "a.jsonl",
        lambda made: _json(
            made,
            lambda i, t, ls: {
                "text": t,
                "labels": {"list": [{"element": x} for x in ls]},
            },
        ),
    ),
    "several columns": (
        "a.csv",
        lambda made: _csv(
            [
                ["text", "label1", "label2", "label3"],
                *([t, *ls, "", ""][:4] for t, ls in made),
            ]
        ),
    ),
    "0 and 1": (
        "a.csv",
        lambda made: _csv(
            [
                ["text", *TOPICS],
                *([t, *(str(int(x in ls)) for x in TOPICS)] for t, ls in made),
            ]
        ),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_labels_of_each_format_are_found(tmp_path, name):
    made = documents()
    file, write = FORMATS[name]
    (tmp_path / file).write_text(write(made))
    want = expected(made)
    if name == "Annif, TSV":
        want = {
            text: frozenset(f"http://e.org/{label}" for label in labels)
            for text, labels in want.items()
        }
    assert read(tmp_path / file) == want


def test_compressed_lines_and_folders_of_parts(tmp_path):
    made = documents()
    lines = _json(made, lambda i, t, ls: {"text": t, "labels": ls}).splitlines(
        keepends=True
    )
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    assert read(tmp_path / "a.jsonl.gz") == expected(made)
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number, start in enumerate((0, 50)):
        (folder / f"part-{number:05d}").write_text("".join(lines[start : start + 50]))
    assert read(folder) == expected(made)


def test_a_folder_of_a_competition(tmp_path):
    made = documents()
    marked = [
        [f"i{i}", t, *(str(int(x in ls)) for x in TOPICS)]
        for i, (t, ls) in enumerate(made)
    ]
    (tmp_path / "train.csv").write_text(_csv([["id", "comment", *TOPICS], *marked]))
    (tmp_path / "test.csv").write_text(
        _csv([["id", "comment"], *([f"t{i}", f"new {i}"] for i in range(9))])
    )
    (tmp_path / "sample_submission.csv").write_text(
        _csv([["id", *TOPICS], ["t0", *["0.5"] * 6]])
    )
    assert read(tmp_path) == expected(made)


def test_texts_of_paragraphs(tmp_path):
    made = documents()
    path = tmp_path / "a.jsonl"
    path.write_text(
        _json(
            made,
            lambda i, t, ls: {
                "body": [f"{t} and the first", f"{t} again"],
                "labels": ls,
            },
        )
    )
    assert read(path) == {
        f"{t} and the first\n{t} again": frozenset(ls) for t, ls in made
    }


def _pack(path: Path, objects: Sequence[Any]) -> None:
    path.write_bytes(gzip.compress(_lines(objects).encode(), mtime=0))


def _lines(objects: Sequence[Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in objects)


@pytest.mark.parametrize("with_contents", [True, False])
def test_the_extreme_classification_repository_in_json(tmp_path, with_contents):
    made = documents()
    for name, own in (("trn", made[:70]), ("tst", made[70:])):
        objects = [
            {
                "uid": f"{name}{i}",
                "title": text,
                "content": "More." if with_contents else "",
                "target_ind": [TOPICS.index(label) for label in labels],
                "target_rel": [1.0] * len(labels),
            }
            for i, (text, labels) in enumerate(own)
        ]
        _pack(tmp_path / f"{name}.json.gz", objects)
    _pack(
        tmp_path / "lbl.json.gz",
        [{"uid": f"B{i}", "title": name} for i, name in enumerate(TOPICS)],
    )
    (tmp_path / "filter_labels_train.txt").write_text("0 1\n")
    (tmp_path / "filter_labels_test.txt").write_text("0 1\n")
    (tmp_path / "Yf.txt").write_text("".join(f"{name}\n" for name in TOPICS))
    found = rows(tmp_path)
    ending = "\nMore." if with_contents else ""
    assert {
        row.text: set(row.labels) for row in found if isinstance(row, Document)
    } == {
        f"{text}{ending}": {f"B{TOPICS.index(label)}" for label in labels}
        for text, labels in made
    }
    splits = [row.split for row in found if isinstance(row, Document)]
    assert splits == ["train"] * 70 + ["test"] * 30
    with pytest.raises(DataError, match="leave out the options that name title"):
        rows(tmp_path, Answers(text=("title",)))


def test_a_configuration_of_a_folder_is_found_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("films", "others"):
        Path(name).mkdir()
        Path(name, "train_texts.txt").write_text("a text\nanother text\n")
        Path(name, "train_labels.txt").write_text("a\nb\n")
    source = f"{{kind: xc_repository, directory: {tmp_path}/films}}"
    Path("films.yaml").write_text(
        f"name: films\ndata: {{source: {source}, corpus: c}}\n"
    )
    assert config_for("films") == Path("films.yaml")
    Path("films.yaml").rename("others.yaml")
    with pytest.raises(ConfigError, match="reads other data than others"):
        config_for("others")


@pytest.mark.parametrize("form", ["sparse", "texts"])
def test_the_extreme_classification_repository_in_lines(tmp_path, form):
    made = documents()
    texts = "".join(f"{text}\n" for text, _ in made)
    if form == "sparse":
        (tmp_path / "train.raw.txt").write_text(texts)
        matrix = [
            " ".join(f"{TOPICS.index(label)}:1" for label in labels)
            for _, labels in made
        ]
        header = f"{len(made)} {len(TOPICS)}"
        (tmp_path / "trn_X_Y.txt").write_text("\n".join([header, *matrix]) + "\n")
    else:
        (tmp_path / "train_texts.txt").write_text(texts)
        lines = [" ".join(labels) for _, labels in made]
        (tmp_path / "train_labels.txt").write_text("\n".join(lines) + "\n")
    known = {str(i): name for i, name in enumerate(TOPICS)}
    assert {
        text: frozenset(known.get(label, label) for label in labels)
        for text, labels in read(tmp_path).items()
    } == expected(made)


def test_texts_of_a_heading_and_paragraphs(tmp_path):
    """Headings are as short as labels, and half of the items; the words stand in paragraphs."""
    made = documents()
    path = tmp_path / "a.jsonl"
    path.write_text(
        _json(made, lambda i, t, ls: {"body": [f"Part {i}", t], "labels": ls})
    )
    assert read(path) == {
        f"Part {i}\n{t}": frozenset(ls) for i, (t, ls) in enumerate(made)
    }


def test_lists_of_long_labels_are_no_text(tmp_path):
    made = documents()
    long = {t: f"{t} and all that concerns the regulation of it" for t in TOPICS}
    path = tmp_path / "a.jsonl"
    path.write_text(
        _json(made, lambda i, t, ls: {"text": t, "topics": [long[x] for x in ls]})
    )
    assert read(path) == {t: frozenset(long[x] for x in ls) for t, ls in made}


def test_a_row_for_each_annotator_repeats_the_text(tmp_path):
    made = [row for row in documents() for _ in range(3)]
    path = tmp_path / "a.csv"
    path.write_text(_csv([["sentence", "topic"], *([t, ls[0]] for t, ls in made)]))
    assert read(path) == {t: frozenset(ls[:1]) for t, ls in made}


def test_refused_answers_and_documents_that_nobody_judged_are_left_out(tmp_path):
    made = documents()
    path = tmp_path / "a.jsonl"
    path.write_text(
        _json(made, lambda i, t, ls: {"text": t, "labels": [[], None, ls][i % 3]})
    )
    found = rows(path)
    assert sum(isinstance(row, Rejected) and row.unjudged for row in found) == 33
    assert sum(isinstance(row, Document) and not row.labels for row in found) == 34
    path.write_text(
        _json(
            made,
            lambda i, t, ls: {
                "text": t,
                "labels": ls,
                "reviewed": ["yes", "no"][i % 2],
            },
        )
    )
    with pytest.raises(
        DataError,
        match="--accept 'reviewed=yes' to leave the other documents out, or --accept all",
    ):
        read(path)
    assert read(path, Answers(accept="reviewed=yes")) == expected(made[::2])
    assert read(path, Answers(accept="all")) == expected(made)


def test_columns_that_new_texts_lack_are_no_categories(tmp_path):
    made = documents()
    header = ["text", "labels", "annotator", "kind"]
    lines = [
        [t, ";".join(ls), ["ann", "bob"][i % 2], ["news", "law"][i % 3 == 0]]
        for i, (t, ls) in enumerate(made)
    ]
    (tmp_path / "a.csv").write_text(_csv([header, *lines]))
    assert roles_of(find_files(str(tmp_path / "a.csv")), Answers()).categories == (
        "kind",
    )
