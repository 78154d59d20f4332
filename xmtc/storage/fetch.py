"""Local copies of files and folders that are named by URI."""

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from xmtc.errors import StorageError
from xmtc.storage.config import StorageConfig, is_remote, on_this_machine

if TYPE_CHECKING:
    from xmtc.storage.mirror import Mirror

T = TypeVar("T")


def fetch(
    path: str,
    storage: StorageConfig | None = None,
    choose: Callable[[str], bool] | None = None,
) -> Path:
    """Return a local path for a path or URI: of a file, a folder, or a pattern of files.

    Args:
        path: as the user gave it; without a scheme, or with `file://`, it is local already.
        storage: settings of the cache for copies. Default: the default cache.
        choose: selects files of a folder by their names in it. Default: all.

    Raises:
        StorageError: there is nothing, or it cannot be copied.
    """
    local = on_this_machine(path)
    if local is not None:
        return local
    storage = storage or StorageConfig()
    uri = path.rstrip("/")
    folder, *pattern = split_pattern(uri)
    if pattern:
        return _fetch_pattern(storage.mirror(folder), pattern[0])
    if choose is None and storage.remote(uri).is_file():
        folder, name = uri.rsplit("/", 1)
        mirror = storage.mirror(folder)
        mirror.pull(name)
        return mirror.local / name
    mirror = storage.mirror(uri)
    mirror.pull(choose=choose or (lambda name: True), exact=True)
    if not any(mirror.local.glob("[!.]*")):
        raise StorageError(f"{uri}: nothing is there; check the address")
    return mirror.local


def _fetch_pattern(mirror: "Mirror", pattern: str) -> Path:
    """Copy the files that a pattern names, and return the pattern among the copies."""
    parts = pattern.split("/")
    mirror.pull(choose=lambda name: matches(name.split("/"), parts), exact=True)
    return mirror.local / pattern


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
        settings = tuple(
            getattr(settings, field.name) for field in dataclasses.fields(settings)
        )
    if isinstance(settings, tuple):
        for part in settings:
            yield from remote_parts(part)


def fetch_parts(settings: T, storage: StorageConfig) -> T:
    """Replace every URI in these settings by its local copy."""
    changed: Any = settings
    if isinstance(settings, str) and is_remote(settings):
        changed = str(fetch(settings, storage))
    elif dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        names = [field.name for field in dataclasses.fields(settings) if field.init]
        fetched = {
            name: fetch_parts(getattr(settings, name), storage) for name in names
        }
        changed = dataclasses.replace(settings, **fetched)
    elif isinstance(settings, tuple):
        changed = tuple(fetch_parts(part, storage) for part in settings)
    return changed
