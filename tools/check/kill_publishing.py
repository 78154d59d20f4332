"""Kill commands at the system calls by which they publish, and look whether what is there is old or new, and whole.

    PYTHONPATH=tests/support python tools/check/kill_publishing.py [--kills N] [--seed S] [--only COMMAND]
        [--record FILE]

A small library, compiled with gcc and loaded before all others, counts the calls of the C library that rename, link,
create or remove folders, unlink, sync, connect and send. Each command runs in a fork of this process, first without a
kill to count its calls, then with SIGKILL before one of them, for N calls in all. The calls are spread over the whole
of each command: they are divided into as many equal parts as it is killed, and one of each part is chosen by chance.

    rename     `xmtc labels rename` over an earlier model
    train      `xmtc train` over the model of an earlier run: checkpoints, corpus, index and export
    init_from  `xmtc train` that continues from a model
    prepare    `xmtc prepare` over an earlier corpus
    decide     `xmtc decide`, which changes one file of a model
    push       `xmtc push` over an earlier model, to a server with the parts of the Hub's interface that it needs

After each kill, the model is the old one or the new one and answers as its smoke.json says, the corpus is the old one
or the new one and every file has its checksum, and the same command run again succeeds and leaves no temporary files
behind. The exit status is 1 if a check fails.
"""

