"""Test whether a directory at a URI can be used, by using it."""

import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from xmtc.errors import StorageError, XmtcError
from xmtc.storage.remote import Remote


def probe(remote: Remote) -> None:
    """List, write, read and delete a small file with a unique name, which mirrors ignore.

    Args:
        remote: a directory, which need not be there.

    Raises:
        StorageError: the first of these that fails; its cause is the client's error.
    """
    name = f".xmtc-probe-{uuid4().hex}"
    remote.list(name)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(name, encoding="utf-8")
        remote.upload(path, name)
    try:
        if remote.read(name) != name.encode():
            raise StorageError(f"{remote.uri}/{name}: what was written there is not what is read")
    finally:
        remote.remove(name)


def ends_within(action: Callable[[], None], timeout_s: float) -> bool:
    """Whether an action ends in time; some clients wait for minutes without an answer, without a way to prevent it.

    Raises:
        XmtcError: the action does.
    """
    errors: list[XmtcError] = []

    def run() -> None:
        try:
            action()
        except XmtcError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return not thread.is_alive()
