"""Corpora of a stranger: checksums are right, and what is in the files is not."""

import itertools
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors.numpy import load_file, save_file

from attack_cases.attack import Attack, expect
from attack_cases.signatures import sign_corpus
from bad_input_cases.case import Site, command

Change = Callable[[Path], object]
Column = list[Any]
LARGE = 2**31 - 1
TRAIN, DEV = "train/00000.arrow", "dev/00000.arrow"


def corpus_attacks(site: Site, cached: Site) -> Iterator[Attack]:
    """Every change at every command that reads what was changed.

    Args:
        site: what was trained; its corpus is changed.
        cached: a run whose corpus holds the states of a frozen encoder.
    """
    for (name, change), shard in itertools.product(WRONG.items(), (TRAIN, DEV)):
        yield Attack(
            "corpora: shards that must be refused",
            f"train, {shard}, {name}",
            partial(_attack, site, "train", partial(change, shard=shard), True),
        )
    for name in (*WRONG_LABELS, *ODD_LABELS):
        change = (WRONG_LABELS | ODD_LABELS)[name]
        yield Attack(
            "corpora: shards with the correct labels",
            name,
            partial(
                _attack,
                site,
                "evaluate",
                partial(change, shard=DEV),
                name in WRONG_LABELS,
            ),
        )
    for (name, change), entry in itertools.product(ODD.items(), ("train", "mig")):
        yield Attack(
            "corpora: odd shards",
            f"{entry}, {name}",
            partial(_attack, site, entry, partial(change, shard=TRAIN), False),
        )
    for (name, change), entry in itertools.product(
        MANIFESTS.items(), ("train", "evaluate")
    ):
        yield Attack(
            "corpora: manifests",
            f"{entry}, {name}",
            partial(_attack, site, entry, change, False),
        )
    for name, change in FILES.items():
        yield Attack(
            "corpora: labels and words",
            name,
            partial(_attack, site, "train", change, False),
        )
    for name, change in STATES.items():
        yield Attack("corpora: cached states", name, partial(_states, cached, change))


def _words(site: Site, entry: str, folder: Path) -> tuple[object, ...]:
    corpus = folder / "corpus"
    own = (
        site.config,
        f"data.corpus={corpus}",
        f"track.directory={folder / 'runs'}",
    )
    return {
        "train": ("train", *own, 'model.scorers=[{"kind": "linear"}]'),
        "mig": ("mig", *own),
        "evaluate": (
            *("evaluate", "--gold", corpus, "--output", folder / "out"),
            "--predictions",
            site.run / "eval" / "dev" / "predictions.parquet",
        ),
    }[entry]


def _attack(
    site: Site, entry: str, change: Change, refused: bool, folder: Path
) -> None:
    corpus = folder / "corpus"
    shutil.copytree(site.corpus, corpus)
    change(corpus)
    code, said = command(*_words(site, entry, folder))
    expect("Traceback" not in said, said)
    if code:
        expect(said.strip(), "silent")
        return
    expect(not refused, f"it was used: {said[-300:]}")
    check_metrics(folder)


def check_metrics(folder: Path) -> None:
    """All metrics beneath a folder are finite numbers."""
    for path in folder.rglob("metrics.json"):
        json.loads(path.read_text(), parse_constant=_not_finite)


def _not_finite(word: str) -> float:
    expect(False, f"a metric is {word}")
    raise AssertionError


def _states(cached: Site, change: Change, folder: Path) -> None:
    """A cache that does not fit is computed again, or refused; a training with it ends with finite metrics."""
    corpus = folder / "corpus"
    shutil.copytree(cached.corpus, corpus)
    change(next((corpus / "hidden").glob("*")))
    code, said = command(
        *("train", cached.config, f"data.corpus={corpus}"),
        f"track.directory={folder / 'runs'}",
    )
    expect("Traceback" not in said, said)
    expect(code == 0 or said.strip(), "silent")
    check_metrics(folder)


def _edit(
    corpus: Path,
    shard: str,
    column: str,
    values: Callable[[Column], Any],
    kind: pa.DataType | None = None,
) -> None:
    """Change a column of a shard, and correct the manifest."""
    path = corpus / shard
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    position = table.schema.get_field_index(column)
    changed = values(table[column].to_pylist())
    if not isinstance(changed, pa.Array):
        changed = pa.array(changed, kind or table.schema.field(column).type)
    _write(path, table.set_column(position, column, changed))
    sign_corpus(corpus)


