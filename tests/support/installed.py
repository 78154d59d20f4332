"""Which distributions an installation brings, and a folder with nothing but them."""

import importlib.metadata
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def closure(requirements: Iterable[str]) -> set[str]:
    """Names of all distributions that `pip install` brings for these requirements, as they are installed here."""
    todo = [Requirement(text) for text in requirements]
    seen: set[tuple[str, str]] = set()
    while todo:
        one = todo.pop()
        for extra in (
            {"", *one.extras}
            if one.marker is None or one.marker.evaluate({"extra": ""})
            else ()
        ):
            if (key := (canonicalize_name(one.name), extra)) in seen:
                continue
            seen.add(key)
            for text in importlib.metadata.requires(one.name) or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    todo.append(Requirement(text.partition(";")[0]))
    return {name for name, _ in seen}


def link(folder: Path, distributions: Iterable[str]) -> Path:
    """A folder of links to what these distributions installed, to be the only one on Python's path."""
    folder.mkdir(parents=True)
    for name in distributions:
        found = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {
            "..",
            "__pycache__",
        }:
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder
