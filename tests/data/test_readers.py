import bz2
import csv
import datetime
import gzip
import json
import lzma
import re
import tracemalloc
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from pydantic import TypeAdapter, ValidationError

from corpora import serial, write_jsonl
from xmtc.data.readers import Document, ReaderConfig, Rejected, files
from xmtc.data.readers.arrow_table import ParquetTable
from xmtc.data.readers.columns import category_terms
from xmtc.data.readers.csv_table import CsvTable
from xmtc.data.readers.pydocs import docstrings, python_files
from xmtc.data.readers.table_config import LabelFileConfig
from xmtc.errors import DataError
from xmtc.track.progress import Progress

ROWS = [
    {"id": "a", "title": "First", "text": "one two", "labels": ["x", "y"]},
    {"id": "b", "title": None, "text": "three", "labels": ["y"]},
]
EXPECTED = [
    Document("a", "First\none two", ("x", "y"), "train"),
    Document("b", "three", ("y",), "train"),
]
COLUMNS = {"id": "id", "text": ["title", "text"]}


def reader(**settings: Any) -> Any:
    return TypeAdapter(ReaderConfig).validate_json(json.dumps(settings)).build()


def read(**settings: Any) -> list[Document | Rejected]:
    return list(reader(**settings).read(serial, Progress(enabled=False)))


TURTLE = b"""@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://e/x> a skos:Concept; skos:prefLabel "Axe"@en ."""
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


@pytest.mark.parametrize("ending", PACKED)
def test_endings_may_be_in_capitals(tmp_path, ending):
    (path := tmp_path / f"LABELS.TSV{ending.upper()}").write_bytes(
        PACKED[ending](b"label\tname\nx\tAxe, old\n")
    )
    assert LabelFileConfig(path=str(path)).read().names == {"x": "Axe, old"}
    (path := tmp_path / f"LABELS.N3{ending.upper()}").write_bytes(
        PACKED[ending](TURTLE)
    )
    assert LabelFileConfig(path=str(path)).read().names == {"http://e/x": "Axe"}


