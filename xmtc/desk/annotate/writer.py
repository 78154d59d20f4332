"""One file, one writer: a lock that names who holds it, and the end that a dying machine may leave.

The lock is on a small file beside the one that is written, which has the process and the host that hold it.
"""

import logging
import os
import socket
import weakref
from pathlib import Path

from xmtc.errors import StorageError
from xmtc.files import (
    flush,
    lock_of,
    open_lock,
    parse_json,
    resolve_links,
    take_lock,
    writing,
)

logger = logging.getLogger(__name__)

_BEGINNING = b'{"id"'
"""Of each line that is written."""
_READ_BYTES = 1 << 16


class WriterLock:
    """The right to write into a file, until it is released or the process ends.

    Attributes:
        release: gives the right to others.

    Args:
        path: the file that is written.

    Raises:
        StorageError: another process has the right, which the message names; or the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        place = lock_of(resolve_links(path))  # a link is another way to the same file
        with writing(place):
            file = open_lock(place)
            if not take_lock(file, alone=True):
                with file:
                    file.seek(0)
                    holder = file.read(200).strip() or "another process"
                message = f"{path}: {holder} writes annotations into it; stop that server, or give another file"
                raise StorageError(message)
            self.release = weakref.finalize(self, file.close)
            file.seek(0)
            file.truncate()
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()


def last_line_of(path: Path) -> bytes:
    """Return what stands behind the last end of a line; empty if the file ends with one, is empty or is missing."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        last = b""
        while position > 0 and b"\n" not in last:
            length = min(_READ_BYTES, position)
            position -= length
            file.seek(position)
            last = file.read(length) + last
        return last.rpartition(b"\n")[2]


def is_cut_off(line: bytes) -> bool:
    """Whether a line without an end is the beginning of an annotation.

    After the machine has died, a file system may also have made room for the line without writing it: zeros.
    """
    begun = line.rstrip(b"\0")
    if not line or not (begun.startswith(_BEGINNING) or _BEGINNING.startswith(begun)):
        return False
    try:
        parse_json(line)
    except ValueError:
        return True
    return False


def set_cut_line_aside(path: Path) -> None:
    """Move a last line that was cut off into a file beside it, and say so.

    Args:
        path: file of annotations; it may be missing.

    Raises:
        StorageError: one of the files cannot be written.
    """
    with writing(path):
        if not path.is_file():
            return
        line = last_line_of(path)
        if not is_cut_off(line):
            return
        aside = path.with_name(f"{path.name}.cut")
        with aside.open("ab") as file:
            file.write(line + b"\n")
        flush(aside)
        os.truncate(path, path.stat().st_size - len(line))
        flush(path)
    logger.warning(
        "%s: the last annotation was cut off when its process or machine ended: it now stands in %s; annotate that "
        "document again",
        path,
        aside,
    )
