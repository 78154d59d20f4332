"""Give every entry point every kind of bad input, and count what comes of it.

    python tools/bad_inputs.py [--every N] [--seed S] [--only CLASS]

A tiny model is trained first. Then each case runs in this process, under an alarm. A case ends in one of these ways:

    answered    a message without a traceback, and another exit status than 0
    accepted    exit status 0, where the input can be read after all, or where a warning says what was left out
    silent      exit status 0 without a word, where the case must be refused
    traceback   an exception that is no XmtcError
    hung        no answer within 30 seconds

The exit status is 1 if a case is silent, ends in a traceback or hangs.
"""

import argparse
import contextlib
import gzip
import io
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from xmtc.cli import main as command_line
from xmtc.errors import XmtcError
from xmtc.score.predictor import Model

LIMIT_S = 30
OUTCOMES = ("answered", "accepted", "silent", "traceback", "hung")
WORDS = ["law", "fish", "heart", "trade", "school", "steel"]


@dataclass(frozen=True)
class Site:
    """What cases are made from: a finished run, its configuration and corpus, and a folder for bad things."""

    run: Path
    config: Path
    corpus: Path
    folder: Path

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.run / "model"


@dataclass(frozen=True)
class Case:
    """One bad input at one entry point.

    Attributes:
        kind: class of the input.
        entry: the command or method.
        name: what is special about it.
        do: prepares it in a folder and runs it; returns the exit status and what was said.
        refuse: False where the input may be read after all.
    """

    kind: str
    entry: str
    name: str
    do: Callable[[Path], tuple[int, str]]
    refuse: bool = True


class _Hung(BaseException):
    pass


@dataclass
class _Watched(contextlib.AbstractContextManager["_Watched"]):
    """Notes what ends the work within, under an alarm, and lets the tool continue."""

    error: BaseException | None = None

    def __enter__(self) -> "_Watched":
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.alarm(LIMIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self._before)
        self.error = error
        return not isinstance(error, KeyboardInterrupt)

    def _ring(self, *_: Any) -> None:
        raise _Hung


def run_case(case: Case, folder: Path) -> tuple[str, str]:
    """How a case ends, and what was said."""
    folder.mkdir(parents=True)
    code, said = 0, ""
    with _Watched() as watched:
        code, said = case.do(folder)
    error = watched.error
    if isinstance(error, XmtcError):
        return "answered", str(error)
    if error is not None:
        lines = traceback.format_exception(error)
        return ("hung" if isinstance(error, _Hung) else "traceback"), "".join(lines)
    if code:
        return ("answered" if said.strip() and "Traceback" not in said else "silent"), said
    return ("accepted" if not case.refuse or "warning" in said else "silent"), said