def _write(path: Path, table: pa.Table, **options: Any) -> None:
    with pa.ipc.new_file(
        str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as file:
        for batch in table.combine_chunks().to_batches():
            file.write_batch(batch)


def _first(value: Any) -> Callable[[Column], Column]:
    """Rows whose first has another first element."""
    return lambda rows: [[value, *rows[0][1:]], *rows[1:]]


def _row(value: Any) -> Callable[[Column], Column]:
    """Rows of which the first is another one."""
    return lambda rows: [value, *rows[1:]]


def _column(column: str, values: Callable[[Column], Any], **options: Any) -> Any:
    def change(corpus: Path, shard: str) -> None:
        _edit(corpus, shard, column, values, **options)

    return change


def _table(change_table: Callable[[pa.Table], pa.Table], **options: Any) -> Any:
    def change(corpus: Path, shard: str) -> None:
        path = corpus / shard
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        _write(path, change_table(table), **options)
        sign_corpus(corpus)

    return change


def _offsets(column: str, make: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Change the offsets of a column's lists where they stand in the file."""

    def change(corpus: Path, shard: str) -> None:
        path = corpus / shard
        content = path.read_bytes()
        table = pa.ipc.open_file(content).read_all().combine_chunks()
        chunk = table[column].chunk(0)
        offsets = np.frombuffer(chunk.buffers()[1], np.int32)[: len(chunk) + 1]
        at = content.rindex(offsets.tobytes())
        changed = make(offsets.copy()).astype(np.int32).tobytes()
        path.write_bytes(content[:at] + changed + content[at + len(changed) :])
        sign_corpus(corpus)

    return change


def _at(position: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def make(offsets: np.ndarray) -> np.ndarray:
        offsets[position] = value
        return offsets

    return make


WRONG_LABELS: dict[str, Any] = {
    f"label_ids of {value}": _column("label_ids", _first(value))
    for value in (-1, 10_000, LARGE, -(2**31))
} | {
    "label_ids of an empty cell": _column("label_ids", _row(None)),
    "label_ids with an empty element": _column("label_ids", _row([None])),
    "label_ids with offsets beyond": _offsets("label_ids", _at(-1, LARGE)),
    "label_ids with offsets that fall": _offsets("label_ids", _at(2, 0)),
    "label_ids with offsets below 0": _offsets("label_ids", _at(1, -5)),
    "label_ids as whole numbers of 64 bits": _column(
        "label_ids", lambda rows: rows, kind=pa.list_(pa.int64())
    ),
    "label_ids as text": _column(
        "label_ids", lambda rows: [str(row) for row in rows], kind=pa.string()
    ),
    "label_ids left out": _table(lambda table: table.drop_columns(["label_ids"])),
    "doc_id of an empty cell": _column("doc_id", _row(None)),
    "doc_id with offsets beyond": _offsets("doc_id", _at(-1, LARGE)),
    "doc_id as numbers": _column(
        "doc_id", lambda rows: list(range(len(rows))), kind=pa.int64()
    ),
    "doc_id as binary": _column(
        "doc_id", lambda rows: [b"\xff"] * len(rows), kind=pa.binary()
    ),
    "doc_id left out": _table(lambda table: table.drop_columns(["doc_id"])),
}
ODD_LABELS: dict[str, Any] = {
    "label_ids twice": _column("label_ids", _row([1, 1])),
    "label_ids that fall": _column("label_ids", _row([2, 1])),
    "the same doc_id everywhere": _column("doc_id", lambda rows: ["x"] * len(rows)),
    "doc_id of a megabyte": _column("doc_id", _row("x" * 1_000_000)),
    "doc_id of a zero byte and a line": _column("doc_id", _row("a\0b\nc")),
}
WRONG: dict[str, Any] = WRONG_LABELS | {
    **{
        f"input_ids of {value}": _column("input_ids", _first(value))
        for value in (-1, 100_000, LARGE, -(2**31))
    },
    **{
        f"word_ids of {value}": _column("word_ids", _first(value))
        for value in (-1, 100_000, LARGE)
    },
    "input_ids of an empty cell": _column("input_ids", _row(None)),
    "input_ids with an empty element": _column("input_ids", _first(None)),
    "input_ids with offsets beyond": _offsets("input_ids", _at(-1, LARGE)),
    "input_ids with offsets that fall": _offsets("input_ids", _at(2, 0)),
    "word_ids without counts": _column("word_counts", lambda rows: [[] for _ in rows]),
    "word_counts below 0": _column(
        "word_counts", lambda rows: [[-1 for _ in row] for row in rows]
    ),
    "word_counts of 0": _column(
        "word_counts", lambda rows: [[0 for _ in row] for row in rows]
    ),
    "word_counts with an empty element": _column(
        "word_counts", lambda rows: [[None for _ in row] for row in rows]
    ),
    "word_ids with offsets beyond": _offsets("word_ids", _at(-1, LARGE)),
    "text_hash of an empty cell": _column("text_hash", _row(None)),
    "text_hash as text": _column(
        "text_hash", lambda rows: ["x"] * len(rows), kind=pa.string()
    ),
}
"""What a shard must not hold: by name, a function of the corpus's folder and the name of the shard."""
ODD: dict[str, Any] = {
    "documents without tokens": _column("input_ids", lambda rows: [[] for _ in rows]),
    "documents longer than max_length": _column(
        "input_ids", lambda rows: [row * 200 for row in rows]
    ),
    "documents without labels": _column("label_ids", lambda rows: [[] for _ in rows]),
    "word_ids twice": _column(
        "word_ids", lambda rows: [[row[0] for _ in row] if row else [] for row in rows]
    ),
    "word_ids that fall": _column("word_ids", lambda rows: [row[::-1] for row in rows]),
    "word_counts of billions": _column(
        "word_counts", lambda rows: [[LARGE for _ in row] for row in rows]
    ),
    "one hash for all": _column("text_hash", lambda rows: [0] * len(rows)),
    "a column more": _table(
        lambda table: table.append_column("x", pa.array(["y"] * len(table)))
    ),
    "columns in another order": _table(
        lambda table: table.select(table.column_names[::-1])
    ),
    "a column twice": _table(
        lambda table: table.append_column("doc_id", table["doc_id"])
    ),
    "no rows": _table(lambda table: table.slice(0, 0)),
    "one row": _table(lambda table: table.slice(0, 1)),
    "compressed buffers": _table(lambda table: table, compression="zstd"),
    "metadata of a megabyte": _table(
        lambda table: table.replace_schema_metadata({"pandas": "x" * 1_000_000})
    ),
    "large lists": _column(
        "input_ids", lambda rows: rows, kind=pa.large_list(pa.int32())
    ),
    "views of text": _column("doc_id", lambda rows: rows, kind=pa.string_view()),
    "a dictionary": _column("doc_id", lambda rows: pa.array(rows).dictionary_encode()),
} | ODD_LABELS


def _manifest(edit: Callable[[dict[str, Any]], object]) -> Change:
    def change(corpus: Path) -> None:
        path = corpus / "manifest.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return change


def _shard(**values: Any) -> Change:
    def edit(content: dict[str, Any]) -> None:
        for split in content["splits"].values():
            split["shards"][0] |= values

    return _manifest(edit)


def _shard_file(**values: Any) -> Change:
    def edit(content: dict[str, Any]) -> None:
        for split in content["splits"].values():
            split["shards"][0]["file"] |= values

    return _manifest(edit)


def _splits(**values: Any) -> Change:
    def edit(content: dict[str, Any]) -> None:
        for split in content["splits"].values():
            split |= values

    return _manifest(edit)


def _secret(path: str) -> Change:
    """A shard whose name leads out of the corpus, to a copy of itself."""

    def change(corpus: Path) -> None:
        shutil.copytree(corpus / "dev", corpus.parent / "dev")
        shutil.copytree(corpus / "train", corpus.parent / "train")
        for split in ("dev", "train"):
            name = path.format(corpus=corpus, split=split)

            def edit(
                content: dict[str, Any], split: str = split, name: str = name
            ) -> None:
                content["splits"][split]["shards"][0]["file"]["path"] = name

            _manifest(edit)(corpus)

    return change


def _set(*keys: str, value: Any) -> Change:
    def edit(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return _manifest(edit)


def _linked(corpus: Path) -> None:
    (corpus / DEV).rename(corpus.parent / "secret.arrow")
    (corpus / DEV).symlink_to(corpus.parent / "secret.arrow")


MANIFESTS: dict[str, Change] = {
    **{
        f"rows of {value!r}": _shard(rows=value) for value in (0, -1, 2**62, "61", 61.5)
    },
    **{f"tokens of {value!r}": _shard(tokens=value) for value in (0, -1, 2**62, None)},
    **{
        f"rows of a split of {value!r}": _splits(rows=value) for value in (0, -1, 2**62)
    },
    "no shards": _splits(shards=[]),
    "a split that is a list": _set("splits", "dev", value=[]),
    "no splits": _set("splits", value={}),
    "a split above": _set(
        "splits", "../x", value={"rows": 0, "tokens": 0, "shards": []}
    ),
    "twenty thousand shards": _manifest(
        lambda content: content["splits"]["train"].update(
            shards=content["splits"]["train"]["shards"] * 20_000
        )
    ),
    "a shard twice": _manifest(
        lambda content: content["splits"]["train"].update(
            shards=content["splits"]["train"]["shards"] * 2
        )
    ),
    "a shard above": _secret("../{split}/00000.arrow"),
    "a shard elsewhere": _secret("{corpus}/../{split}/00000.arrow"),
    "a shard around": _secret("{split}/../../{split}/00000.arrow"),
    "a shard behind a link": _linked,
    "the labels as a shard": _shard_file(path="labels.arrow"),
    "a shard without a name": _shard_file(path=""),
    "a shard of a zero byte": _shard_file(path="a\0b"),
    "a shard of half a character": _shard_file(path="\ud83d"),
    "bytes of -1": _shard_file(bytes=-1),
    "checksums of nothing": _shard_file(sha256=""),
    "checksums of a list": _shard_file(sha256=[]),
    **{
        f"max_length of {value!r}": _set("max_length", value=value)
        for value in (0, -1, 2**40, "32", None)
    },
    **{
        f"vocab_size of {value!r}": _set("tokenizer", "vocab_size", value=value)
        for value in (0, 1, -1, 2**40, "200")
    },
    "a tokenizer of another name": _set("tokenizer", "name", value="../../x"),
    "another task": _set("task", value="single_label"),
    "no task": _set("task", value="../x"),
    "another fingerprint": _set("fingerprint", value="0" * 32),
    "a fingerprint of a list": _set("fingerprint", value=[]),
    "another format": _set("format", value=2**70),
    "counts of text": _set("counts", value={"read": "many"}),
    "counts below 0": _set("counts", "read", value=-5),
    "languages below 0": _set("languages", value={"en": -1}),
    "languages of a list": _set("languages", value=[[]]),
    "labels elsewhere": _set("labels", "path", value="/etc/passwd"),
    "words elsewhere": _set("words", value=[]),
}


def _labels(edit: Callable[[pa.Table], pa.Table]) -> Change:
    def change(corpus: Path) -> None:
        path = corpus / "labels.arrow"
        _write(path, edit(pa.ipc.open_file(path.read_bytes()).read_all()))
        sign_corpus(corpus)

    return change


def _label_column(
    name: str, values: Callable[[Column], Column], kind: Any = None
) -> Change:
    def edit(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index(name)
        found = values(table[name].to_pylist())
        return table.set_column(
            position, name, pa.array(found, kind or table.schema.field(name).type)
        )

    return _labels(edit)


def _words_file(edit: Callable[[dict[str, Any]], object]) -> Change:
    def change(corpus: Path) -> None:
        path = corpus / "words.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))
        sign_corpus(corpus)

    return change


def _words_arrays(edit: Callable[[np.ndarray], np.ndarray]) -> Change:
    def change(corpus: Path) -> None:
        path = corpus / "words.safetensors"
        arrays = {name: edit(array) for name, array in load_file(path).items()}
        save_file(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()}, path
        )
        sign_corpus(corpus)

    return change


FILES: dict[str, Change] = {
    "fewer labels than are used": _labels(lambda table: table.slice(0, 1)),
    "no labels": _labels(lambda table: table.slice(0, 0)),
    "a label twice": _label_column("label", lambda rows: [rows[0], *rows[:-1]]),
    "a label of nothing": _label_column("label", lambda rows: ["", *rows[1:]]),
    "labels in another order": _label_column("label", lambda rows: rows[::-1]),
    "an empty label": _label_column("label", lambda rows: [None, *rows[1:]]),
    "an empty name": _label_column("name", lambda rows: [None, *rows[1:]]),
    "counts below 0": _label_column("train_count", lambda rows: [-1] * len(rows)),
    "counts of 0": _label_column("train_count", lambda rows: [0] * len(rows)),
    "counts of 2**62": _label_column("train_count", lambda rows: [2**62] * len(rows)),
    "counts as text": _label_column(
        "train_count", lambda rows: ["1"] * len(rows), pa.string()
    ),
    "words of a number": _words_file(lambda content: content.update(terms=[1])),
    "no words": _words_file(lambda content: content.update(terms=[])),
    "fewer words": _words_file(lambda content: content["terms"].pop()),
    "words twice": _words_file(
        lambda content: content.update(
            terms=content["terms"][:1] * len(content["terms"])
        )
    ),
    "fields of a path": _words_file(lambda content: content.update(fields=["../x"])),
    "more fields": _words_file(lambda content: content.update(fields=["text", "text"])),
    "a key more": _words_file(lambda content: content.update(x=1)),
    "counts of words below 0": _words_arrays(lambda array: -np.abs(array) - 1),
    "counts of words of 0": _words_arrays(lambda array: array * 0),
    "counts of words twice": _words_arrays(
        lambda array: np.concatenate([array, array])
    ),
    "counts of words as fractions": _words_arrays(
        lambda array: array.astype(np.float64)
    ),
}


def _meta(edit: Callable[[dict[str, Any]], object], split: str = "train") -> Change:
    def change(cache: Path) -> None:
        path = cache / split / "meta.json"
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return change


def _numbers_of(value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        for key, old in content.items():
            if isinstance(old, int | float):
                content[key] = value

    return edit


def _binary(name: str, edit: Callable[[bytes], bytes]) -> Change:
    def change(cache: Path) -> None:
        path = cache / "train" / name
        path.write_bytes(edit(path.read_bytes()))

    return change


def _hole(cache: Path) -> None:
    os.truncate(cache / "train" / "hidden.bin", 1 << 40)


def _replaced(name: str, make: Callable[[Path], object]) -> Change:
    def change(cache: Path) -> None:
        path = cache / "train" / name
        path.unlink()
        make(path)

    return change


STATES: dict[str, Change] = {
    "states that are not numbers": _binary(
        "hidden.bin", lambda content: b"\xff\xff" * (len(content) // 2)
    ),
    "states that are infinite": _binary(
        "hidden.bin", lambda content: struct.pack("<H", 0x7F80) * (len(content) // 2)
    ),
    "half of the states": _binary(
        "hidden.bin", lambda content: content[: len(content) // 2]
    ),
    "no states": _binary("hidden.bin", lambda content: b""),
    "a terabyte of states": _hole,
    "more marks": _binary("written.bin", lambda content: content * 9),
    "odd marks": _binary("written.bin", lambda content: b"\xff" * len(content)),
    "no marks": _binary("written.bin", lambda content: b""),
    "numbers below 0": _meta(_numbers_of(-1)),
    "numbers of 2**62": _meta(_numbers_of(2**62)),
    "numbers of 0": _meta(_numbers_of(0)),
    "no keys": _meta(lambda content: content.clear()),
    "keys of text": _meta(lambda content: content.update(dict.fromkeys(content, "x"))),
    "a pipe for states": _replaced("hidden.bin", os.mkfifo),
    "a folder for states": _replaced("hidden.bin", os.mkdir),
    "a link out for states": _replaced(
        "hidden.bin", lambda path: path.symlink_to("/dev/zero")
    ),
    "a pipe for what they are": _replaced("meta.json", os.mkfifo),
}
"""Changes of the states that a frozen encoder computed, of which the first is a folder."""
