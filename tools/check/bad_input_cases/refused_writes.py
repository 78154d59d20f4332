"""A system that refuses to write: small files only, or one refused call, at every command that writes."""

import builtins
import errno
import io
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bad_input_cases.case import Case, ReadWronglyError, Site, command
from bad_input_cases.directories import evaluate_with, results_of

LIMITS = (0, 400, 5_000, 50_000)  # bytes of a file
NUMBERS = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.EDQUOT)
CALLS = ("mkdir", "rename", "replace", "fsync", "open")
TURNS = (0, 1, 2, 5, 10, 20)  # of the call that is refused
Refusal = Callable[[Path], AbstractContextManager[None]]
Words = Callable[[Path], tuple[object, ...]]


def refused_write_cases(site: Site) -> Iterator[Case]:
    """Every command that writes, on a system that refuses one call or large files; then the same command without it."""
    refusals: dict[str, Refusal] = {
        f"files of {limit:,} bytes": partial(small_files, limit) for limit in LIMITS
    }
    for (call, turn), number in zip(
        itertools.product(CALLS, TURNS), itertools.cycle(NUMBERS), strict=False
    ):
        refusals[f"{call} {turn}: {errno.errorcode[number]}"] = partial(
            refused_call, call, turn, number
        )
    for (entry, words), (name, refusal) in itertools.product(
        writers(site).items(), refusals.items()
    ):
        yield Case(
            "refused writes",
            entry,
            name,
            partial(_refused, words, refusal),
            refuse=False,
        )


def writers(site: Site) -> dict[str, Words]:
    """The words of each command that writes into a folder."""
    model, run, score = site.model, site.run, site.folder / "one.jsonl"
    return {
        "prepare": lambda folder: (
            "prepare",
            site.config,
            f"data.corpus={folder / 'corpus'}",
        ),
        "train": lambda folder: (
            *("train", site.config, f"data.corpus={folder / 'corpus'}"),
            *(f"track.directory={folder / 'runs'}", "track.checkpoint_every_steps=1"),
        ),
        "labels add": lambda folder: (
            "labels",
            "add",
            model,
            site.folder / "labels.jsonl",
            "-o",
            folder / "out",
        ),
        "labels remove": lambda folder: (
            "labels",
            "remove",
            model,
            "law",
            "-o",
            folder / "out",
        ),
        "labels merge": lambda folder: (
            "labels",
            "merge",
            model,
            "law=fish",
            "-o",
            folder / "out",
        ),
        "labels rename": lambda folder: (
            "labels",
            "rename",
            model,
            "law=laws",
            "-o",
            folder / "out",
        ),
        "report": lambda folder: ("report", run, "-o", folder / "out.html"),
        "explain": lambda folder: (
            "explain",
            model,
            "-t",
            "lawery",
            "-o",
            folder / "out.html",
        ),
        "score": lambda folder: ("score", model, score, "-o", folder / "out"),
        "evaluate": lambda folder: evaluate_with(site, site.corpus, folder),
    }


def _refused(words: Words, refusal: Refusal, folder: Path) -> tuple[int, str]:
    bad, good = folder / "bad", folder / "good"
    bad.mkdir()
    with refusal(bad):
        code, said = command(*words(bad))
    again, why = command(*words(bad))
    if again:
        raise ReadWronglyError(f"the same command fails afterwards: {why}")
    if left := [str(path) for path in bad.rglob("*.tmp")]:
        raise ReadWronglyError(f"left behind: {left}")
    good.mkdir()
    command(*words(good))
    if differing := [
        name
        for name, content in results_of(good).items()
        if results_of(bad).get(name) != content
    ]:
        raise ReadWronglyError(f"other results afterwards: {differing}")
    return code, said


@contextmanager
def small_files(limit: int, folder: Path) -> Iterator[None]:
    """Every file ends at a limit, as on a full disk, also for libraries that are not Python."""
    del folder
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def refused_call(name: str, turn: int, number: int, folder: Path) -> Iterator[None]:
    """The system refuses one call that changes something below a folder, and no other."""
    turns = itertools.count()

    def refusing(place: Any, *arguments: Any, **options: Any) -> Any:
        changes = name != "open" or set("wax+") & set(
            (*arguments, options.get("mode", "r"))[0]
        )
        if changes and _path_of(place).is_relative_to(folder) and next(turns) == turn:
            raise OSError(number, os.strerror(number), str(_path_of(place)))
        return real(place, *arguments, **options)

    real = getattr(builtins if name == "open" else os, name)
    with ExitStack() as patches:
        for module in (builtins, io) if name == "open" else (os,):
            patches.enter_context(patch.object(module, name, refusing))
        yield


def _path_of(place: Any) -> Path:
    """The path of a file that is named, or open."""
    return Path(
        os.readlink(f"/proc/self/fd/{place}")
        if isinstance(place, int)
        else os.fsdecode(place)
    )
