"""Write the same documents into every container, with labels of every type in every script, and compare what is read.

    python tools/check/readers.py [--cases N] [--seed S]

Expected labels come from how a case was made, not from xmtc. A case ends in one of these ways:

    right      the corpus has exactly the expected texts and labels
    refused    one line names the column, where the cells are no labels
    wrong      anything else; the exit status is then 1
"""

import argparse
import bz2
import datetime
import gzip
import json
import lzma
import random
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from xmtc.config.shape import adapter
from xmtc.data.config import DataConfig
from xmtc.data.labels import LabelTable
from xmtc.data.selection import Selection, select
from xmtc.data.spool import Spool
from xmtc.desk.annotate.annotations import AnnotatedDocument, Annotations
from xmtc.errors import XmtcError
from xmtc.own_data import documents_table
from xmtc.track.progress import Progress

SCRIPTS = {
    "Latin": "naïve café Straße İğne Ångström œuvre",
    "Greek": "Ελληνικά γλώσσα σύνταγμα νόμος",
    "Cyrillic": "закон йод ёлка українська",
    "Arabic": "قَانُون اللُّغَة العَرَبِيَّة كتاب",
    "Hebrew": "שָׁלוֹם עִבְרִית חוק ספר",
    "Devanagari": "आधुनिक हिन्दी क़ानून पुस्तक",
    "Bengali": "বাংলা আইন য়োগ বই",
    "Tamil": "தமிழ் சட்டம் கொள்கை நூல்",
    "Thai": "ภาษาไทย กฎหมาย น้ำ หนังสือ",
    "Han": "法律 中文 經濟 圖書館",
    "Kana": "がくせい カタカナ プログラム ひらがな",
    "Hangul": "한국어 법률 도서관 경제",
    "emoji": "👩‍🔬 🇪🇺 ❤️ 👍🏽",
    "mixed": "AI法律 covid-19疫情 ไทย2020 C++",
}
"""Words of each script; their letters change under NFC or NFD where the script has such letters."""
GAPS = [None, float("nan"), "", " "]
Made = tuple[Any, str | None]
"""A value, and the label that it is."""


def _text(word: str, draw: random.Random) -> Made:
    form = draw.choice(["NFC", "NFD"])
    return draw.choice(["", " "]) + unicodedata.normalize(
        form, word
    ), unicodedata.normalize("NFC", word)


def _date(number: int) -> Made:
    day = datetime.date(2000, 1, 1) + datetime.timedelta(number)
    return day, day.isoformat()


TYPES: dict[str, Callable[[str, int, random.Random], Made]] = {
    "text": lambda word, number, draw: _text(word, draw),
    "integers": lambda word, number, draw: (number, str(number)),
    "whole floats": lambda word, number, draw: (float(number), str(number)),
    "fractions": lambda word, number, draw: (number + 0.7, f"{number}.7"),
    "codes": lambda word, number, draw: (f"{number:05d}", f"{number:05d}"),
    "decimals": lambda word, number, draw: (Decimal(number) / 4, f"{number / 4:g}"),
    "dates": lambda word, number, draw: _date(number),
    "bytes": lambda word, number, draw: (
        word.encode(),
        unicodedata.normalize("NFC", word),
    ),
    "booleans": lambda word, number, draw: (number % 2 == 0, str(number % 2 == 0)),
    "classes": lambda word, number, draw: (number % 9, f"class {number % 9}"),
    "vectors": lambda word, number, draw: (number, None),
    "objects": lambda word, number, draw: (
        {"label": word},
        unicodedata.normalize("NFC", word),
    ),
}
"""Each makes a value and its label from a word of the script and a number. The last but one is no label."""
REFUSED = ("vectors",)
SHAPES = ("one", "list")
NONSENSE = (("vectors", "one"), ("booleans", "list"))


@dataclass(frozen=True)
class Case:
    """Documents: titles that may be absent, texts, cells of labels, and the labels that these mean."""

    container: str
    kind: str
    shape: str
    script: str
    titles: list[Any]
    texts: list[str]
    cells: list[Any]
    expected: list[frozenset[str]]

    def expected_texts(self) -> list[str]:
        """Title and text of each document, joined."""
        return [
            f"{t}\n{x}" if isinstance(t, str) and t.strip() else x
            for t, x in zip(self.titles, self.texts, strict=True)
        ]

    def columns(self) -> dict[str, list[Any]]:
        """The columns of the table."""
        return {"title": self.titles, "text": self.texts, "labels": self.cells}


