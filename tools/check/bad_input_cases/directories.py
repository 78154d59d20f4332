"""Directories with one damaged file: models, runs, corpora, scores."""

import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bad_input_cases.case import Case, ReadWronglyError, Site, command
from bad_input_cases.damage import DAMAGES


def directory_cases(site: Site) -> Iterator[Case]:
    """Each file of a model, a run, a corpus and a folder of scores, damaged in every way."""
    commands: dict[
        str, tuple[Path, dict[str, Callable[[Path, Path], tuple[object, ...]]]]
    ] = {
        "model": (site.model, {"predict": _predict, "score": partial(_score, site)}),
        "run": (site.run, RUN_COMMANDS),
        "scores": (
            site.folder / "scores",
            {"score again": partial(_score_again, site)},
        ),
        "corpus": (site.corpus, {"evaluate": partial(evaluate_with, site)}),
    }
    for kind, (whole, entries) in commands.items():
        files = sorted(
            path.relative_to(whole) for path in whole.rglob("*") if path.is_file()
        )
        chosen = [
            file
            for file in files
            if kind != "run" or file.parts[0] in ("run.json", "config.yaml", "eval")
        ]
        for file, (damage, break_it), (entry, words) in itertools.product(
            chosen, DAMAGES.items(), entries.items()
        ):
            call = partial(_damaged, whole, file, break_it, words, entry not in READERS)
            yield Case(
                f"{kind} directory", entry, f"{file}: {damage}", call, refuse=False
            )


def _damaged(
    whole: Path,
    file: Path,
    break_it: Callable[[Path], object],
    words: Callable[[Path, Path], tuple[object, ...]],
    compare: bool,
    folder: Path,
) -> tuple[int, str]:
    bad = folder / "bad"
    copy = shutil.copytree(whole, bad / "copy")
    break_it(copy / file)
    code, said = command(*words(copy, bad))
    if compare and code == 0 and "warning" not in said:
        good = folder / "good"
        command(*words(shutil.copytree(whole, good / "copy"), good))
        if differing := [
            name
            for name, content in results_of(good).items()
            if results_of(bad).get(name) != content
        ]:
            raise ReadWronglyError(f"other results without a word: {differing}")
    return code, said


def results_of(folder: Path) -> dict[str, bytes]:
    """The scores and metrics that a command has written, or has left as they were, without what it took."""
    found = [*folder.rglob("part-*.parquet"), *folder.rglob("metrics.json")]
    return {
        path.relative_to(folder).as_posix(): SECONDS.sub(b"", path.read_bytes())
        for path in found
    }


SECONDS = re.compile(rb'"seconds": [0-9.]+')
READERS = ("predict", "report", "status")
"""What writes neither scores nor metrics."""
RUN_COMMANDS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "report": lambda copy, folder: ("report", copy, "-o", folder / "report.html"),
    "status": lambda copy, folder: ("status", copy),
    "evaluate": lambda copy, folder: ("evaluate", copy),
}


def _predict(copy: Path, folder: Path) -> tuple[object, ...]:
    del folder
    return ("predict", copy, "-t", "lawery")


def _score(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    return ("score", copy, site.folder / "one.jsonl", "-o", folder / "out")


def _score_again(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    return ("score", site.model, site.folder / "one.jsonl", "-o", copy)


def evaluate_with(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    predictions = site.run / "eval" / "dev" / "predictions.parquet"
    return (
        "evaluate",
        "--predictions",
        predictions,
        "--gold",
        copy,
        "--output",
        folder / "out",
    )
