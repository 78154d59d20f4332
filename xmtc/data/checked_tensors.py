"""Files of tensors that are checked and then used: what computes is what was checked, and a file is read once."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load_file

Loaded = dict[str, NDArray[Any]]
"""Tensors of a file, by name."""
_KEPT: ContextVar[dict[Path, Loaded] | None] = ContextVar("_KEPT", default=None)
"""Tensors by file that were read to be checked, and are still to be used; None: none are kept."""


@contextmanager
def reading_once() -> Iterator[None]:
    """Within, who reads a file after its check gets the very tensors that were checked.

    The file may change in between.
    """
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def load_to_check(path: Path) -> Loaded:
    """Read the tensors of a file, and keep them for its next reader, see `reading_once`."""
    tensors = load_file(path)
    kept = _KEPT.get()
    if kept is not None:
        kept[path] = dict(tensors)
    return tensors


def load_once(path: Path) -> Loaded:
    """Take the tensors of a file that were kept, or read it."""
    kept = _KEPT.get()
    if kept is not None and path in kept:
        return kept.pop(path)
    return load_file(path)
