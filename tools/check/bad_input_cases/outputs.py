"""Places where nothing can or may be written, at every command that writes."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bad_input_cases.case import Case, Site, command
from bad_input_cases.directories import evaluate_with

PLACES: dict[str, Callable[[Path], object]] = {
    "a table of the user": lambda path: path.write_text("a,b\n"),
    "a folder with files": lambda path: (
        path.mkdir(),
        (path / "mine.txt").write_text("mine"),
    ),
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
        "evaluate": (*evaluate_with(site, site.corpus, site.folder)[:-1],),
    }
    for (entry, words), (place, make) in itertools.product(
        commands.items(), PLACES.items()
    ):
        yield Case("outputs", entry, place, partial(_write_to, words, make, "out.html"))
    for (entry, words), (what, name) in itertools.product(
        commands.items(), NAMES.items()
    ):
        page = entry in ("report", "explain")
        refuse = what in ("long", "not UTF-8") or (what == "no page" and page)
        yield Case(
            "outputs",
            entry,
            f"name: {what}",
            partial(_write_to, words, None, name),
            refuse,
        )


def _write_to(
    words: tuple[object, ...],
    make: Callable[[Path], object] | None,
    name: str,
    folder: Path,
) -> tuple[int, str]:
    (folder / "place").mkdir()
    if make is not None:
        make(folder / "place" / name)
    return command(*words, folder / "place" / name)