import argparse
import contextlib
import ctypes
import gc
import io
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bad_input_cases.case import command as run_command
from bad_input_cases.case import import_all
from hub_server import Hub

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long calls = 0, last = -1;
void kill_before(long number) { calls = 0; last = number; }
long calls_made(void) { return calls; }
static void count(void) {
    long number = __sync_fetch_and_add(&calls, 1);
    if (last >= 0 && number == last) kill(getpid(), SIGKILL);
}
#define NEXT(name) static __typeof__(name) *next = 0; if (!next) next = dlsym(RTLD_NEXT, #name); count();
int rename(const char *a, const char *b) { NEXT(rename) return next(a, b); }
int renameat(int a, const char *b, int c, const char *d) { NEXT(renameat) return next(a, b, c, d); }
int renameat2(int a, const char *b, int c, const char *d, unsigned e) { NEXT(renameat2) return next(a, b, c, d, e); }
int link(const char *a, const char *b) { NEXT(link) return next(a, b); }
int linkat(int a, const char *b, int c, const char *d, int e) { NEXT(linkat) return next(a, b, c, d, e); }
int symlink(const char *a, const char *b) { NEXT(symlink) return next(a, b); }
int symlinkat(const char *a, int b, const char *c) { NEXT(symlinkat) return next(a, b, c); }
int unlink(const char *a) { NEXT(unlink) return next(a); }
int unlinkat(int a, const char *b, int c) { NEXT(unlinkat) return next(a, b, c); }
int mkdir(const char *a, mode_t b) { NEXT(mkdir) return next(a, b); }
int rmdir(const char *a) { NEXT(rmdir) return next(a); }
int fsync(int a) { NEXT(fsync) return next(a); }
int fdatasync(int a) { NEXT(fdatasync) return next(a); }
int connect(int a, const struct sockaddr *b, socklen_t c) { NEXT(connect) return next(a, b, c); }
ssize_t send(int a, const void *b, size_t c, int d) { NEXT(send) return next(a, b, c, d); }
"""
LIBRARY = "KILL_PUBLISHING_LIBRARY"
LIMIT_S = 600


@dataclass(frozen=True)
class Command:
    """A command, its place, and what must hold after a kill.

    Attributes:
        name: see the module.
        run: runs it in a folder.
        check: raises AssertionError, or an error of xmtc, unless what is there is whole.
    """

    name: str
    run: Callable[[Path], None]
    check: Callable[[Path], None]


def compiled(folder: Path) -> Path:
    source = folder / "count.c"
    source.write_text(SOURCE)
    library = folder / "count.so"
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-w", "-o", library, source, "-ldl"],
        check=True,
    )
    return library


def xmtc(*arguments: object) -> None:
    code, said = run_command(*arguments)
    if code:
        raise RuntimeError(said)


def write_config(
    folder: Path, name: str, *, words: list[str], max_length: int = 32, **model: object
) -> Path:
    import yaml

    rows = [
        {"text": f"{word}ery of {word}ing {i}", "labels": [word]}
        for i in range(10)
        for word in words
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "name": "run",
        "data": {
            "source": {
                "kind": "jsonl",
                "files": {"train": str(folder / "train.jsonl")},
            },
            "corpus": str(folder / "corpus"),
            "tokenizer": {"kind": "trained", "vocab_size": 150},
            "max_length": max_length,
        },
        "model": {
            "encoder": {
                "kind": "multilevel",
                "embedding": {"width": 8},
                "width": 8,
                "window": 24,
            },
            "overlap": 4,
            "head": {"kind": "flat", "pooling": {"kind": "mean"}},
            "scorers": [{"kind": "linear"}],
            **model,
        },
        "plant": {"parts": []},
        "finetune": {"batch_size": 16, "phases": [{"epochs": 1}]},
        "evaluate": {"resamples": 0},
        "distributed": {"workers": 0, "threads": 1},
        "track": {"directory": str(folder / "runs")},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


WORDS = ["law", "fish", "heart", "trade", "school", "steel"]


def check_model(model: Path, *, versions: tuple[set[str], ...]) -> None:
    """The model is one of these by its labels, and answers as its smoke.json says."""
    from xmtc.predict.predictor import Model
    from xmtc.predict.smoke import check_answers

    assert (model / "smoke.json").is_file(), f"{model.name}: without smoke.json"
    loaded = Model.from_pretrained(model, device="cpu")
    assert set(loaded.labels.labels) in versions, (
        f"{model.name}: labels of neither model"
    )
    check_answers(loaded, model)


def check_corpus(folder: Path) -> None:
    from xmtc.data.corpus import Corpus
    from xmtc.files import file_sha256

    corpus = Corpus.open(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    files = 0

    def walk(node: object) -> None:
        nonlocal files
        if isinstance(node, dict):
            if "sha256" in node and "path" in node:
                assert file_sha256(folder / node["path"]) == node["sha256"], node[
                    "path"
                ]
                files += 1
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(manifest)
    assert files >= 3, "no files in the manifest"
    assert len(corpus.labels) in (6, 7), len(corpus.labels)


def rename(folder: Path) -> None:
    pairs = [f"{word}={word}s" for word in WORDS]
    xmtc("labels", "rename", folder / "model", *pairs, "--output", folder / "renamed")


def check_rename(folder: Path) -> None:
    old = {f"{word}x" for word in WORDS}
    check_model(folder / "renamed", versions=(old, {f"{word}s" for word in WORDS}))
    check_model(folder / "model", versions=(set(WORDS),))


def train(folder: Path) -> None:
    path = write_config(folder, "new", words=[*WORDS, "more"])
    xmtc("train", path, "--overwrite")


def check_train(folder: Path) -> None:
    model = folder / "runs" / "run" / "model"
    if model.exists():  # a run that is replaced begins without one
        check_model(model, versions=(set(WORDS), {*WORDS, "more"}))
    check_corpus(folder / "corpus")


def init_from(folder: Path) -> None:
    path = write_config(folder, "next", words=WORDS, init_from=str(folder / "model"))
    xmtc("train", path, "name=next")


def check_init_from(folder: Path) -> None:
    check_model(folder / "model", versions=(set(WORDS),))
    model = folder / "runs" / "next" / "model"
    if model.exists():
        check_model(model, versions=(set(WORDS),))
    check_corpus(folder / "corpus")


def prepare(folder: Path) -> None:
    xmtc("prepare", write_config(folder, "new", words=[*WORDS, "more"], max_length=20))


def check_prepare(folder: Path) -> None:
    check_corpus(folder / "corpus")


def decide(folder: Path) -> None:
    xmtc("decide", folder / "model", "--rule", "macro")


def check_decide(folder: Path) -> None:
    check_model(folder / "model", versions=(set(WORDS),))


REPOSITORY = "library/subjects"
HUB = "hub.json"


class KeptHub(Hub):
    """A Hub with one repository, in a file that is replaced by each commit."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place
        self.repositories[REPOSITORY] = kept(place)

    def commit(self, repository: str, operations: list[dict[str, Any]]) -> None:
        """Commit, and replace the file."""
        super().commit(repository, operations)
        keep(self._place, self.repositories[repository])


