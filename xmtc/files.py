"""How a file gets onto the disk whole, and how its content is told from another's."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from xmtc.errors import StorageError

TEMPORARY = ".tmp"
"""The suffix of files that are being written. A reader ignores them, and they may be deleted when nobody writes."""


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end, flushed to the disk, or is removed on failure.

    A reader sees the old file or the new one, also after a crash. The temporary name is unique, so that two processes
    may write the same file. Parent directories are created.

    Raises:
        OSError: the file cannot be written; the old file is unharmed.

    Example:
        >>> with replacing(folder / "table.parquet") as partial:
        ...     pq.write_table(table, partial)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}{TEMPORARY}")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


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


def cannot_write(path: Path, error: OSError) -> StorageError:
    """The error that says why a file cannot be written."""
    return StorageError(f"{path}: cannot be written: {error.strerror or error}; free space or choose another place")
