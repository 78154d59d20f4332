"""Docstrings of installed Python packages: real text with a long tail of labels on every machine, no download.

Packages are found by their metadata and parsed with `ast`; nothing is imported. A docstring's labels are its module
and the module's ancestors: `torch`, `torch.nn`, `torch.nn.modules`.
"""

import ast
import functools
import gc
import importlib.util
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash
from typing_extensions import override

from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    Document,
    LabelInfo,
    Reader,
    Rejected,
)
from xmtc.errors import DataError
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.data.readers.config import PydocsConfig

_FILES_PER_TASK = 150
_NAMED = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
_DOCUMENTED = (ast.Module, *_NAMED)
_TESTS = {"test", "tests"}
_WORD = re.compile(r"\S+")

Docstring = tuple[str, str, str]
"""Module, name in the module, text."""


class PydocsReader(Reader):
    """A `Reader`.

    Args:
        settings: the `data.source` section.
    """

    def __init__(self, settings: "PydocsConfig") -> None:
        self._packages = settings.packages
        self._min_words = settings.min_words

    @override
    def fingerprint(self) -> str:
        """Modules and sizes of their files, which tell versions apart without reading 200 MB."""
        digest = xxhash.xxh3_128()
        for package in self._packages:
            for module, path in python_files(package):
                digest.update(f"{module}:{Path(path).stat().st_size};".encode())
        return f"pydocs:{self._min_words}:{digest.hexdigest()}"

    @override
    def provides(self) -> frozenset[str]:
        """None, the split is by hash of the text."""
        return frozenset({"train"})

    @override
    def read(
        self,
        map_unordered: MapUnordered,
        progress: Progress,
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        """Docstrings that several modules share carry only the modules' common ancestors."""
        files = [file for package in self._packages for file in python_files(package)]
        batches = [
            files[start : start + _FILES_PER_TASK]
            for start in range(0, len(files), _FILES_PER_TASK)
        ]
        read_batch = functools.partial(docstrings, min_words=self._min_words)
        all_docstrings: list[Docstring] = []
        with progress.task("read docstrings", len(files), "files") as task:
            for docstrings_of_batch, count in map_unordered(read_batch, batches):
                all_docstrings += docstrings_of_batch
                task.advance(count)
        yield from _documents(all_docstrings)

    @override
    def label_info(self) -> LabelInfo:
        """A module's name is its name."""
        return LabelInfo()


def python_files(package: str) -> list[tuple[str, str]]:
    """List (module, file) of every Python file of an installed package, without tests, sorted.

    Raises:
        DataError: the package is not installed.
    """
    spec = (
        importlib.util.find_spec(package)
        if package.isidentifier() and package != "__main__"
        else None
    )
    if (
        spec is None or spec.origin is None or not spec.has_location
    ):  # `sys` and `os` are part of the interpreter
        raise DataError(
            f"data.source.packages: no package {package!r} is installed here; install it or leave it out"
        )
    if not spec.submodule_search_locations:
        return [(package, spec.origin)]
    root = Path(spec.origin).parent
    files: list[tuple[str, str]] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        is_module = all(part.isidentifier() for part in parts)
        if is_module and not _TESTS.intersection(parts):
            module = ".".join((package, *parts)).removesuffix(".__init__")
            files.append((module, str(path)))
    return files


def docstrings(
    files: list[tuple[str, str]], min_words: int
) -> tuple[list[Docstring], int]:
    """Collect docstrings of at least `min_words` words in (module, file)s, and count the files."""
    long_enough: list[Docstring] = []
    gc.disable()  # syntax trees are many small objects without cycles; collecting in between costs a quarter more
    try:
        for module, path in files:
            for name, text in _in_file(Path(path)):
                if len(_WORD.findall(text)) >= min_words:
                    long_enough.append((module, name, text))
    finally:
        gc.enable()
    return long_enough, len(files)


def _in_file(path: Path) -> list[tuple[str, str]]:
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        with warnings.catch_warnings(
            action="ignore", category=SyntaxWarning
        ):  # of other people's string escapes
            return list(_walk(ast.parse(source), ""))
    except (SyntaxError, ValueError):
        return []  # templates and files for other Python versions are part of many packages


def _walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, _DOCUMENTED):
        text = ast.get_docstring(node)
        if text:
            yield prefix, text
    for child in getattr(node, "body", ()):
        if isinstance(child, _NAMED):
            yield from _walk(child, f"{prefix}.{child.name}" if prefix else child.name)


def _documents(all_docstrings: list[Docstring]) -> Iterator[Document]:
    by_text: dict[str, list[tuple[str, str]]] = {}
    for module, name, text in sorted(all_docstrings):
        by_text.setdefault(text, []).append((module, name))
    for text, places in by_text.items():
        module, name = places[0]
        labels = functools.reduce(_common, (_ancestors(module) for module, _ in places))
        if labels:
            yield Document(f"{module}:{name}" if name else module, text, labels)


def _ancestors(module: str) -> tuple[str, ...]:
    parts = module.split(".")
    return tuple(".".join(parts[: i + 1]) for i in range(len(parts)))


def _common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a for a, b in zip(first, second, strict=False) if a == b)