def make_case(
    container: str, kind: str, shape: str, script: str, draw: random.Random
) -> Case:
    """Ten documents; every second has a gap somewhere."""
    words = SCRIPTS[script].split()
    pool = [
        TYPES[kind](draw.choice(words), draw.randrange(1, 999), draw) for _ in range(6)
    ]
    gaps = (
        [None]
        if kind in ("bytes", "dates", "decimals", "objects", "classes", "booleans")
        else GAPS
    )
    gaps = gaps[:2] if kind in ("integers", "whole floats", "fractions") else gaps
    cells, expected = [], []
    for row in range(10):
        drawn = [
            draw.choice(pool)
            for _ in range(1 if shape == "one" else draw.randrange(0, 4))
        ]
        if row % 3 == 1:
            drawn = (
                [(draw.choice(gaps), None)]
                if shape == "one"
                else [*drawn, (draw.choice(gaps), None)]
            )
        values = [value for value, _ in drawn]
        cells.append(values[0] if shape == "one" else values)
        expected.append(frozenset(label for _, label in drawn if label is not None))
    if not any(expected) and kind not in REFUSED:
        cells[0], expected[0] = (
            (pool[0][0] if shape == "one" else [pool[0][0]]),
            frozenset([pool[0][1] or ""]),
        )
    if kind == "vectors":
        to = draw.choice([int, float, bool])
        cells = [[to(draw.random() < 0.3) for _ in range(8)] for _ in cells[:-1]] + [
            [to(0)] * 8
        ]
    titles = [draw.choice([None, draw.choice(words)]) for _ in cells]
    texts = [
        f"{row} "
        + " ".join(_text(draw.choice(words), draw)[0].strip() for _ in range(4))
        for row in range(10)
    ]
    return Case(container, kind, shape, script, titles, texts, cells, expected)


class CannotHoldError(Exception):
    """Raised if a container has no way to hold such cells."""


def _arrow(
    case: Case,
    change: Callable[[str, pa.Array], pa.Array] = lambda name, column: column,
) -> pa.Table:
    columns = {}
    for name, values in case.columns().items():
        try:
            columns[name] = change(name, pa.array(values, from_pandas=False))
        except (pa.ArrowException, TypeError) as error:
            raise CannotHoldError from error
    table = pa.table(columns)
    if case.kind != "classes":
        return table
    feature: Any = {"_type": "ClassLabel", "names": [f"class {i}" for i in range(9)]}
    feature = (
        feature if case.shape == "one" else {"_type": "Sequence", "feature": feature}
    )
    return table.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": {"labels": feature}}})}
    )


def _large(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.large_string())
    if pa.types.is_list(kind):
        inside = (
            pa.large_string()
            if pa.types.is_string(kind.value_type)
            else kind.value_type
        )
        return column.cast(pa.large_list(inside))
    return column


def _dictionary(name: str, column: pa.Array) -> pa.Array:
    if pa.types.is_nested(column.type):
        raise CannotHoldError
    return column.dictionary_encode()


def _json(case: Case) -> bytes:
    _only(case.kind != "classes")
    try:
        rows = [
            dict(zip(case.columns(), row, strict=True))
            for row in zip(*case.columns().values(), strict=True)
        ]
        return "".join(
            json.dumps(row, ensure_ascii=False) + "\n" for row in rows
        ).encode()
    except TypeError as error:
        raise CannotHoldError from error


def _texts_of_lists(case: Case, write: Callable[[list[Any]], str]) -> pd.DataFrame:
    _only(
        case.shape == "list"
        and case.kind not in ("classes", "bytes", "decimals", "dates", "objects")
    )
    return pd.DataFrame(
        {
            "title": case.titles,
            "text": case.texts,
            "labels": [write(cell) for cell in case.cells],
        }
    )


def _python_lists(case: Case, path: Path) -> dict[str, Any]:
    """As pandas writes a column of lists."""
    _texts_of_lists(case, str).to_csv(path, index=False)
    return {"kind": "csv"}


def _only(holds: bool) -> None:
    if not holds:
        raise CannotHoldError


def _csv(delimiter: str) -> Callable[[Case, Path], dict[str, Any]]:
    def write(case: Case, path: Path) -> dict[str, Any]:
        _only(case.kind not in ("classes", "bytes", "decimals", "objects", *REFUSED))
        data = pd.DataFrame({"title": case.titles, "text": case.texts})
        if case.shape == "one":
            data["labels"] = pd.Series(case.cells)
        else:
            shown = [
                ["" if pd.isna(one) else str(one) for one in cell]
                for cell in case.cells
            ]
            data["labels"] = [";".join(cell) for cell in shown]
        data.to_csv(path, sep=delimiter, index=False)
        return {
            "kind": "csv",
            "delimiter": delimiter,
            "columns": {"label_separator": ";"},
        }

    return write


