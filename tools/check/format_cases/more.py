"""What databases, interfaces, survey tools and libraries export, after their public descriptions and reported bugs."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from format_cases.made import Case


def _lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _joined(case: Case, separator: str) -> list[list[str]]:
    return [[one.text, separator.join(one.labels)] for one in case.documents]


def elasticsearch(case: Case, folder: Path) -> Path:
    """Hits, with the document under `_source`."""
    rows = [
        {
            "_index": "news",
            "_id": str(number),
            "_score": 1,
            "_source": {"body": one.text, "tags": list(one.labels)},
        }
        for number, one in enumerate(case.documents)
    ]
    return _lines(folder / "news.json", rows)


def mongodb(case: Case, folder: Path) -> Path:
    """Extended JSON, in which objects tell types."""
    rows = [
        {
            "_id": {"$oid": f"{number:024x}"},
            "text": one.text,
            "tags": list(one.labels),
            "views": {"$numberLong": str(number)},
        }
        for number, one in enumerate(case.documents)
    ]
    return _lines(folder / "export.json", rows)


def one_after_the_other(case: Case, folder: Path) -> Path:
    """Objects on several lines, as jq writes them, or without lines."""
    indent = case.draw.choice([None, 2])
    objects = [
        json.dumps({"text": one.text, "labels": list(one.labels)}, indent=indent)
        for one in case.documents
    ]
    path = folder / "out.json"
    path.write_text(("\n" if indent else "").join(objects))
    return path


def list_in_one_object(case: Case, folder: Path) -> Path:
    """What an interface answers: some numbers, and the documents under a key."""
    key = case.draw.choice(["articles", "results", "entries", "records"])
    documents = [
        {"body": one.text, "topics": list(one.labels)} for one in case.documents
    ]
    path = folder / "answer.json"
    indent = case.draw.choice([None, 1])
    path.write_text(
        json.dumps(
            {"count": len(documents), "next": None, key: documents}, indent=indent
        )
    )
    return path


def foreign_lists(case: Case, folder: Path) -> Path:
    """Lists in cells, as Java, Spark, Postgres, NumPy and R write them."""

    def postgres(labels: Sequence[str]) -> str:
        return "{" + ",".join(f'"{x}"' if " " in x else x for x in labels) + "}"

    write = case.draw.choice(
        [
            postgres,
            lambda labels: f"[{', '.join(labels)}]",
            lambda labels: f"WrappedArray({', '.join(labels)})",
            lambda labels: repr(np.array(labels, dtype=object)),
            lambda labels: str(np.array(labels)),
            lambda labels: str(set(labels)),
            lambda labels: "c(" + ", ".join(f'"{x}"' for x in labels) + ")",
            lambda labels: str([{"id": 3, "name": x} for x in labels]),
        ]
    )
    rows = [[one.text, write(one.labels)] for one in case.documents]
    return _table(folder / "lists.csv", ["text", "labels"], rows)


def separator_at_the_end(case: Case, folder: Path) -> Path:
    """Each label is followed by a separator."""
    sign = case.draw.choice([";", "; ", "|"])
    rows = [[text, labels + sign.strip()] for text, labels in _joined(case, sign)]
    return _table(folder / "a.csv", ["text", "topics"], rows)


def sharepoint(case: Case, folder: Path) -> Path:
    """Rows of another list, with or without their numbers."""
    numbers = case.draw.random() < 0.5
    rows = [
        [
            one.text,
            ";#".join(
                f"{case.pool.index(label) + 1};#{label}" if numbers else label
                for label in one.labels
            ),
        ]
        for one in case.documents
    ]
    return _table(folder / "list.csv", ["Title", "Topics"], rows)


def wide_signs(case: Case, folder: Path) -> Path:
    """Separators of other scripts."""
    sign = case.draw.choice(["、", "，", "；", "،"])
    return _table(folder / "a.csv", ["文本", "标签"], _joined(case, sign))


def library(case: Case, folder: Path) -> Path:
    """A library of articles, with many columns that nobody needs."""
    header = ["Key", "Item Type", "Publication Year", "Author", "Title"]
    header += ["Abstract Note", "Manual Tags", "Automatic Tags", "Language"]
    case.expected = {
        f"Title {number} {one.text}": frozenset(one.labels)
        for number, one in enumerate(case.documents)
    }
    rows = [
        [
            *(
                f"K{number}",
                "journalArticle",
                2000 + number % 20,
                "Doe, Jane; Roe, Max",
            ),
            *(f"Title {number}", one.text, "; ".join(one.labels), "", "en"),
        ]
        for number, one in enumerate(case.documents)
    ]
    return _table(folder / "My Library.csv", header, rows)


def signs(case: Case, folder: Path) -> Path:
    """A column for each label, with yes and no in some language, or ticks."""
    yes, no = case.draw.choice(
        [("yes", "no"), ("x", ""), ("WAHR", "FALSCH"), ("✓", ""), ("Y", "N"), ("1", "")]
    )
    rows = [
        [one.text, *(yes if label in one.labels else no for label in case.pool)]
        for one in case.documents
    ]
    return _table(folder / "marks.csv", ["text", *case.pool], rows)


def row_for_each_label(case: Case, folder: Path) -> Path:
    """A join of documents with their labels."""
    rows = [
        [number, one.text, label]
        for number, one in enumerate(case.documents)
        for label in one.labels
    ]
    return _table(folder / "joined.csv", ["hadm_id", "text", "icd_code"], rows)


def without_header(case: Case, folder: Path) -> Path:
    """Labels and text, without names of columns."""
    rows = [[labels, text] for text, labels in _joined(case, "|")]
    return _table(folder / "a.csv", rows[0], rows[1:])


def state_of_annotation(case: Case, folder: Path) -> Path:
    """A column that says whether somebody has finished."""
    column, done, other = case.draw.choice(
        [
            ("annotation_status", "done", "todo"),
            ("is_valid", "True", "False"),
            ("skipped", "no", "yes"),
        ]
    )
    rows = []
    for number, one in enumerate(case.documents):
        finished = number % 4 > 0
        if not finished:
            case.leave_out(one)
        rows.append([one.text, ";".join(one.labels), done if finished else other])
    return _table(folder / "a.csv", ["text", "labels", column], rows)


def class_numbers(case: Case, folder: Path) -> Path:
    """Numbers of classes beside their names."""
    rows = [
        [one.text, case.pool.index(one.labels[0]), one.labels[0]]
        for one in case.documents
    ]
    if all(label.isdecimal() for label in case.pool):  # the numbers are labels, too
        case.expected = {
            one.text: frozenset([str(row[1])])
            for one, row in zip(case.documents, rows, strict=True)
        }
    return _table(folder / "a.csv", ["text", "label", "label_text"], rows)


def map_of_marks(case: Case, folder: Path) -> Path:
    """A map from labels to marks in Parquet."""
    entries = [
        [(label, float(label in one.labels)) for label in case.pool]
        for one in case.documents
    ]
    path = folder / "a.parquet"
    table = pa.table(
        {
            "text": [one.text for one in case.documents],
            "scores": pa.array(entries, pa.map_(pa.string(), pa.float64())),
        }
    )
    pq.write_table(table, path)
    return path


def label_folders(case: Case, folder: Path) -> Path:
    """A folder for each label, perhaps below folders of splits."""
    splits = case.draw.random() < 0.5
    for number, one in enumerate(case.documents):
        part = ("train" if number % 4 else "test") if splits else "."
        place = folder / part / one.labels[0]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:05d}.txt").write_text(one.text, encoding="utf-8")
    return folder


def hive_partitions(case: Case, folder: Path) -> Path:
    """Tables in folders such as `split=train`."""
    cut = len(case.documents) * 3 // 4
    for split, own in (("train", case.documents[:cut]), ("test", case.documents[cut:])):
        place = folder / f"split={split}"
        place.mkdir()
        rows = [{"text": one.text, "labels": list(one.labels)} for one in own]
        pq.write_table(pa.Table.from_pylist(rows), place / "part-00000.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def copied_by_a_mac(case: Case, folder: Path) -> Path:
    """A table beside what programs hide in folders."""
    _table(folder / "train.csv", ["text", "labels"], _joined(case, ";"))
    (folder / "._train.csv").write_bytes(b"\x00\x05\x16\x07\x00\x02")
    (folder / ".DS_Store").write_bytes(b"\x00\x00\x00\x01Bud1")
    (folder / "train.csv~").write_text("text,labels\nold,a\n")
    return folder


def no_ending(case: Case, folder: Path) -> Path:
    """A file whose name says nothing, or something unusual."""
    name = case.draw.choice(["news", "data [final] (1).CSV", "a.dump", "a=b.manifest"])
    if name.endswith(".CSV"):
        return _table(folder / name, ["text", "labels"], _joined(case, ";"))
    rows = [{"text": one.text, "labels": list(one.labels)} for one in case.documents]
    return _lines(folder / name, rows)
