"""Malformed configurations, and every key with values that it cannot have."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bad_input_cases.case import Case, Site, command
from bad_input_cases.damage import DAMAGES

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
        yield Case(
            "configuration",
            "prepare",
            damage,
            partial(_prepare_damaged, site, DAMAGES[damage]),
        )
    plain = yaml.safe_load(site.config.read_text(encoding="utf-8"))
    for key, value in itertools.product(_keys(plain), VALUES):
        words = ("train", site.config, f"{key}={value}", "--print-config")
        yield Case(
            "configuration",
            "train",
            f"{key}={value[:20]}",
            partial(_plainly, words),
            refuse=False,
        )


def _keys(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{above}{key}.")


def _prepare_with(content: bytes, folder: Path) -> tuple[int, str]:
    (folder / "bad.yaml").write_bytes(content)
    return command("prepare", folder / "bad.yaml")


def _prepare_damaged(
    site: Site, break_it: Callable[[Path], object], folder: Path
) -> tuple[int, str]:
    copy = Path(shutil.copy(site.config, folder / "bad.yaml"))
    break_it(copy)
    return command("prepare", copy)


def _plainly(words: tuple[object, ...], folder: Path) -> tuple[int, str]:
    del folder
    return command(*words)