def _bytes(
    kind: str, content: Callable[[Case], bytes]
) -> Callable[[Case, Path], dict[str, Any]]:
    def write(case: Case, path: Path) -> dict[str, Any]:
        path.write_bytes(content(case))
        return {"kind": kind}

    return write


def _parquet(
    table: Callable[[Case], pa.Table],
) -> Callable[[Case, Path], dict[str, Any]]:
    def write(case: Case, path: Path) -> dict[str, Any]:
        try:
            pq.write_table(table(case), path)
        except pa.ArrowException as error:
            raise CannotHoldError from error
        return {"kind": "parquet"}

    return write


def _ipc(writer: Callable[..., Any]) -> Callable[[Case, Path], dict[str, Any]]:
    def write(case: Case, path: Path) -> dict[str, Any]:
        table = _arrow(case)
        with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as out:
            out.write_table(table, max_chunksize=3)
        return {"kind": "arrow"}

    return write


def _pandas(case: Case, **convert: Any) -> pa.Table:
    _only(case.kind != "classes")
    frame = pd.DataFrame(
        {name: pd.Series(values) for name, values in case.columns().items()}
    )
    try:
        return pa.Table.from_pandas(
            frame.convert_dtypes(**convert) if convert else frame, preserve_index=False
        )
    except (pa.ArrowException, TypeError) as error:
        raise CannotHoldError from error


def _memory(
    hold: Callable[[list[Any]], Any], whole: bool = False
) -> Callable[[Case], pa.Table]:
    def table(case: Case) -> pa.Table:
        _only(case.kind != "classes")
        held = hold(case.cells)
        texts = documents_table(
            pd.DataFrame(
                {"title": case.titles, "text": case.texts, "labels": [["x"]] * 10}
            ),
            None,
            ["title", "text"],
            "labels",
        )
        made = (
            documents_table(
                pd.DataFrame({"text": case.texts, "labels": held}),
                None,
                ["text"],
                "labels",
            )
            if whole
            else documents_table(case.texts, held, ["text"], "labels")
        )
        return made.append_column("title", texts["title"])

    return table


def _objects(cells: list[Any]) -> Any:
    held = np.empty(len(cells), object)
    held[:] = [
        np.array(cell)
        if isinstance(cell, list) and not any(isinstance(one, dict) for one in cell)
        else cell
        for cell in cells
    ]
    return held


def _annotated(case: Case, path: Path) -> dict[str, Any]:
    """Through the server's file: strings without gaps."""
    lists = [cell if isinstance(cell, list) else [cell] for cell in case.cells]
    _only(case.kind in ("text", "codes"))
    lists = [
        [one for one in cell if isinstance(one, str) and one.strip()] for cell in lists
    ]
    known = sorted(frozenset().union(*case.expected))
    table = LabelTable(known, known, np.ones(len(known), np.int64))
    texts_and_labels = zip(case.expected_texts(), lists, strict=True)
    documents = [
        AnnotatedDocument(None, text, labels) for text, labels in texts_and_labels
    ]
    with Annotations(path, table) as annotations:
        annotations.save(documents)
    return {"kind": "jsonl", "columns": {"text": "text"}}


CONTAINERS: dict[str, Callable[[Case, Path], dict[str, Any]]] = {
    "jsonl": _bytes("jsonl", _json),
    "jsonl.gz": _bytes("jsonl", lambda case: gzip.compress(_json(case))),
    "jsonl.zst": _bytes("jsonl", lambda case: zstandard.compress(_json(case))),
    "jsonl.bz2": _bytes("jsonl", lambda case: bz2.compress(_json(case))),
    "jsonl.xz": _bytes("jsonl", lambda case: lzma.compress(_json(case))),
    "csv": _csv(","),
    "csv, Python's lists": _python_lists,
    "tsv": _csv("\t"),
    "parquet": _parquet(_arrow),
    "parquet, large types": _parquet(lambda case: _arrow(case, _large)),
    "parquet, dictionaries": _parquet(lambda case: _arrow(case, _dictionary)),
    "parquet, pandas": _parquet(_pandas),
    "parquet, nullable pandas": _parquet(
        lambda case: _pandas(case, dtype_backend="numpy_nullable")
    ),
    "parquet, JSON lists": _parquet(
        lambda case: pa.Table.from_pandas(_texts_of_lists(case, json.dumps))
    ),
    "arrow file": _ipc(pa.ipc.new_file),
    "arrow stream": _ipc(pa.ipc.new_stream),
    "Python lists": _parquet(_memory(lambda cells: cells)),
    "NumPy arrays": _parquet(_memory(_objects)),
    "pandas": _parquet(_memory(pd.Series, whole=True)),
    "nullable pandas": _parquet(
        _memory(lambda cells: pd.Series(cells).convert_dtypes())
    ),
    "annotations": _annotated,
}


