"""Local copies of files and folders that are named by URI."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from xmtc.errors import StorageError
from xmtc.storage.config import StorageConfig, is_remote, on_this_machine

T = TypeVar("T")


def fetch(path: str, storage: StorageConfig | None = None, choose: Callable[[str], bool] | None = None) -> Path:
    """Return a local path for a path or URI: of a file, a folder, or a pattern of files.

    Args:
        path: as the user gave it; without a scheme, or with `file://`, it is local already.
        storage: settings of the cache for copies. Default: the default cache.
        choose: selects files of a folder by their names in it. Default: all.

    Raises:
        StorageError: there is nothing, or it cannot be copied.
    """
    if (local := on_this_machine(path)) is not None:
        return local
    storage, uri = storage or StorageConfig(), path.rstrip("/")
    folder, *pattern = split_pattern(uri)
    if pattern:
        mirror = storage.mirror(folder)
        mirror.pull(choose=lambda name: matches(name.split("/"), pattern[0].split("/")), exact=True)
        return mirror.local / pattern[0]
    if choose is None and storage.remote(uri).is_file():
        folder, name = uri.rsplit("/", 1)
        mirror = storage.mirror(folder)
        mirror.pull(name)
        return mirror.local / name
    mirror = storage.mirror(uri)
    mirror.pull(choose=choose or (lambda name: True), exact=True)
    if not any(mirror.local.glob("[!.]*")):
        raise StorageError(f"{uri}: nothing there")
    return mirror.local


def matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a path fits a pattern, both split at `/`, as on a disk: only `**` stands for folders, also for none."""
    if not patterns or not names:
        return not names and set(patterns) <= {"**"}
    if patterns[0] == "**":
        return matches(names, patterns[1:]) or matches(names[1:], patterns)
    return fnmatchcase(names[0], patterns[0]) and matches(names[1:], patterns[1:])


def split_pattern(uri: str) -> list[str]:
    """Split a URI into its folder and, if it has one, the pattern of what is meant there."""
    return re.split(r"/(?=[^/]*[*?\[])", uri, maxsplit=1)


def remote_parts(settings: Any) -> Iterator[str]:
    """Yield every URI in these settings."""
    if isinstance(settings, str) and is_remote(settings):
        yield settings
    if dataclasses.is_dataclass(settings):
        settings = tuple(getattr(settings, field.name) for field in dataclasses.fields(settings))
    for part in settings if isinstance(settings, tuple) else ():
        yield from remote_parts(part)


def fetch_parts(settings: T, storage: StorageConfig) -> T:
    """Replace every URI in these settings by its local copy."""
    changed: Any = settings
    if isinstance(settings, str) and is_remote(settings):
        changed = str(fetch(settings, storage))
    elif dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.init}
        changed = dataclasses.replace(settings, **{name: fetch_parts(part, storage) for name, part in fields.items()})
    elif isinstance(settings, tuple):
        changed = tuple(fetch_parts(part, storage) for part in settings)
    return changed
