"""Documents that are too long, in every format and at every command: refused by their limit, in little memory."""

import bz2
import csv
import gzip
import itertools
import json
import lzma
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attack_cases.attack import Attack, expect
from bad_input_cases.case import Site, command, spoken
from xmtc.data.readers.base import LONGEST_DOCUMENT

MIB = 1 << 20
WORD = "lawery "
LIMIT = 500
"""Characters that a document may have in these attacks."""
SIZES = {"a little": 2 * LIMIT, "much": 3_000_000}
"""How long the long document is: the first is read and then refused, the second while it is read."""
BOMB_PIECES = 80
"""Of a million characters each."""
Rows = list[dict[str, Any]]
Write = Callable[[Path, Rows], object]


def _jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _json(path: Path, rows: Rows) -> None:
    path.write_text(json.dumps(rows))


def _csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        writer.writerows([row["id"], row["text"], row["labels"]] for row in rows)


def _parquet(path: Path, rows: Rows) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def _arrow(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def _stream(path: Path, rows: Rows) -> None:
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(str(path), table.schema) as file:
        file.write_table(table)


FORMATS: dict[str, tuple[str, Write]] = {
    ".jsonl": ("jsonl", _jsonl),
    ".json": ("jsonl", _json),
    ".csv": ("csv", _csv),
    ".parquet": ("parquet", _parquet),
    ".arrow": ("arrow", _arrow),
    "-stream.arrow": ("arrow", _stream),
}
COMMANDS = ("score", "predict", "diff", "drift", "explain", "prepare", "train", "serve")
OPENERS: dict[str, Callable[[Path, str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
REPEATED = ("score", "predict", "drift", "prepare", "serve")
FOLLOWED = ("score", "predict", "diff", "drift", "prepare")


def long_document_attacks(site: Site) -> Iterator[Attack]:
    """Every format at every command that reads documents, then bombs, then the advice that the refusals give."""
    for (size, ending), entry in itertools.product(
        itertools.product(SIZES, FORMATS), COMMANDS
    ):
        yield Attack(
            "long documents",
            f"{entry}, {ending}, {size}",
            partial(_long, site, ending, SIZES[size], entry),
        )
    for ending, entry in itertools.product(OPENERS, REPEATED):
        yield Attack("bombs", f"{entry}, {ending}", partial(_bomb, site, ending, entry))
    for entry in REPEATED:
        yield Attack("bombs", f"{entry}, Parquet", partial(_repeated, site, entry))
    for ending in FORMATS:
        yield Attack("long documents", f"init, {ending}", partial(_init, ending))
        yield Attack(
            "long documents",
            f"annotations sample, {ending}",
            partial(_sample, site, ending),
        )
    for entry, ending in itertools.product(FOLLOWED, FORMATS):
        yield Attack(
            "long documents allowed",
            f"{entry}, {ending}",
            partial(_allowed, site, ending, entry),
        )


def _words(
    site: Site, entry: str, path: Path, kind: str, folder: Path, limit: int | None
) -> tuple[object, ...]:
    """The words of a command that reads a file."""
    bound: tuple[object, ...] = () if limit is None else ("--longest-document", limit)
    columns = {"id": "id", "text": "text", "labels": "labels"}
    own = (
        site.config,
        f"data.source={json.dumps({'kind': kind, 'files': {'train': str(path)}, 'columns': columns})}",
        f"data.corpus={folder / 'corpus'}",
        f"track.directory={folder / 'runs'}",
        *(() if limit is None else (f"data.longest_document={limit}",)),
    )
    return {
        "score": (
            "score",
            site.model,
            path,
            "--id",
            "id",
            "--max-rejected",
            0,
            "-o",
            folder / "out",
            *bound,
        ),
        "predict": ("predict", site.model, "--input", path, *bound),
        "diff": ("diff", site.model, site.model, path, *bound),
        "drift": ("drift", site.model, path, *bound),
        "explain": (
            *("explain", site.model, "--input", path, "--id", "id", "--doc-id", "long"),
            *("-o", folder / "page.html", *bound),
        ),
        "prepare": ("prepare", *own),
        "train": ("train", *own),
        "serve": (
            *("serve", site.model, "--port", 0, "--queue", path),
            *(() if limit is None else (f"limits.characters={limit}",)),
        ),
    }[entry]


def _rows(characters: int) -> Rows:
    text = (WORD * (characters // len(WORD) + 1))[:characters]
    short: Rows = [
        {"id": f"d{i}", "text": f"{WORD}{i}", "labels": ("law", "fish")[i % 2]}
        for i in range(40)
    ]
    return [*short, {"id": "long", "text": text, "labels": "law"}]


def _refused(words: tuple[object, ...], most: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, said = command(*words)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    expect(code and "Traceback" not in said, f"exit status {code}: {said[-500:]}")
    expect(
        "characters" in said and "raise" in said,
        f"says neither limit nor fix: {said[-500:]}",
    )
    expect(WORD * 3 not in said, "shows the text")
    expect(grown < most, f"took {grown} MiB")


def _long(site: Site, ending: str, characters: int, entry: str, folder: Path) -> None:
    kind, write = FORMATS[ending]
    path = folder / f"in{ending}"
    write(path, _rows(characters))
    _refused(_words(site, entry, path, kind, folder, LIMIT), 400)


def _init(ending: str, folder: Path) -> None:
    """The long document is left out, with a word, or refused."""
    path = folder / f"in{ending}"
    FORMATS[ending][1](path, _rows(LONGEST_DOCUMENT + 1))
    code, results, problems = spoken("init", path, "-o", folder / "config.yaml")
    said = results + problems
    expect("Traceback" not in said, said)
    expect("10,000,001 characters" in said, f"says nothing: {said}")
    expect(code or "on_bad_row: skip" in (folder / "config.yaml").read_text(), "kept")


def _sample(site: Site, ending: str, folder: Path) -> None:
    """A document that was scored under a higher limit is refused under a lower one."""
    path = folder / f"in{ending}"
    FORMATS[ending][1](path, _rows(2 * LIMIT))
    scored = ("score", site.model, path, "--id", "id", "--threshold", "tuned", "-o")
    code, said = command(*scored, folder / "out")
    expect(code == 0, f"exit status {code}: {said[-500:]}")
    sample = ("annotations", "sample", folder / "out", "--model", site.model)
    own = ("--size", 41, "--input", path, "--id", "id", "-o", folder / "sample.jsonl")
    _refused((*sample, *own, "--longest-document", LIMIT), 400)


def _bomb(site: Site, ending: str, entry: str, folder: Path) -> None:
    """A line of hundreds of megabytes in a small file."""
    path = folder / f"in.jsonl{ending}"
    with OPENERS[ending](path, "wt") as file:
        file.write('{"id": "long", "labels": "law", "text": "')
        for _ in range(BOMB_PIECES):
            file.write(WORD * (1_000_000 // len(WORD)))
        file.write('"}\n')
    _refused(_words(site, entry, path, "jsonl", folder, None), 700)


def _repeated(site: Site, entry: str, folder: Path) -> None:
    """One long text that a dictionary repeats a thousand times."""
    path = folder / "in.parquet"
    rows = 1_000
    texts = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([WORD * 10_000_000])
    )
    table = pa.table(
        {
            "id": [str(row) for row in range(rows)],
            "text": texts,
            "labels": ["law"] * rows,
        }
    )
    pq.write_table(table, path)
    _refused(_words(site, entry, path, "parquet", folder, None), 700)


def _allowed(site: Site, ending: str, entry: str, folder: Path) -> None:
    """What the refusal advises works."""
    kind, write = FORMATS[ending]
    path = folder / f"in{ending}"
    write(path, _rows(2 * LIMIT))
    code, said = command(*_words(site, entry, path, kind, folder, 2 * LIMIT))
    expect(code == 0 and "Traceback" not in said, f"exit status {code}: {said[-500:]}")
