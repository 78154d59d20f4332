"""Files that are no documents: labels, label lists, grids of sweeps, predictions of other systems."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bad_input_cases.case import Case, Site, command
from bad_input_cases.damage import DEEP

NEW_LABELS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"steel and law\n",
    "a list": b'["new"]\n',
    "deep": b'{"label": ' + DEEP + b"\n",
    "no label": b'{"name": "steel"}\n',
    "no name": b'{"label": "new"}\n',
    "label is null": b'{"label": null, "name": "steel"}\n',
    "label is a number": b'{"label": 3, "name": "steel"}\n',
    "label is blank": b'{"label": " ", "name": "steel"}\n',
    "name is a list": b'{"label": "new", "name": ["steel"]}\n',
    "known": b'{"label": "law", "name": "law"}\n',
    "twice": b'{"label": "new", "name": "a"}\n{"label": "new", "name": "b"}\n',
    "half a character": b'{"label": "a\\ud83d", "name": "steel"}\n',
    "not UTF-8": b'{"label": "caf\xe9", "name": "steel"}\n',
    "key twice": b'{"label": "new", "label": "other", "name": "steel"}\n',
    "unknown key": b'{"label": "new", "name": "steel", "weight": 3}\n',
    "NUL": b"\x00" * 100,
}
LABEL_LISTS: dict[str, bytes] = {
    "empty": b"",
    "unknown": b"nonsense\n",
    "blank lines": b"\n \n",
    "not UTF-8": b"caf\xe9\n",
    "NUL": b"\x00\n",
    "one line": b"law," * 9_999,
}
GRIDS: dict[str, bytes] = {
    "empty": b"",
    "a list": b"- 1\n",
    "unknown key": b"gird: {seed: [1]}\n",
    "no values": b"grid: {seed: []}\n",
    "not a list": b"grid: {seed: 1}\n",
    "unknown setting": b"grid: {sede: [1, 2]}\n",
    "bad value": b"grid: {finetune.batch_size: [-1, many]}\n",
    "tag": b"grid: !!python/name:os.system\n",
    "itself": b"grid: &a {seed: *a}\n",
    "too many": b"grid: {seed: [" + b"1, " * 9_999 + b"1]}\n",
    "not UTF-8": b"grid: caf\xe9\n",
    "deep": b"grid: " + b"[" * 3000,
}
ONE: dict[str, Any] = {"doc_id": ["a"], "labels": [["law"]], "scores": [[0.5]]}
PREDICTIONS: dict[str, dict[str, Any]] = {
    "no columns": {},
    "no rows": {
        "doc_id": pa.array([], pa.string()),
        "labels": pa.array([], pa.list_(pa.string())),
        "scores": [],
    },
    "unknown document": ONE,
    "numbers as ids": ONE | {"doc_id": [1]},
    "null id": ONE | {"doc_id": pa.array([None], pa.string())},
    "one label per row": ONE | {"labels": ["law"]},
    "one score a row": ONE | {"scores": [0.5]},
    "more scores than labels": ONE | {"scores": [[0.5, 0.4]]},
    "NaN": ONE | {"scores": [[float("nan")]]},
    "infinite": ONE | {"scores": [[float("inf")]]},
    "text scores": ONE | {"scores": [["high"]]},
    "null labels": ONE | {"labels": pa.array([None], pa.list_(pa.string()))},
    "unknown label": ONE | {"labels": [["nonsense"]]},
    "a document twice": {name: value * 2 for name, value in ONE.items()},
    "a label twice": ONE | {"labels": [["law", "law"]], "scores": [[0.5, 0.4]]},
}


def table_cases(site: Site) -> Iterator[Case]:
    """Files of labels at each command that reads some, grids at `sweep`, predictions at `evaluate`."""
    with_file: dict[tuple[str, str], Callable[[Path, Path], tuple[object, ...]]] = {
        ("new labels", "labels add"): lambda file, out: (
            "labels",
            "add",
            site.model,
            file,
            "-o",
            out,
        ),
        ("label list", "labels remove"): lambda file, out: (
            "labels",
            "remove",
            site.model,
            f"@{file}",
            "-o",
            out,
        ),
        ("label list", "predict"): lambda file, out: (
            "predict",
            site.model,
            "-t",
            "law",
            "--include",
            f"@{file}",
        ),
        ("grid", "sweep"): lambda file, out: ("sweep", site.config, file),
    }
    contents = {"new labels": NEW_LABELS, "label list": LABEL_LISTS, "grid": GRIDS}
    for (kind, entry), words in with_file.items():
        for name, content in contents[kind].items():
            write = partial(Path.write_bytes, data=content)
            yield Case(
                kind,
                entry,
                name,
                partial(_with_file, write, words),
                name != "unknown key",
            )
    for (name, columns), split in itertools.product(
        PREDICTIONS.items(), ("dev", "nonsense")
    ):
        write = partial(_write_table, columns)
        words = partial(_evaluate, site, split)
        yield Case(
            "predictions",
            "evaluate",
            f"{name}, {split}",
            partial(_with_file, write, words),
        )


def _write_table(columns: dict[str, Any], path: Path) -> None:
    pq.write_table(pa.table(columns), path)


def _evaluate(site: Site, split: str, file: Path, out: Path) -> tuple[object, ...]:
    return (
        "evaluate",
        "--predictions",
        file,
        "--gold",
        site.corpus,
        "--split",
        split,
        "--output",
        out,
    )


def _with_file(
    write: Callable[[Path], object],
    words: Callable[[Path, Path], tuple[object, ...]],
    folder: Path,
) -> tuple[int, str]:
    write(folder / "bad")
    return command(*words(folder / "bad", folder / "out"))
