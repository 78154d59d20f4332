"""One process of this machine at a time makes a thing on disk."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xmtc.files import writing

logger = logging.getLogger(__name__)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process of this machine make `path` at a time; the others wait and then find it finished.

    Raises:
        StorageError: nothing can be written next to it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = (path.parent / f".{path.name}.lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("%s: another process makes it; waiting", path)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