@pytest.mark.parametrize("ending", PACKED)
def test_every_reader_of_text_unpacks(tmp_path, ending):
    def write(name: str, content: str) -> str:
        data = content.encode("utf-8-sig")
        half = (
            len(data) // 2 if ending else 0
        )  # files may consist of several compressed ones
        path = tmp_path / f"{name}{ending}"
        path.write_bytes(
            b"".join(
                PACKED[ending](part) for part in (data[:half], data[half:]) if part
            )
        )
        return str(path)

    train = write("train.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    assert read(kind="jsonl", files={"train": train}, columns=COLUMNS) == EXPECTED
    columns = COLUMNS | {"label_separator": ";"}
    for name, tab in (("train.csv", ","), ("train.tsv", "\t")):
        rows = [
            ["id", "title", "text", "labels"],
            ["a", "First", "one two", "x; y"],
            ["b", "", "three", "y"],
        ]
        train = write(name, "".join(tab.join(row) + "\n" for row in rows))
        assert read(kind="csv", files={"train": train}, columns=columns) == EXPECTED
    skos = "<http://e/x> a <http://www.w3.org/2004/02/skos/core#Concept>; <http://www.w3.org/2004/02/skos/core#prefLabel>"
    for name, content in (
        ("labels.csv", "label,name\nhttp://e/x,Axe\n"),
        ("labels.jsonl", '{"label": "http://e/x", "name": "Axe"}\n'),
        ("labels.ttl", f'{skos} "Axe"@en .'),
    ):
        assert LabelFileConfig(path=write(name, content)).read().names == {
            "http://e/x": "Axe"
        }
    write("train_labels.txt", "x y\ny\n")
    write("train_raw_texts.txt", "one two\nthree\n")
    found = [
        (row.text, row.labels)
        for row in read(kind="xc_repository", directory=str(tmp_path))
    ]
    assert found == [("one two", ("x", "y")), ("three", ("y",))]


def test_csv_and_tsv_with_label_separator(tmp_path):
    for name, delimiter in (("train.csv", ","), ("train.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(["id", "title", "text", "labels"])
            writer.writerows(
                [["a", "First", "one two", "x; y"], ["b", "", "three", "y"]]
            )
        columns = COLUMNS | {"label_separator": ";"}
        assert (
            read(kind="csv", files={"train": str(tmp_path / name)}, columns=columns)
            == EXPECTED
        )


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_delimiter_is_inferred_in_documents_and_label_files(
    tmp_path, delimiter, end
):
    rows = [
        ["id", "text", "labels"],
        *([str(n), "one, two; three", "x"] for n in range(9)),
    ]
    for name, table in (
        ("train.csv", rows),
        ("labels.csv", [["label", "name"], ["x", "Recht, deutsches"]]),
    ):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter, lineterminator=end).writerows(table)
    source = {
        "kind": "csv",
        "files": {"train": str(tmp_path / "train.csv")},
        "columns": {"id": "id"},
    }
    assert read(**source, labels={"path": str(tmp_path / "labels.csv")}) == [
        Document(str(n), "one, two; three", ("x",), "train") for n in range(9)
    ]
    assert LabelFileConfig(path=str(tmp_path / "labels.csv")).read().names == {
        "x": "Recht, deutsches"
    }


def test_a_quote_that_joins_rows_of_a_tsv_is_named(tmp_path, caplog):
    path = tmp_path / "train.tsv"
    path.write_text('text\tlabels\n"one\tx\ntwo\ty\nthree"\tz\nfour\tx\n')
    assert len(read(kind="csv", files={"train": str(path)})) == 2
    assert f"{path}:2: a quote" in caplog.text
    caplog.clear()
    for text in ("Title\n\tan indented line", "one\ntwo", "a\tb"):
        path.write_text(f'labels\ttext\nx\t"{text}"\ny\tfour\n')
        assert [row.text for row in read(kind="csv", files={"train": str(path)})] == [
            text,
            "four",
        ]
    assert not caplog.text


def test_csv_keeps_line_breaks_and_rejects_short_rows(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('text,labels\n"one\ntwo",x\nlonely\n')
    first, second = read(kind="csv", files={"train": str(path)})
    assert first == Document("train.csv:1", "one\ntwo", ("x",), "train")
    assert isinstance(second, Rejected)
    assert second.where.endswith("train.csv:4")
    path.write_text('text,labels\n"one\ntwo",x,y\n"never closed,x\nthree,y\n')
    rows = CsvTable().rows(path, None)
    assert isinstance(wide := next(rows), Rejected)
    assert wide.where.endswith("train.csv:2")
    with pytest.raises(DataError, match=r"train\.csv:4: "):
        next(rows)
    with pytest.raises(DataError, match=r"'body'.*text, labels.*source\.columns"):
        read(kind="csv", files={"train": str(path)}, columns={"text": "body"})


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_header_amid_a_file_is_no_document(tmp_path, mark):
    path = tmp_path / "joined.csv"
    path.write_text(f"text,labels\nfish,a\n{mark}text,labels\nlaw,b\n")
    first, again, second = read(kind="csv", files={"train": str(path)})
    assert isinstance(again, Rejected)
    assert again.where == f"{path}:3"
    assert "repeats the header" in again.reason
    assert (first.text, second.text) == ("fish", "law")


def test_csv_with_blanks_after_commas(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text('text, labels\n"one, two", "x"\nthree, y\n')
    assert [
        (one.text, one.labels) for one in read(kind="csv", files={"train": str(path)})
    ] == [
        ("one, two", ("x",)),
        ("three", ("y",)),
    ]


NUMERIC = [
    "2019",
    "1,5",
    "-3.25",
    "1e-05",
    "2020-01-02",
    "31/12/2020",
    "2020-01-02 10:30:00",
    "2020-01-02T10:30Z",
    "12 %",
]


@pytest.mark.parametrize(
    "cell",
    [*NUMERIC, 7, 7.5, datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3, 4)],
)
def test_fields_of_numbers_and_dates_are_refused(tmp_path, cell):
    rows = [
        {"when": cell if i % 3 else None, "text": f"text {i}", "labels": ["x"]}
        for i in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    columns = {"text": ["when", "text"]}
    with pytest.raises(
        DataError,
        match=r"a\.parquet: column 'when' holds only numbers or dates, .*: leave",
    ):
        read(
            kind="parquet",
            files={"train": str(tmp_path / "a.parquet")},
            columns=columns,
        )


@pytest.mark.parametrize("odd", ["1984 by Orwell", "101 2054 3021", "a7"])
def test_one_text_among_numbers_makes_a_field_of_texts(tmp_path, odd):
    rows = [
        {"title": str(i), "text": f"text {i}", "labels": ["x"]} for i in range(40)
    ] + [{"title": odd, "labels": []}]
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": ""} | row for row in rows])
    found = read(
        kind="jsonl", files={"train": str(path)}, columns={"text": ["title", "text"]}
    )
    assert [row.text for row in found[-2:]] == ["39\ntext 39", odd]


def test_parquet_with_lists_and_own_splits(tmp_path):
    for name in ("train", "dev"):
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / f"{name}.parquet")
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("train", "dev")}
    found = read(kind="parquet", files=files, columns=COLUMNS)
    assert found[:2] == EXPECTED
    assert [document.split for document in found] == ["train", "train", "dev", "dev"]
    assert reader(kind="parquet", files=files).provides() == {"train", "dev"}
    with pytest.raises(DataError, match=r"'body'.*id, title, text, labels"):
        read(kind="parquet", files=files, columns={"text": "body"})


def test_split_column(tmp_path):
    rows = [
        row | {"part": part}
        for row, part in zip(ROWS, ("validation", "moon"), strict=True)
    ]
    path = write_jsonl(tmp_path / "all.jsonl", rows)
    good, bad = read(
        kind="jsonl", files={"train": str(path)}, columns={"split": "part"}
    )
    assert isinstance(good, Document)
    assert good.split == "dev"
    assert isinstance(bad, Rejected)
    assert "'moon'" in bad.reason
    with pytest.raises(ValidationError, match="both say what the split is"):
        reader(
            kind="jsonl", files={"train": "a", "dev": "b"}, columns={"split": "part"}
        )


def test_files_that_cannot_be_read(tmp_path):
    def lines(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    row = json.dumps({"text": "a text " * 50, "labels": ["x"]}).encode() + b"\n"
    cut = [
        lines(f"a.jsonl{ending}", PACKED[ending](row * 500)[:-12])
        for ending in PACKED
        if ending
    ]
    foreign = [lines(f"d.jsonl{ending}", row) for ending in PACKED if ending]
    cases = {
        "cut short": (*cut, *foreign),
        "is empty": (lines("b.jsonl", b""),),
        "no such file": (str(tmp_path / "none.jsonl"),),
        "is a folder": (str(tmp_path),),
        "not UTF-8": (lines("c.jsonl", '{"text": "é"}'.encode("latin-1")),),
        "perhaps UTF-16": [
            lines(f"{form}.jsonl", row.decode().encode(form))
            for form in ("utf-16-le", "utf-16-be", "utf-32")
        ],
        "not UTF-16 text": (lines("e.jsonl", row.decode().encode("utf-16")[:-1]),),
    }
    for message, paths in cases.items():
        for path in paths:
            with pytest.raises(DataError, match=message):
                read(kind="jsonl", files={"train": path})
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(kind="parquet", files={"train": lines("d.parquet", b"PAR1 nonsense")})


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
def test_a_byte_order_mark_says_the_encoding(tmp_path, mark, encoding):
    path = tmp_path / "a.csv"
    path.write_bytes(f"{mark}text,labels\r\nÜber Fisch,recht\r\n".encode(encoding))
    if encoding != "utf-8" and not mark:
        with pytest.raises(DataError, match="convert the file"):
            read(kind="csv", files={"train": str(path)})
        return
    (document,) = read(kind="csv", files={"train": str(path)})
    assert (document.text, document.labels) == ("Über Fisch", ("recht",))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a", "labels": ["x"]', "malformed JSON"),
        (
            '{"text": "a',
            "malformed JSON: Unterminated string starting at column 10; a line holds one object",
        ),
        ("[", "malformed JSON: Expecting value at column 2; a line holds one object"),
        ("[1]", "a JSON list, not an object"),
        ('{"text": "a"}', "no column 'labels'; there are: text"),
        (
            '{"text": "a", "label": []}',
            "no column 'labels'; did you mean 'label'\\? there are: text, label",
        ),
        ('{"text": " ", "labels": ["x"]}', "no text in 'text'"),
        ('{"text": null, "labels": ["x"]}', "no text in 'text'"),
        ('{"text": 3, "labels": ["x"]}', "'text' is a number or a date"),
        (
            '{"text": "a", "labels": {"x": 2, "y": 3}}',
            "'labels' holds objects with the keys 'x', 'y'",
        ),
        ('{"text": "cut \\ud83d", "labels": ["x"]}', "hold half of a character"),
        ('{"text": "a", "labels": ["x\\ude00"]}', "hold half of a character"),
        (
            '{"text": "a", "labels": ["x"], "n": ' + "9" * 5000 + "}",
            "malformed JSON: a number of thousands of digits",
        ),
        ('{"text": ' + "[" * 100_000, "malformed JSON: .* thousands of lists in lists"),
    ],
)
def test_bad_rows_say_where_and_why(tmp_path, line, reason):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "fine", "labels": ["x"]}\n\n' + line + "\n")
    good, bad = read(kind="jsonl", files={"train": str(path)})
    assert isinstance(good, Document)
    assert isinstance(bad, Rejected)
    assert bad.where == f"{path}:3"
    assert re.search(reason, bad.reason)


