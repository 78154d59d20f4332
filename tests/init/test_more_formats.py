"""Variants of formats that strangers' files have: `init` finds their texts and labels, or asks what decides."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from test_formats import (
    TOPICS,
    Documents,
    documents,
    expected,
    read,
)
from test_formats import rows as rows_of

from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.readers.base import Document
from xmtc.errors import DataError
from xmtc.init.answers import Answers
from xmtc.init.contents import refuse_unread
from xmtc.init.data_files import find_files
from xmtc.init.plan import data_section, roles_of
from xmtc.track.progress import Progress

Item = Callable[[str, list[str]], Any]


def lines(made: Documents, item: Item, indent: int | None = None) -> str:
    return "".join(
        json.dumps(item(text, labels), indent=indent) + "\n" for text, labels in made
    )


def one_object(key: str, made: Documents) -> str:
    items = [json.dumps({"text": text, "tags": labels}) for text, labels in made]
    return f'{{"took": 3, "{key}": [\n' + ",\n".join(items) + "\n]}"


def cells(made: Documents, write: Callable[[list[str]], str]) -> str:
    rows = [
        f'"{text}","{write(labels).replace(chr(34), 2 * chr(34))}"\n'
        for text, labels in made
    ]
    return "text,topics\n" + "".join(rows)


def plain(text: str, labels: list[str]) -> Any:
    return {"text": text, "labels": labels}


def source(text: str, labels: list[str]) -> Any:
    return {"_id": {"$oid": "5f1b"}, "_source": {"body": text, "tags": labels}}


def with_row_for_each_label(made: Documents) -> str:
    return "text,code\n" + "".join(
        f"{text},{label}\n" for text, labels in made for label in labels
    )


def marks(made: Documents) -> str:
    header = ",".join(["text", "rater", *TOPICS])
    rows = [
        ",".join([text, str(number % 3), *(str(int(t in labels)) for t in TOPICS)])
        for number, (text, labels) in enumerate(made)
    ]
    return "\n".join([header, *rows, ""])


WRITTEN: dict[str, tuple[str, Callable[[Documents], str]]] = {
    "objects within": ("a.json", lambda made: lines(made, source)),
    "objects on several lines": ("a.json", lambda made: lines(made, plain, 2)),
    "objects without lines": (
        "a.json",
        lambda made: lines(made, plain).replace("\n", ""),
    ),
    "a list under any key": ("a.json", lambda made: one_object("articles", made)),
    "a name without an ending": ("news", lambda made: lines(made, plain)),
    "a separator at the end": (
        "a.csv",
        lambda made: cells(made, lambda labels: "; ".join(labels) + ";"),
    ),
    "a row for each label": ("a.csv", with_row_for_each_label),
    "0 and 1 beside numbers": ("a.csv", marks),
    "fastText with commas": (
        "a.txt",
        lambda made: "".join(
            f"{', '.join(f'__label__{label}' for label in labels)}\t{text}\n"
            for text, labels in made
        ),
    ),
    "tags of a library": (
        "a.csv",
        lambda made: (
            "Item Type,Year,Abstract,Manual Tags\n"
            + "".join(
                f"article,{2000 + number % 9},{text},{'; '.join(labels)}\n"
                for number, (text, labels) in enumerate(made)
            )
        ),
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_labels_of_each_variant_are_found(tmp_path: Path, name: str) -> None:
    made = documents()
    file, write = WRITTEN[name]
    (tmp_path / file).write_text(write(made))
    assert read(tmp_path / file) == expected(made)


@pytest.mark.parametrize(
    "signs", [("x", ""), ("1", ""), ("yes", "no"), ("WAHR", "FALSCH"), ("1.0", "-1.0")]
)
def test_columns_of_signs_are_the_labels(
    tmp_path: Path, signs: tuple[str, str]
) -> None:
    made = documents()
    rows = [
        ",".join([text, *(signs[topic not in labels] for topic in TOPICS)])
        for text, labels in made
    ]
    (tmp_path / "a.csv").write_text("\n".join([",".join(["text", *TOPICS]), *rows, ""]))
    if signs[1] != "-1.0":
        assert read(tmp_path / "a.csv") == expected(made)
        return
    found = [row for row in rows_of(tmp_path / "a.csv") if isinstance(row, Document)]
    assert {row.text: frozenset(row.labels) for row in found} == expected(made)
    assert all(
        row.rejected_labels == () for row in found if len(row.labels) < len(TOPICS)
    )


@pytest.mark.parametrize("splits", [False, True])
def test_a_folder_for_each_label(tmp_path: Path, splits: bool) -> None:
    made = documents(most=1)
    for number, (text, (label,)) in enumerate(made):
        part = ("train" if number % 4 else "test") if splits else "."
        folder = tmp_path / part / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text)
    assert read(tmp_path) == expected(made)


def test_tables_in_folders_of_splits(tmp_path: Path) -> None:
    made = documents()
    for split, own in (("train", made[:70]), ("test", made[70:])):
        folder = tmp_path / f"split={split}"
        folder.mkdir()
        (folder / "part-00000-abc.json").write_text(lines(own, plain))
    assert read(tmp_path) == expected(made)


def test_labels_of_test_without_texts_are_left_out(tmp_path: Path) -> None:
    made = documents()
    table = marks(made).replace("rater", "id")
    header, *rows = table.splitlines()
    (tmp_path / "train.csv").write_text(table)
    (tmp_path / "test.csv").write_text("id,text\n7,a text\n")
    labels = [row.split(",", 1)[1] for row in (header, *rows[:3])]
    (tmp_path / "test_labels.csv").write_text("\n".join([*labels, ""]))
    files = find_files(str(tmp_path))
    roles = roles_of(files, Answers())
    left = files.with_labels(roles.labels, roles.text)
    assert set(left.by_split) == {"train"}
    assert len(left.unlabelled) == 2


def test_the_entries_of_a_map_are_labels(tmp_path: Path) -> None:
    made = documents()
    entries = [
        [(topic, float(topic in labels)) for topic in TOPICS] for _, labels in made
    ]
    table = pa.table(
        {
            "text": [text for text, _ in made],
            "scores": pa.array(entries, pa.map_(pa.string(), pa.float64())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == expected(made)


def test_names_of_classes_come_before_their_numbers(tmp_path: Path) -> None:
    made = documents(most=1)
    rows = [f"{text},{TOPICS.index(label)},{label}\n" for text, (label,) in made]
    (tmp_path / "a.csv").write_text("text,label,label_text\n" + "".join(rows))
    assert read(tmp_path / "a.csv") == expected(made)


def test_numbers_of_sharepoint_are_no_labels(tmp_path: Path) -> None:
    made = documents()
    (tmp_path / "a.csv").write_text(
        cells(
            made,
            lambda labels: ";#".join(f"{TOPICS.index(one)};#{one}" for one in labels),
        )
    )
    assert read(tmp_path / "a.csv") == expected(made)


def test_a_large_window_of_zstd_is_named(tmp_path: Path) -> None:
    settings = zstandard.ZstdCompressionParameters(window_log=28)
    packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    text = lines(documents(), plain).encode()
    (tmp_path / "a.jsonl.zst").write_bytes(packer.compress(text) + packer.flush())
    with pytest.raises(DataError, match="zstd -d --long=31"):
        read(tmp_path / "a.jsonl.zst")


def test_an_added_file_without_the_split_column_is_for_training(tmp_path: Path) -> None:
    made = documents()
    parts = ("train", "train", "dev", "test")
    rows = [
        f"{text},{';'.join(labels)},{parts[number % 4]}\n"
        for number, (text, labels) in enumerate(made[:60])
    ]
    (tmp_path / "a.csv").write_text("text,labels,part\n" + "".join(rows))
    (tmp_path / "more.jsonl").write_text(lines(made[60:], plain))
    answers = Answers(add=(str(tmp_path / "more.jsonl"),))
    files = find_files(str(tmp_path / "a.csv"), answers)
    section = data_section(files, roles_of(files, answers), "run")
    config: DataConfig = adapter(DataConfig).validate_json(json.dumps(section))
    found = config.source.build().read(
        lambda function, items: map(function, items), Progress(enabled=False)
    )
    splits = [row.split for row in found if isinstance(row, Document)]
    assert len(splits) == 100
    assert splits[60:] == ["train"] * 40


def test_quoted_labels_may_hold_the_separator(tmp_path: Path) -> None:
    made = [
        (text, [f"{label}, old" for label in labels]) for text, labels in documents()
    ]
    (tmp_path / "a.csv").write_text(
        cells(made, lambda labels: ",".join(f'"{label}"' for label in labels))
    )
    assert read(tmp_path / "a.csv") == expected(made)


def test_remarks_of_svmlight_are_no_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    rows = [
        f"{number % 3},5 0:1 1:1 2:1 3:1 {number + 4}:1.0\n" for number in range(30)
    ]
    path.write_text("".join(["# Generated by a tool\n", "#\n", *rows]))
    assert len(read(path)) == 30


def test_hidden_files_of_a_folder_are_not_read(tmp_path: Path) -> None:
    made = documents()
    (tmp_path / "train.jsonl").write_text(lines(made, plain))
    (tmp_path / "._train.jsonl").write_bytes(b"\x00\x05\x16\x07")
    assert read(tmp_path) == expected(made)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("annotation_status", ("todo", "done"), "annotation_status=done"),
        ("isValid", ("False", "True"), "isValid=True"),
        ("skipped", ("yes", "no"), "skipped=no"),
    ],
)
def test_columns_that_tell_what_was_accepted_are_asked_about(
    tmp_path: Path, column: str, values: tuple[str, str], words: str
) -> None:
    rows = [
        f"{text},{'|'.join(labels)},{values[number % 4 > 0]}\n"
        for number, (text, labels) in enumerate(documents())
    ]
    path = tmp_path / "a.csv"
    path.write_text(f"text,topics,{column}\n" + "".join(rows))
    with pytest.raises(DataError, match=words):
        read(path)
    assert len(read(path, Answers(accept=words))) == 75


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x80\x04\x95", "read_pickle"),
        (b"SQLite format 3\0", "sqlite3 -header -csv"),
        (b"<?xml version='1.0'?>", "JSON lines"),
        (b"TY  - JOUR\n", "export CSV"),
        (b"| text | labels |\n", "write it as CSV"),
        (b"PK\x03\x04", "unpack it"),
    ],
)
def test_what_is_not_read_is_named_with_what_to_do(
    tmp_path: Path, head: bytes, words: str
) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(head)
    with pytest.raises(DataError, match=words):
        refuse_unread(path)