def keep(place: Path, files: dict[str, bytes]) -> None:
    text = json.dumps({name: b64encode(body).decode() for name, body in files.items()})
    written = place.with_suffix(".written")
    written.write_text(text)
    written.replace(place)


def kept(place: Path) -> dict[str, bytes]:
    texts = json.loads(place.read_text())
    return {name: b64decode(text) for name, text in texts.items()}


def push(folder: Path) -> None:
    """Push to a Hub in a fork of this process, which ends with this command's process group."""
    import huggingface_hub.constants as hub_constants

    hub = KeptHub(folder / HUB)
    server = os.fork()
    if not server:
        counter.kill_before(-1)
        for descriptor in map(int, os.listdir("/dev/fd")):
            if descriptor > 2 and descriptor != hub.fileno():
                with contextlib.suppress(OSError):  # that of the listing
                    os.close(descriptor)
        hub.serve_forever()
    hub.socket.close()
    hub_constants.HF_HUB_OFFLINE = False
    hub_constants.ENDPOINT = hub.url
    hub_constants.HUGGINGFACE_CO_URL_TEMPLATE = (
        hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    hub_constants.HF_HUB_CACHE = str(folder / "cache")
    hub_constants.HF_TOKEN_PATH = str(folder / "token")
    os.environ["HF_TOKEN"] = "hf_test"
    xmtc("push", folder / "model", REPOSITORY)
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)


def check_push(folder: Path) -> None:
    there = kept(folder / HUB)
    del there[".gitattributes"]
    assert there in (files_of(folder / "model"), files_of(folder / "renamed")), (
        f"neither model: {sorted(there)}"
    )
    check_model(folder / "model", versions=(set(WORDS),))


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


COMMANDS = [
    Command("rename", rename, check_rename),
    Command("train", train, check_train),
    Command("init_from", init_from, check_init_from),
    Command("prepare", prepare, check_prepare),
    Command("decide", decide, check_decide),
    Command("push", push, check_push),
]


def make_site(folder: Path) -> list[str]:
    """A run with its corpus, a copy of its model, and one with other labels where `labels rename` writes and on a Hub.

    Returns:
        The modules that all this imports.
    """
    xmtc("train", write_config(folder, "old", words=WORDS))
    shutil.copytree(folder / "runs" / "run" / "model", folder / "model")
    pairs = [f"{word}={word}x" for word in WORDS]
    xmtc("labels", "rename", folder / "model", *pairs, "--output", folder / "renamed")
    keep(folder / HUB, {".gitattributes": b"", **files_of(folder / "renamed")})
    with contextlib.redirect_stdout(io.StringIO()):
        for command in COMMANDS:
            command.check(folder)
    return sorted(sys.modules)