def command(*arguments: object) -> tuple[int, str]:
    """Run a command in this process: exit status and what it said on stderr."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["xmtc", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line()
    except SystemExit as end:
        return (end.code if isinstance(end.code, int) else int(end.code is not None)), err.getvalue()
    finally:
        sys.argv = before
    return 0, err.getvalue()


# --- what is wrong with a file, whatever it holds

DEEP = b"[" * 20_000


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:  # an empty file has nothing to flip
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": _flipped,
    "zeros": lambda path: path.write_bytes(bytes(512)),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\xfa" * 40),
    "deep lists": lambda path: path.write_bytes(DEEP),
    "null": lambda path: path.write_bytes(b"null"),
    "a list": lambda path: path.write_bytes(b"[1, 2]"),
    "another object": lambda path: path.write_bytes(b'{"a": {"b": [1]}}'),
    "many digits": lambda path: path.write_bytes(b'{"format": ' + b"9" * 5000 + b"}"),
    "a folder": _as_folder,
    "a pipe": _as_pipe,
    "a loop of links": _as_loop,
}

# --- documents

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
    "no rows": {"text": pa.array([], pa.string()), "labels": pa.array([], pa.list_(pa.string()))},
    "no columns": {},
}


def bad_documents() -> Iterator[tuple[str, str, Callable[[Path], object]]]:
    """Name, file name, and what writes it."""
    for ending, files in ((".jsonl", LINES), (".csv", CSVS)):
        for name, content in files.items():
            yield name, f"bad{ending}", partial(Path.write_bytes, data=content)
            yield f"{name}, gzip", f"bad{ending}.gz", partial(Path.write_bytes, data=gzip.compress(content))
    for name, columns in TABLES.items():
        yield name, "bad.parquet", partial(pq.write_table, pa.table(columns))
    yield "not Parquet", "bad.parquet", partial(Path.write_bytes, data=b"PAR1 nothing PAR1")
    yield "cut gzip", "bad.jsonl.gz", lambda path: path.write_bytes(gzip.compress(json.dumps(ROW).encode())[:-12])
    yield "no gzip", "bad.jsonl.gz", lambda path: path.write_bytes(json.dumps(ROW).encode())
    yield "no zstd", "bad.csv.zst", lambda path: path.write_bytes(b"text\na\n")
    yield "a folder", "bad.jsonl", lambda path: path.mkdir()
    yield "a pipe", "bad.jsonl", lambda path: os.mkfifo(path)
    yield "a device", "bad.jsonl", lambda path: path.symlink_to("/dev/zero")
    yield "a loop of links", "bad.jsonl", lambda path: path.symlink_to(path.name)
    yield "missing", "bad.jsonl", lambda path: None
    yield "a name that is not UTF-8", os.fsdecode(b"b\xffd.jsonl"), lambda path: path.write_bytes(LINES["no JSON"])
    yield "a long name", "b" * 300 + ".jsonl", lambda path: None
    yield "an unknown ending", "bad.xlsx", lambda path: path.write_bytes(b"PK\x03\x04\xff")


KINDS = {".csv": "csv", ".parquet": "parquet"}
READS_ROWS = {"control characters only", "control characters only, gzip"}
"""Documents that are rows; whether they have tokens is for the tokenizer."""


def document_cases(site: Site) -> Iterator[Case]:
    """Files of documents, at every command that reads some."""
    for name, file_name, write in bad_documents():
        for entry in ("predict", "score", "explain", "prepare"):
            call = partial(_read_documents, site, file_name, write, entry)
            yield Case("documents", entry, f"{file_name[-12:]!a}: {name}", call, name not in READS_ROWS)


def _read_documents(
    site: Site, file_name: str, write: Callable[[Path], object], entry: str, folder: Path
) -> tuple[int, str]:
    file = folder / file_name
    write(file)
    kind = next((kind for ending, kind in KINDS.items() if ending in file_name), "jsonl")
    source = json.dumps({"kind": kind, "files": {"train": str(file)}}, ensure_ascii=False)
    arguments: dict[str, tuple[object, ...]] = {
        "predict": ("predict", site.model, "--input", file),
        "score": ("score", site.model, file, "-o", folder / "out"),
        "explain": ("explain", site.model, "--input", file, "--doc-id", "x"),
        "prepare": ("prepare", site.config, f"data.source={source}", f"data.corpus={folder / 'corpus'}"),
    }
    return command(*arguments[entry])


# --- directories of which one file is damaged


def directory_cases(site: Site) -> Iterator[Case]:
    """Each file of a model, a run, a corpus and a folder of scores, damaged in every way."""
    commands: dict[str, tuple[Path, dict[str, Callable[[Path, Path], tuple[object, ...]]]]] = {
        "model": (site.model, MODEL_COMMANDS),
        "run": (site.run, RUN_COMMANDS),
        "scores": (site.folder / "scores", {"score again": partial(_score_again, site)}),
        "corpus": (site.corpus, {"evaluate": partial(_evaluate_with, site)}),
    }
    for kind, (whole, entries) in commands.items():
        files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
        chosen = [file for file in files if kind != "run" or file.parts[0] in ("run.json", "config.yaml", "eval")]
        for file, (damage, break_it), (entry, words) in itertools.product(chosen, DAMAGES.items(), entries.items()):
            call = partial(_damaged, whole, file, break_it, words)
            yield Case(f"{kind} directory", entry, f"{file}: {damage}", call, refuse=False)


def _damaged(
    whole: Path,
    file: Path,
    break_it: Callable[[Path], object],
    words: Callable[[Path, Path], tuple[object, ...]],
    folder: Path,
) -> tuple[int, str]:
    copy = shutil.copytree(whole, folder / "copy")
    break_it(copy / file)
    return command(*words(copy, folder))


MODEL_COMMANDS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "predict": lambda copy, folder: ("predict", copy, "-t", "lawery"),
    "score": lambda copy, folder: ("score", copy, folder.parent.parent / "one.jsonl", "-o", folder / "out"),
}
RUN_COMMANDS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "report": lambda copy, folder: ("report", copy, "-o", folder / "report.html"),
    "status": lambda copy, folder: ("status", copy),
    "evaluate": lambda copy, folder: ("evaluate", copy),
}


def _score_again(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    return ("score", site.model, site.folder / "one.jsonl", "-o", copy)


def _evaluate_with(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    predictions = site.run / "eval" / "dev" / "predictions.parquet"
    return ("evaluate", "--predictions", predictions, "--gold", copy, "--output", folder / "out")


# --- configurations

VALUES = [
    "null",
    "[]",
    "{}",
    "''",
    "-1",
    "0",
    "1e999",
    ".nan",
    "true",
    "[[[[1]]]]",
    "{kind: nonsense}",
    "'\\ud83d'",
    "x" * 9999,
]
YAMLS = {
    "empty": b"",
    "a list": b"- 1\n- 2\n",
    "a word": b"law\n",
    "tabs": b"name:\n\t- x\n",
    "open bracket": b"name: [x\n",
    "tag": b"name: !!python/object/apply:os.system [ls]\n",
    "twice": b"name: a\nname: b\n",
    "not UTF-8": b"name: caf\xe9\n",
    "NUL": b"name: \x00\n",
    "itself": b"a: &a [*a]\n",
    "aliases": b"a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
    b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n",
    "deep": b"name: " + b"[" * 3000,
    "base is itself": b"base: bad.yaml\n",
    "base is a folder": b"base: .\n",
    "two documents": b"name: a\n---\nname: b\n",
    "a key that is a list": b"[a, b]: c\n",
}


def configuration_cases(site: Site) -> Iterator[Case]:
    """Malformed files, and every key of the configuration with values that it cannot have."""
    for name, content in YAMLS.items():
        yield Case("configuration", "prepare", name, partial(_prepare_with, content))
    for damage in ("a folder", "a pipe", "a loop of links", "missing", "zeros"):
        yield Case("configuration", "prepare", damage, partial(_prepare_damaged, site, DAMAGES[damage]))
    plain = yaml.safe_load(site.config.read_text(encoding="utf-8"))
    for key, value in itertools.product(_keys(plain), VALUES):
        words = ("train", site.config, f"{key}={value}", "--print-config")
        yield Case("configuration", "train", f"{key}={value[:20]}", partial(_plainly, words), refuse=False)


def _keys(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")


def _prepare_with(content: bytes, folder: Path) -> tuple[int, str]:
    (folder / "bad.yaml").write_bytes(content)
    return command("prepare", folder / "bad.yaml")


def _prepare_damaged(site: Site, break_it: Callable[[Path], object], folder: Path) -> tuple[int, str]:
    copy = Path(shutil.copy(site.config, folder / "bad.yaml"))
    break_it(copy)
    return command("prepare", copy)


def _plainly(words: tuple[object, ...], folder: Path) -> tuple[int, str]:
    del folder
    return command(*words)


# --- outputs

PLACES: dict[str, Callable[[Path], object]] = {
    "a table of the user": lambda path: path.write_text("a,b\n"),
    "a folder with files": lambda path: (path.mkdir(), (path / "mine.txt").write_text("mine")),
    "a pipe": os.mkfifo,
    "a full device": lambda path: path.symlink_to("/dev/full"),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "under a file": lambda path: path.parent.rmdir() or path.parent.write_text("mine"),
}
NAMES = {
    "plain": "out.html",
    "no page": "out.csv",
    "not UTF-8": os.fsdecode(b"o\xff.html"),
    "long": "o" * 300 + ".html",
}


def output_cases(site: Site) -> Iterator[Case]:
    """Places where nothing can or may be written, at every command that writes."""
    commands: dict[str, tuple[object, ...]] = {
        "report": ("report", site.run, "-o"),
        "explain": ("explain", site.model, "-t", "lawery", "-o"),
        "score": ("score", site.model, site.folder / "one.jsonl", "-o"),
        "labels add": ("labels", "add", site.model, site.folder / "labels.jsonl", "-o"),
        "evaluate": (*_evaluate_with(site, site.corpus, site.folder)[:-1],),
    }
    for (entry, words), (place, make) in itertools.product(commands.items(), PLACES.items()):
        yield Case("outputs", entry, place, partial(_write_to, words, make, "out.html"))
    for (entry, words), (what, name) in itertools.product(commands.items(), NAMES.items()):
        page = entry in ("report", "explain")
        refuse = what in ("long", "not UTF-8") or (what == "no page" and page)
        yield Case("outputs", entry, f"name: {what}", partial(_write_to, words, None, name), refuse)


def _write_to(
    words: tuple[object, ...], make: Callable[[Path], object] | None, name: str, folder: Path
) -> tuple[int, str]:
    (folder / "place").mkdir()
    if make is not None:
        make(folder / "place" / name)
    return command(*words, folder / "place" / name)


# --- Python

TEXTS: dict[str, Callable[[], Any]] = {
    "a text": lambda: "law",
    "bytes": lambda: b"law",
    "None": lambda: None,
    "a number": lambda: 3,
    "a mapping": lambda: {"text": ["law"]},
    "a frame": lambda: pd.DataFrame({"text": ["law"]}),
    "a table": lambda: pa.table({"text": ["law"]}),
    "a set": lambda: {"law", "fish"},
    "an array of numbers": lambda: np.arange(3),
    "a matrix": lambda: np.array([["law"]]),
    "a scalar": lambda: np.array("law"),
    "a list with None": lambda: ["law", None],
    "a list with bytes": lambda: ["law", b"law"],
    "a list of lists": lambda: [["law"]],
    "a list with NaN": lambda: ["law", float("nan")],
    "a Series with NaN": lambda: pd.Series(["law", None]),
    "an Arrow array with null": lambda: pa.array(["law", None]),
    "half a character": lambda: ["law\ud83d"],
    "a blank text": lambda: ["law", " \n"],
    "a type": lambda: str,
    "a generator of numbers": lambda: (i for i in range(3)),
}
SETTINGS: list[dict[str, Any]] = [
    {name: value}
    for name, values in {
        "top_k": (-1, 0, 1.5, "5", True, [1], float("nan")),
        "threshold": ("foo", -1, 2, float("nan"), [0.5], True),
        "shortlist": (0, -1, "all", 1.5),
        "least": (-1, "1", None),
        "tokens_per_batch": (0, -5, "many", None),
    }.items()
    for value in values
]


def python_cases(site: Site) -> Iterator[Case]:
    """Values of every type at the methods of a model."""
    model = Model.from_pretrained(site.model, device="cpu")
    calls: dict[str, Callable[[Any], Any]] = {
        "predict": model.predict,
        "predict with evidence": partial(model.predict, evidence=True),
        "explain": lambda value: model.explain(value, ["law"]),
        "labels of explain": lambda value: model.explain("lawery", value),
    }
    fine = {("explain", "a text"), ("labels of explain", "a text")}
    for (entry, call), (name, make) in itertools.product(calls.items(), TEXTS.items()):
        yield Case("Python", entry, name, partial(_call, call, make), (entry, name) not in fine)
    for settings in SETTINGS:
        call = partial(model.predict, **settings)
        yield Case("Python", "predict", f"{settings}", partial(_call, call, lambda: ["law"]))
    for where in ("", ".", "nowhere", "/dev/null", os.fsdecode(b"m\xff")):
        yield Case("Python", "from_pretrained", where, partial(_call, Model.from_pretrained, partial(str, where)))


def _call(call: Callable[[Any], Any], make: Callable[[], Any], folder: Path) -> tuple[int, str]:
    del folder
    call(make())
    return 0, ""


# --- all together


def make_site(folder: Path) -> Site:
    """Train a tiny model, and keep one scored file."""
    rows = [{"text": f"{word}ery of {word}ing {i}", "labels": [word]} for i in range(12) for word in WORDS]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "name": "tiny",
        "data": {
            "source": {"kind": "jsonl", "files": {"train": str(folder / "train.jsonl")}},
            "corpus": str(folder / "corpus"),
            "tokenizer": {"kind": "trained", "vocab_size": 200},
            "max_length": 32,
        },
        "model": {
            "encoder": {"kind": "multilevel", "embedding": {"width": 16}, "width": 16, "window": 24},
            "overlap": 4,
            "head": {"kind": "flat", "pooling": {"kind": "mean"}},
        },
        "plant": {"enabled": False},
        "finetune": {"batch_size": 16, "phases": [{"epochs": 1}]},
        "evaluate": {"resamples": 10},
        "distributed": {"workers": 0, "threads": 1},
        "track": {"directory": str(folder / "runs")},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    code, said = command("train", folder / "tiny.yaml")
    if code:
        sys.exit(f"the tiny run failed: {said}")
    return add_extras(Site(folder / "runs" / "tiny", folder / "tiny.yaml", folder / "corpus", folder))


def add_extras(site: Site) -> Site:
    """A file of documents, one of labels, and a scored folder, in the folder of a site."""
    (site.folder / "one.jsonl").write_text(json.dumps({"text": "lawery and fishing"}) + "\n")
    (site.folder / "labels.jsonl").write_text(json.dumps({"label": "new", "name": "steel and law"}) + "\n")
    code, said = command("score", site.model, site.folder / "one.jsonl", "-o", site.folder / "scores")
    if code:
        sys.exit(f"scoring failed: {said}")
    return site


def all_cases(site: Site) -> list[Case]:
    """Every class at every entry point."""
    made = (document_cases, directory_cases, configuration_cases, output_cases, python_cases)
    return [case for cases in made for case in cases(site)]


def table_of(found: list[tuple[Case, str]]) -> str:
    """Counts by class and entry point, as Markdown."""
    groups = dict.fromkeys((case.kind, case.entry) for case, _ in found)
    lines = ["| class | entry point | tried | " + " | ".join(OUTCOMES) + " |", "|---" * (3 + len(OUTCOMES)) + "|"]
    for group in [*groups, None]:
        ends = Counter(end for case, end in found if group in (None, (case.kind, case.entry)))
        counts = " | ".join(str(ends[end]) for end in OUTCOMES)
        lines.append(f"| {' | '.join(group) if group else 'all | '} | {ends.total()} | {counts} |")
    return "\n".join(lines)


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="run one case in so many")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--only", default="", help="run the classes whose names begin so")
    given = parser.parse_args()
    os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # no pool of processes for a handful of documents
    found: list[tuple[Case, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = make_site(folder)
        cases = [case for case in all_cases(site) if case.kind.startswith(given.only)]
        random.Random(given.seed).shuffle(cases)
        for number, case in enumerate(cases[:: given.every]):
            end, said = run_case(case, folder / "cases" / str(number))
            found.append((case, end))
            if end not in ("answered", "accepted"):
                print(
                    f"{end}: {case.kind}, {case.entry}, {case.name}\n    {said[-900:]!a}", file=sys.stderr, flush=True
                )
            shutil.rmtree(folder / "cases" / str(number), ignore_errors=True)
    print(table_of(sorted(found, key=lambda pair: (pair[0].kind, pair[0].entry))))
    sys.exit(any(end not in ("answered", "accepted") for _, end in found))


if __name__ == "__main__":
    main()
