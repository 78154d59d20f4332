"""Files of documents, at every command that reads some."""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bad_input_cases.case import Case, Site, command
from bad_input_cases.damage import DEEP

ROW = {"id": "a", "text": "lawery and fishing", "labels": ["law"]}
LINES: dict[str, bytes] = {
    "no JSON": b"lawery and fishing\n",
    "half an object": b'{"text": "law',
    "a list": b"[1, 2]\n",
    "a number": b"3\n",
    "deep": b'{"text": ' + DEEP + b"\n",
    "digits": b'{"text": ' + b"9" * 5000 + b"}\n",
    "text is null": b'{"text": null, "labels": ["law"]}\n',
    "text is a number": b'{"text": 3, "labels": ["law"]}\n',
    "text is a list": b'{"text": ["a"], "labels": ["law"]}\n',
    "text is an object": b'{"text": {"a": 1}, "labels": ["law"]}\n',
    "text is blank": b'{"text": " \\n\\t", "labels": ["law"]}\n',
    "half a character": b'{"text": "a\\ud83d", "labels": ["law"]}\n',
    "no text": b'{"body": "lawery", "labels": ["law"]}\n',
    "not UTF-8": b'{"text": "caf\xe9", "labels": ["law"]}\n',
    "UTF-16": '{"text": "law", "labels": ["law"]}\n'.encode("utf-16"),
    "NUL": b"\x00" * 100,
    "empty": b"",
    "blank lines": b"\n\n\n",
    "control characters only": b'{"text": "\\u0001\\u0002", "labels": ["law"]}\n',
}
CSVS: dict[str, bytes] = {
    "no header": b"lawery and fishing,law\n",
    "wrong column": b"body,labels\nlawery,law\n",
    "twice": b"text,text,labels\na,b,law\n",
    "open quote": b'text,labels\n"lawery,law\n',
    "ragged": b"text,labels\nlawery,law,more\n",
    "blank text": b"text,labels\n ,law\n",
    "header only": b"text,labels\n",
    "NUL": b"text,labels\nla\x00w,law\n" + b"\x00" * 50,
    "not UTF-8": b"text,labels\ncaf\xe9,law\n",
    "UTF-16": "text,labels\nlaw,law\n".encode("utf-16"),
    "empty": b"",
    "semicolons": b"text;labels\nlawery;law\n",
}
LABELLED = {"labels": [["law"]]}
TABLES: dict[str, dict[str, Any]] = {
    "no column": {"body": ["a"], **LABELLED},
    "numbers": {"text": [1], **LABELLED},
    "bytes": {"text": [b"\xff"], **LABELLED},
    "nulls": {"text": pa.array([None], pa.string()), **LABELLED},
    "lists": {"text": [["a"]], **LABELLED},
    "no rows": {
        "text": pa.array([], pa.string()),
        "labels": pa.array([], pa.list_(pa.string())),
    },
    "no columns": {},
}


def bad_documents() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    """Name, file name, and what writes it."""
    for ending, files in ((".jsonl", LINES), (".csv", CSVS)):
        for name, content in files.items():
            yield name, f"bad{ending}", partial(Path.write_bytes, data=content)
            yield (
                f"{name}, gzip",
                f"bad{ending}.gz",
                partial(Path.write_bytes, data=gzip.compress(content)),
            )
    for name, columns in TABLES.items():
        yield name, "bad.parquet", partial(pq.write_table, pa.table(columns))
    yield (
        "not Parquet",
        "bad.parquet",
        partial(Path.write_bytes, data=b"PAR1 nothing PAR1"),
    )
    yield (
        "cut gzip",
        "bad.jsonl.gz",
        lambda path: path.write_bytes(gzip.compress(json.dumps(ROW).encode())[:-12]),
    )
    yield (
        "no gzip",
        "bad.jsonl.gz",
        lambda path: path.write_bytes(json.dumps(ROW).encode()),
    )
    yield "no zstd", "bad.csv.zst", lambda path: path.write_bytes(b"text\na\n")
    yield "a folder", "bad.jsonl", lambda path: path.mkdir()
    yield "a pipe", "bad.jsonl", lambda path: os.mkfifo(path)
    yield "a device", "bad.jsonl", lambda path: path.symlink_to("/dev/zero")
    yield "a loop of links", "bad.jsonl", lambda path: path.symlink_to(path.name)
    yield "missing", "bad.jsonl", lambda path: None
    yield (
        "a name that is not UTF-8",
        os.fsdecode(b"b\xffd.jsonl"),
        lambda path: path.write_bytes(LINES["no JSON"]),
    )
    yield "a long name", "b" * 300 + ".jsonl", lambda path: None
    yield (
        "an unknown ending",
        "bad.xlsx",
        lambda path: path.write_bytes(b"PK\x03\x04\xff"),
    )


KINDS = {".csv": "csv", ".parquet": "parquet"}
READS_ROWS = {"control characters only", "control characters only, gzip"}
"""Documents that are rows; whether they have tokens is for the tokenizer."""


def document_cases(site: Site) -> Iterator[Case]:
    """Files of documents, at every command that reads some."""
    for name, file_name, write in bad_documents():
        for entry in ("predict", "score", "explain", "prepare", "init"):
            call = partial(_read_documents, site, file_name, write, entry)
            yield Case(
                "documents",
                entry,
                f"{file_name[-12:]!a}: {name}",
                call,
                name not in READS_ROWS,
            )


def _read_documents(
    site: Site,
    file_name: str,
    write: Callable[[Path], object],
    entry: str,
    folder: Path,
) -> tuple[int, str]:
    file = folder / file_name
    write(file)
    kind = next(
        (kind for ending, kind in KINDS.items() if ending in file_name), "jsonl"
    )
    source = json.dumps(
        {"kind": kind, "files": {"train": str(file)}}, ensure_ascii=False
    )
    arguments: dict[str, tuple[object, ...]] = {
        "predict": ("predict", site.model, "--input", file),
        "score": ("score", site.model, file, "-o", folder / "out"),
        "explain": ("explain", site.model, "--input", file, "--doc-id", "x"),
        "init": ("init", file, "-o", folder / "new.yaml"),
        "prepare": (
            "prepare",
            site.config,
            f"data.source={source}",
            f"data.corpus={folder / 'corpus'}",
        ),
    }
    return command(*arguments[entry])
