"""Directories with one damaged file: models, runs, corpora, scores."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bad_input_cases.case import Case, Site, command
from bad_input_cases.damage import DAMAGES


def directory_cases(site: Site) -> Iterator[Case]:
    """Each file of a model, a run, a corpus and a folder of scores, damaged in every way."""
    commands: dict[str, tuple[Path, dict[str, Callable[[Path, Path], tuple[object, ...]]]]] = {
        "model": (site.model, MODEL_COMMANDS),
        "run": (site.run, RUN_COMMANDS),
        "scores": (site.folder / "scores", {"score again": partial(_score_again, site)}),
        "corpus": (site.corpus, {"evaluate": partial(evaluate_with, site)}),
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


def evaluate_with(site: Site, copy: Path, folder: Path) -> tuple[object, ...]:
    predictions = site.run / "eval" / "dev" / "predictions.parquet"
    return ("evaluate", "--predictions", predictions, "--gold", copy, "--output", folder / "out")