def test_numbers_are_labels_too(tmp_path):
    path = write_jsonl(
        tmp_path / "train.jsonl",
        [{"text": "a", "labels": [3, 3, 10]}, {"text": "b", "labels": 0}],
    )
    first, second = read(kind="jsonl", files={"train": str(path)})
    assert isinstance(first, Document)
    assert isinstance(second, Document)
    assert first.labels == ("3", "10")
    assert second.labels == ("0",)


def test_some_rows_of_a_label_file_lack_optional_keys(tmp_path):
    rows = [
        {"label": "1", "name": "one"},
        {"label": 2.0, "up": [1.0]},
        {"label": "3", "up": [float("nan")]},
    ]
    path = str(write_jsonl(tmp_path / "labels.jsonl", rows))
    info = LabelFileConfig(path=path, parents="up").read()
    assert (info.names, info.parents) == (
        {"1": "one", "2": "2", "3": "3"},
        {"2": ("1",)},
    )
    with pytest.raises(
        DataError, match=r"no column 'broader'; there are: label, name, up"
    ):
        LabelFileConfig(path=path, parents="broader").read()


def test_label_files(tmp_path):
    rows = [
        {"label": "1", "name": "one", "up": []},
        {"label": "2", "name": None, "up": ["1"]},
    ]
    write_jsonl(tmp_path / "labels.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "labels.parquet")
    for name in ("labels.jsonl", "labels.parquet"):
        info = LabelFileConfig(path=str(tmp_path / name), parents="up").read()
        assert info.names == {"1": "one", "2": "2"}
        assert info.parents == {"2": ("1",)}
    (tmp_path / "labels.csv").write_text("label,name\n1,one\n")
    assert LabelFileConfig(path=str(tmp_path / "labels.csv")).read().names == {
        "1": "one"
    }
    with pytest.raises(DataError, match=r"'code'.*label, name"):
        LabelFileConfig(path=str(tmp_path / "labels.csv"), label="code").read()


def test_label_files_in_csv_hold_text(tmp_path, caplog):
    path = tmp_path / "labels.csv"
    path.write_text("label,name,up\n001,true,\n250.00 ,NA,001\n", encoding="utf-8-sig")
    info = LabelFileConfig(path=str(path), parents="up").read()
    assert info.names == {"001": "true", "250.00": "NA"}
    assert info.parents == {"250.00": ("001",)}
    path.write_text("label,name,up\na,A,\nb,B,a|c\n")
    LabelFileConfig(path=str(path), parents="up").read()
    assert (
        "1 parents are not among its labels, such as 'a|c'; several parents are written as a JSON"
        in caplog.text
    )
    cases = {
        r"labels\.csv:2: not UTF-8": "label,name\na,é\n".encode("latin-1"),
        r"no label in column 'label' of row 2": b"label,name\na,b\n,c\n",
        r"labels\.csv:2: 1 cells, but the header has 2 columns": b"label,name\na\n",
    }
    for message, content in cases.items():
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            LabelFileConfig(path=str(path)).read()
    packed = tmp_path / "labels.csv.gz"
    packed.write_bytes(gzip.compress(b"label,name\n" + b"a,b\n" * 3000)[:-20])
    with pytest.raises(DataError, match=r"labels\.csv\.gz"):
        LabelFileConfig(path=str(packed)).read()


def test_fingerprint_follows_content_not_place(tmp_path):
    def fingerprint(path: Any, **columns: Any) -> str:
        return reader(
            kind="jsonl", files={"train": str(path)}, columns=columns
        ).fingerprint()

    first = write_jsonl(tmp_path / "a.jsonl", ROWS)
    same = write_jsonl(tmp_path / "b.jsonl", ROWS)
    other = write_jsonl(tmp_path / "c.jsonl", ROWS[::-1])
    assert fingerprint(first) == fingerprint(same)
    assert fingerprint(first) != fingerprint(other)
    assert fingerprint(first) != fingerprint(first, text="title")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_fingerprint_follows_splits_and_the_label_file_s_settings(tmp_path, kind):
    files = [str(tmp_path / name) for name in "abc"]
    for name in files:
        (tmp_path / name).write_text(name)
    labels = str(
        write_jsonl(
            tmp_path / "labels.jsonl", [{"label": "x", "name": "X", "title": "The X"}]
        )
    )
    prints = [
        reader(
            kind=kind,
            files=chosen,
            labels=None if named is None else {"path": labels} | named,
        ).fingerprint()
        for chosen, named in (
            ({"train": files[:2], "dev": files[2]}, None),
            ({"train": files[0], "dev": files[1:]}, None),
            ({"train": files[:2], "dev": [files[2], labels]}, None),
            ({"train": files[:2], "dev": files[2]}, {}),
            ({"train": files[:2], "dev": files[2]}, {"name": "title"}),
            ({"train": files[:2], "dev": files[2]}, {"closed": False}),
        )
    ]
    assert len(set(prints)) == len(prints)


def test_text_that_is_not_utf_8_is_found_far_into_a_file(tmp_path):
    good = b'{"text": "a text", "labels": ["x"]}\n'
    for name, pack in (("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(
            pack(good * 3_000 + '{"text": "é"}'.encode("latin-1"))
        )
        with pytest.raises(DataError, match=rf"{name}:3001: "):
            read(kind="jsonl", files={"train": str(tmp_path / name)})
    buffers = pa.array([b"fine", b"\xff"], pa.binary()).buffers()
    table = pa.table(
        {
            "text": pa.Array.from_buffers(pa.string(), 2, buffers),
            "labels": [["x"], ["x"]],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: .*rows 1 to 2"):
        read(kind="parquet", files={"train": str(tmp_path / "a.parquet")})


def test_columns_that_cannot_be_told_apart(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("text,labels,text\na,x,b\n")
    table = pa.Table.from_arrays(
        [pa.array([one]) for one in "axb"], names=["text", "labels", "text"]
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with (
        pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    for kind, name in (
        ("csv", "train.csv"),
        ("parquet", "a.parquet"),
        ("arrow", "a.arrow"),
    ):
        with pytest.raises(DataError, match=rf"{name}: 2 columns .*'text'"):
            read(kind=kind, files={"train": str(tmp_path / name)})
    path.write_text("label,name,name,,\na,x,y,,\n")
    with pytest.raises(DataError, match=r"train\.csv: 2 columns .*'name'"):
        LabelFileConfig(path=str(path)).read()
    path.write_text("label,name,,\na,x,,\n")
    assert LabelFileConfig(path=str(path)).read().names == {"a": "x"}
    with pytest.raises(ValidationError, match="at least 1 character"):
        reader(kind="csv", files={"train": str(path)}, columns={"label_separator": ""})
    with pytest.raises(
        ValidationError, match="'a=b': the name of a category has no '='"
    ):
        reader(kind="csv", files={"train": str(path)}, columns={"categories": ["a=b"]})


def test_a_category_of_whole_numbers_is_the_same_in_a_column_with_gaps():
    for cell in (12, 12.0, "12", "12.0", ["12.0", None]):
        assert category_terms({"year": cell, "text": "a"}, ["year", "type"]) == [
            "year=12"
        ]
    assert category_terms({"year": "12.10"}, ["year"]) == ["year=12.10"]


def test_xc_repository_json(tmp_path):
    def pack(name: str, rows: list[dict[str, Any]]) -> None:
        (tmp_path / name).write_bytes(
            gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode())
        )

    pack("lbl.json.gz", [{"uid": "L0", "title": "zero"}, {"uid": "L1", "title": "one"}])
    pack(
        "trn.json.gz",
        [
            {
                "uid": "D",
                "title": "a",
                "content": "b",
                "target_ind": [1, 0],
                "target_rel": [1.0, 1.0],
            }
        ],
    )
    pack("tst.json.gz", [{"uid": "E", "title": "c", "content": "", "target_ind": [7]}])
    source = reader(kind="xc_repository", directory=str(tmp_path))
    good, bad = list(source.read(serial, Progress(enabled=False)))
    assert good == Document("D", "a\nb", ("L1", "L0"), "train")
    assert isinstance(bad, Rejected)
    assert "label 7 is not in the label file" in bad.reason
    assert source.label_info().names == {"L0": "zero", "L1": "one"}
    assert source.provides() == {"train", "test"}
    assert source.fingerprint() == source.fingerprint()
    pack("trn.json.gz", [{"uid": "D"}])
    (tmp_path / "tst.json.gz").write_bytes(gzip.compress(b'{"uid": \n'))
    first, second = source.read(serial, Progress(enabled=False))
    assert isinstance(first, Rejected)
    assert isinstance(second, Rejected)
    assert "malformed JSON" in second.reason
    pack(
        "lbl.json.gz",
        [{"uid": "L0", "title": "zero"}, {"uid": "L0", "title": "one"}, {"uid": "L2"}],
    )
    with pytest.raises(DataError, match=r"label 1 .*'L0'"):
        list(source.read(serial, Progress(enabled=False)))


def test_xc_repository_sparse_matrix(tmp_path):
    (tmp_path / "raw_data").mkdir()
    (tmp_path / "raw_data/train.raw.txt").write_text("first text\nsecond text\n\n")
    (tmp_path / "raw_data/label.raw.txt").write_text("zero\none\ntwo\n")
    (tmp_path / "trn_X_Y.txt").write_text("3 3\n0:1 2:1.0\n\n1:1\n")
    source = reader(kind="xc_repository", directory=str(tmp_path))
    first, bare, rejected = list(source.read(serial, Progress(enabled=False)))
    assert first == Document("train:1", "first text", ("0", "2"), "train")
    assert bare == Document("train:2", "second text", (), "train")
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "no text in 'text'"
    assert rejected.where.endswith("trn_X_Y.txt:4")
    assert source.label_info().names == {"0": "zero", "1": "one", "2": "two"}
    names = "zero\none\rhalf\ntwo\n"
    (tmp_path / "raw_data/label.raw.txt").write_text(names, newline="")
    assert source.label_info().names == {"0": "zero", "1": "one\rhalf", "2": "two"}
    (tmp_path / "raw_data/label.raw.txt").write_text(names + "three\n", newline="")
    with pytest.raises(
        DataError,
        match=r"label\.raw\.txt: 4 names, but trn_X_Y\.txt:1 announces \['3'\] labels",
    ):
        source.label_info()
    (tmp_path / "raw_data/label.raw.txt").unlink()
    (tmp_path / "raw_data/train.raw.txt").write_text("first text\n")
    with pytest.raises(
        DataError, match=r"train\.raw\.txt: .*1 documents, .*trn_X_Y\.txt"
    ):
        list(source.read(serial, Progress(enabled=False)))
    (tmp_path / "raw_data/train.raw.txt").write_text(
        "a text\rwith a carriage return\r\nanother\n", newline=""
    )
    (tmp_path / "trn_X_Y.txt").write_text("2 3\n0:1\n0,1 3:1\n")
    first, second = source.read(serial, Progress(enabled=False))
    assert first == Document(
        "train:1", "a text\rwith a carriage return", ("0",), "train"
    )
    assert isinstance(second, Rejected)
    assert second.reason.startswith("'0,1' is not `label:value`")
    (tmp_path / "trn_X_Y.txt").unlink()
    (tmp_path / "trn_X_Y.txt.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(DataError, match=r"trn_X_Y\.txt\.gz: .*0 documents"):
        list(source.read(serial, Progress(enabled=False)))


def test_xc_repository_texts_and_labels(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}_raw_texts.txt").write_text("a text\nanother\n")
        (tmp_path / f"{split}_labels.txt").write_text("cats dogs\ndogs\n")
    found = read(kind="xc_repository", directory=str(tmp_path))
    assert found[0] == Document("train:1", "a text", ("cats", "dogs"), "train")
    assert [one.split for one in found if isinstance(one, Document)] == [
        "train",
        "train",
        "test",
        "test",
    ]
    for name in ("trn.json", "lbl.json"):
        (tmp_path / name).write_text("{}\n")
    with pytest.raises(DataError, match=r"json, texts.*data\.source\.form"):
        read(kind="xc_repository", directory=str(tmp_path))
    with pytest.raises(DataError, match="no such folder"):
        read(kind="xc_repository", directory=str(tmp_path / "none"))


def test_docstrings_of_a_file(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Words of the module."""\nclass A:\n    def f(self):\n        """Two words."""\n    x = 1\n'
    )
    found, files = docstrings(
        [("pack.module", str(path)), ("broken", str(tmp_path / "broken.py"))][:1],
        min_words=2,
    )
    assert files == 1
    assert found == [
        ("pack.module", "", "Words of the module."),
        ("pack.module", "A.f", "Two words."),
    ]
    path.write_text('"""unfinished')
    assert docstrings([("pack.module", str(path))], min_words=1) == ([], 1)


def test_pydocs_labels_modules_and_ancestors():
    found = read(kind="pydocs", packages=["joblib", "typer"], min_words=10)
    assert len(found) > 100
    assert all(isinstance(one, Document) for one in found)
    texts = [one.text for one in found if isinstance(one, Document)]
    assert len(set(texts)) == len(texts)
    for one in found:
        assert isinstance(one, Document)
        assert one.labels[0] in ("joblib", "typer")
        assert all(
            longer.startswith(f"{shorter}.")
            for shorter, longer in zip(one.labels, one.labels[1:], strict=False)
        )
        assert one.doc_id.startswith(one.labels[-1])
    assert found == read(kind="pydocs", packages=["joblib", "typer"], min_words=10)
    for missing in (
        "not_there",
        "sys",
        "os",
        "__main__",
    ):  # parts of the interpreter are no packages with files
        with pytest.raises(DataError, match=f"'{missing}'"):
            python_files(missing)


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_line_breaks_in_cells_are_no_rows(tmp_path, monkeypatch, block):
    monkeypatch.setattr(files, "_BLOCK", block)
    path = tmp_path / "in.csv"
    cells = ['first\nof "two" lines', 'quotes: ""\n"\n', "plain"]
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["text"], *([cell] for cell in cells)]
        )
    assert files.line_count(path, quotes=True) == 1 + len(cells)
    assert files.line_count(path) == 1 + len(cells) + 3


@pytest.mark.parametrize(
    "name", ["long.jsonl", "long.csv", "long.parquet", "long.arrow"]
)
def test_a_document_has_a_size(name, tmp_path):
    path = tmp_path / name
    longest = 1_000
    columns = ["d", "text", "labels"]
    rows = [
        ["0", "short", "a"],
        ["1", "x" * (longest + 1), "a"],
        ["2", "y" * 2_000_000, "a"],
        ["3", "short", "b"],
    ]
    table = pa.table(
        {column: [row[place] for row in rows] for place, column in enumerate(columns)}
    )
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif path.suffix == ".csv":
        path.write_text("".join(",".join(row) + "\n" for row in [columns, *rows]))
    elif path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    source = reader(
        kind=path.suffix[1:], files={"train": str(path)}, columns={"id": "d"}
    )
    documents = source.read(serial, Progress(enabled=False), longest)
    assert next(documents).text == "short"
    long_text = next(documents)
    assert "1,001 characters; a document may have 1,000" in long_text.reason
    if path.suffix == ".csv":  # rows after such a line cannot be told apart
        with pytest.raises(
            DataError,
            match=r"long\.csv:4: the row has more than .* raise data.longest_document",
        ):
            next(documents)
        return
    assert "the row has more than" in next(documents).reason
    assert next(documents).labels == ("b",)


def test_long_strings_of_a_dictionary_are_read_a_few_at_a_time(tmp_path):
    text = "word " * 1_000_000
    table = pa.table({"text": [text] * 100, "labels": ["a"] * 100})
    pq.write_table(table, tmp_path / "repeated.parquet")
    del table
    rows = ParquetTable().rows(tmp_path / "repeated.parquet", None)
    tracemalloc.start()
    assert sum(len(row.cells["text"]) for row in rows) == 100 * len(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000_000  # of 500 MB