def forked(work: Callable[[], object], before: int = -1) -> tuple[int, object]:
    """Run in a fork that is killed before a call; the exit status, and what it returned or how it failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.setpgrp()
        logging.disable(logging.CRITICAL)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        signal.alarm(LIMIT_S)
        try:
            counter.kill_before(before)
            answer = work()
            said = json.dumps({"answer": answer, "calls": counter.calls_made()})
        except BaseException:
            said = json.dumps({"error": traceback.format_exc()[-1500:]})
        counter.kill_before(-1)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return status, json.loads(content) if content else None


def check_left_over(folder: Path) -> None:
    left = [str(path.relative_to(folder)) for path in folder.rglob(".*.tmp")]
    assert not left, f"left over: {left}"


def chosen_calls(total: int, kills: int, rng: random.Random) -> list[int]:
    """Choose calls by chance, one in each of equal parts of all; each at most once."""
    borders = [part * total // kills for part in range(kills + 1)]
    return [
        rng.randrange(start, end) for start, end in pairwise(borders) if start < end
    ]


def kills_of(totals: dict[str, int], kills: int) -> dict[str, int]:
    """Divide kills among commands alike, but give none more than it has calls."""
    shares = {}
    for place, name in enumerate(sorted(totals, key=lambda name: totals[name])):
        shares[name] = min(totals[name], -(-kills // (len(totals) - place)))
        kills -= shares[name]
    return shares


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    counts: Counter[str] = Counter()
    failures = []
    commands = [command for command in COMMANDS if arguments.only in command.name]
    with tempfile.TemporaryDirectory() as name:
        site = Path(name) / "site"
        site.mkdir()
        _, said = forked(lambda: make_site(site))
        if not isinstance(said, dict) or "calls" not in said:
            sys.exit(f"the first run fails: {said}")
        import_all(
            said["answer"]
        )  # in forks, every command would import them again; threads survive no fork
        gc.freeze()
        totals = {}
        for command in commands:
            place = place_of(site, Path(name))
            _, said = forked(lambda place=place, command=command: command.run(place))
            if not isinstance(said, dict) or "calls" not in said:
                sys.exit(f"{command.name}: fails without a kill: {said}")
            totals[command.name] = said["calls"]
        print(json.dumps({"calls": totals}), flush=True)
        shares = kills_of(totals, arguments.kills)
        for command in commands:
            total = totals[command.name]
            for before in chosen_calls(total, shares[command.name], rng):
                place = place_of(site, Path(name))
                status, said = forked(
                    lambda place=place, command=command: command.run(place), before
                )
                if status != signal.SIGKILL:
                    failures.append(
                        {
                            "command": command.name,
                            "before": before,
                            "said": f"not killed: {said}",
                        }
                    )
                    continue
                counts[command.name] += 1
                for step, work in (
                    ("after the kill", command.check),
                    ("again", command.run),
                    ("then", command.check),
                    ("at last", check_left_over),
                ):
                    _, said = forked(lambda place=place, work=work: work(place))
                    if not isinstance(said, dict) or "calls" not in said:
                        failures.append(
                            {
                                "command": command.name,
                                "before": before,
                                "said": f"{step}: {said}",
                            }
                        )
                        print(json.dumps(failures[-1]), flush=True)
                        break
                else:
                    print(
                        json.dumps(
                            {"command": command.name, "before": before, "holds": True}
                        ),
                        flush=True,
                    )
    print(
        json.dumps({"kills": sum(counts.values()), **counts, "failures": len(failures)})
    )
    if arguments.record is not None:
        arguments.record.write_text(
            json.dumps(
                {"calls": totals, "kills": counts, "failures": failures}, indent=1
            )
            + "\n"
        )
    return int(bool(failures))


def place_of(site: Path, folder: Path) -> Path:
    """A copy of the site, at the same path each time, because runs and corpora know their paths."""
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(site, place)
    for path in place.rglob("*"):
        if path.suffix in (".yaml", ".json") and str(site) in path.read_text():
            path.write_text(path.read_text().replace(str(site), str(place)))
    return place


if __name__ == "__main__":
    if LIBRARY not in os.environ:
        with tempfile.TemporaryDirectory() as built:
            library = compiled(Path(built))
            environment = os.environ | {
                "LD_PRELOAD": str(library),
                LIBRARY: str(library),
            }
            sys.exit(
                subprocess.run(
                    [sys.executable, *sys.argv], env=environment, check=False
                ).returncode
            )
    counter = ctypes.CDLL(os.environ[LIBRARY])
    sys.exit(main())