def documents_of(config: DataConfig, scratch: Path) -> tuple[Spool, Selection]:
    """Read a source as `prepare` does: its texts, and the rows and labels that it selects."""
    reader = config.source.build()
    spool = Spool(scratch, len(reader.fields()))
    rows = list(
        reader.read(
            lambda function, items: map(function, items), Progress(enabled=False)
        )
    )
    spool.fill(
        rows,
        reader.label_info(),
        config=config,
        task=Progress(enabled=False).task("read"),
    )
    return spool, select(spool, reader.label_info(), reader.provides(), config)


def read(case: Case, folder: Path) -> tuple[list[str], list[frozenset[str]]]:
    """Write a case, and return the texts and labels of the corpus that it becomes."""
    path = folder / "train.data"
    given = CONTAINERS[case.container](case, path)
    path = path.rename(
        path.with_suffix(
            "." + case.container if case.container.startswith("jsonl") else ".data"
        )
    )
    columns = {"text": ["title", "text"]} | given.pop("columns", {})
    source = given | {"files": {"train": str(path)}, "columns": columns}
    settings = {
        "source": source,
        "corpus": "x",
        "split": {"dev": 0, "test": 0},
        "duplicates": "keep",
    }
    config: DataConfig = adapter(DataConfig).validate_json(json.dumps(settings))
    spool, chosen = documents_of(config, folder / "spool")
    matrix = chosen.label_matrix[chosen.rows["train"]]
    labels = [
        frozenset(chosen.labels.labels[int(i)] for i in ids)
        for ids in np.split(matrix.indices, matrix.indptr[1:-1])
    ]
    return list(spool.texts(chosen.rows["train"])), labels


def outcome(case: Case) -> tuple[str, str]:
    """Run a case: how it ended, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            texts, labels = read(case, Path(folder))
        except CannotHoldError:
            return "impossible", ""
        except XmtcError as error:
            good = (
                case.kind in REFUSED
                and "\n" not in str(error)
                and "labels" in str(error)
            )
            return "refused" if good else "wrong", str(error)
        except Exception as error:
            return "wrong", f"{type(error).__name__}: {error}"
    right = case.kind not in REFUSED and (texts, labels) == (
        case.expected_texts(),
        case.expected,
    )
    return "right" if right else "wrong", f"{labels} instead of {case.expected}"


def run(cases: int, seed: int) -> list[tuple[Case, str, str]]:
    """Run this many cases, spread evenly over all combinations that a container can hold."""
    draw = random.Random(seed)
    kinds = [
        (kind, shape)
        for kind in TYPES
        for shape in SHAPES
        if (kind, shape) not in NONSENSE
    ]
    everything = [
        (container, *kind, script)
        for container in CONTAINERS
        for kind in kinds
        for script in SCRIPTS
    ]
    found: list[tuple[Case, str, str]] = []
    while len(found) < cases:
        for combination in draw.sample(everything, len(everything)):
            case = make_case(*combination, draw)
            end, said = outcome(case)
            if end != "impossible":
                found.append((case, end, said))
            if len(found) == cases:
                break
    return found


def table_of(
    found: Sequence[tuple[Case, str, str]], group: Callable[[Case], str], head: str
) -> str:
    """Counts by group, as Markdown."""
    lines = [
        f"| {head} | tried | right | refused in one line | wrong |",
        "|---|---|---|---|---|",
    ]
    for name in [*dict.fromkeys(sorted(group(case) for case, _, _ in found)), "all"]:
        ends = Counter(end for case, end, _ in found if name in ("all", group(case)))
        lines.append(
            f"| {name} | {ends.total()} | {ends['right']} | {ends['refused']} | {ends['wrong']} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = run(options.cases, options.seed)
    for head, group in (
        ("container", lambda c: c.container),
        ("type", lambda c: f"{c.kind}, {c.shape}"),
        ("script", lambda c: c.script),
    ):
        print(table_of(found, group, head), end="\n\n")
    wrong = [(case, said) for case, end, said in found if end == "wrong"]
    for case, said in wrong[:20]:
        print(
            f"wrong: {case.container}, {case.kind}, {case.shape}, {case.script}: {said[:600]}"
        )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
