"""Writing files and directories whole, and telling one content from another."""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from xmtc.errors import StorageError

GENERATOR = '<meta name="generator" content="xmtc">'
"""Stands in the head of every page, so that no page replaces anything else."""
_HEAD = 4096  # bytes
TEMPORARY = ".tmp"
"""The suffix of files that are being written. A reader ignores them, and they may be deleted when nobody writes."""


def real(path: Path) -> Path:
    """The path without links, absolute; links in a circle stay, where `Path.resolve` would raise RuntimeError."""
    return Path(os.path.realpath(path))


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is a pipe or device, which might never end.
        ValueError: it is not UTF-8, not JSON, too deep, or has a key twice.
    """
    return parse_json(read_file(path))


def read_file(path: Path) -> bytes:
    """The bytes of a regular file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is a pipe or device, which might never end.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def parse_json(text: str | bytes) -> Any:
    """The value that JSON text stands for.

    Raises:
        ValueError: see `read_json`.
    """
    try:
        return json.loads(text, object_pairs_hook=_once_each)  # bytes: UTF-8, as JSON is
    except RecursionError:
        raise ValueError("thousands of lists in lists") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = next(key for key in content if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice[:40]!r} occurs twice")
    return content


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end, flushed to the disk, or is removed on failure.

    A reader sees the old file or the new one, also after a crash. The temporary name is unique, so that two processes
    may write the same file. Parent directories are created. The file's rights are those that the umask gives.

    Raises:
        OSError: the file cannot be written, or it is not a file; the old file is unharmed.

    Example:
        >>> with replacing(folder / "table.parquet") as partial:
        ...     pq.write_table(table, partial)
    """
    path = real(path) if path.is_symlink() else path
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(errno.EINVAL, "it is a folder, device, pipe or circle of links, not a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(path, TEMPORARY)
    try:
        partial.touch()
        mode = stat.S_IMODE(partial.stat().st_mode)
        yield partial
        partial.chmod(mode)  # safetensors makes files that only their owner may read
        _flush(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def replacing_directory(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory that replaces `directory` at the end, flushed to the disk, or is removed on failure.

    A reader never sees a half-written directory, also after a crash. Parent directories are created. Whether what is
    there may be replaced is for the caller to decide.

    Raises:
        OSError: something cannot be written; the old directory is unharmed.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(directory, TEMPORARY)
    partial.mkdir()
    try:
        yield partial
        for path in partial.rglob("*"):
            _flush(path)
        publish_directory(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def publish_directory(written: Path, directory: Path) -> None:
    """Rename a finished directory to its place, over an older one; both are on the same file system.

    Replacing takes two renames: for a moment nothing exists, but never a mixture. Files get the rights that the
    umask gave the directory.

    Raises:
        OSError: the file system refuses; the older directory is put back.
    """
    mode = stat.S_IMODE(written.stat().st_mode) & 0o666
    for path in written.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
    old = _beside(directory, f".old{TEMPORARY}")
    if directory.exists():
        directory.rename(old)
    try:
        written.rename(directory)
    except OSError:
        if old.exists():
            old.rename(directory)
        raise
    _flush(directory.parent)
    shutil.rmtree(old, ignore_errors=True)


def _beside(path: Path, suffix: str) -> Path:
    """A name in the same directory that no other process uses."""
    return path.with_name(f".{path.name}.{uuid4().hex[:12]}{suffix}")


def _flush(path: Path) -> None:
    """Wait until a file or a directory's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace a file whole with this text, in UTF-8.

    Raises:
        StorageError: the file cannot be written, for example because the disk is full; the old file is unharmed.
    """
    try:
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise cannot_write(path, error) from error


def check_page(path: Path) -> None:
    """Make sure that a page may be written: to a new place, or over an earlier page of xmtc.

    Raises:
        StorageError: the name is not a page's, or something else exists there.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise StorageError(f"{path}: the output is an HTML page: give a file for it, such as report.html")
    try:
        if path.exists() and not (path.is_file() and GENERATOR.encode() in _head(path)):
            raise StorageError(f"{path}: exists, and is not a page of xmtc; choose another place, or move it away")
    except OSError as error:
        raise cannot_write(path, error) from error


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The error that says why a file cannot be written."""
    return StorageError(f"{path}: cannot be written: {error.strerror or error}; free space or choose another place")
