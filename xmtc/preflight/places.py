"""Check the places of a configuration: free disk space, the source, and what is at URIs."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import uuid4

from xmtc.data import manifest as manifests
from xmtc.data.readers.files import check_file
from xmtc.errors import ConfigError, DataError, StorageError, XmtcError
from xmtc.estimate.estimate import Estimate
from xmtc.preflight.machine import GIB, Check, found
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.storage.config import StorageConfig, is_remote
from xmtc.storage.fetch import is_there, remote_parts
from xmtc.storage.remote import Remote, is_denied

_MIN_FREE_GIB = 5
_PATIENCE_S = 60.0
_ONCE = StorageConfig(retry_minutes=0)


@runtime_checkable
class HasFiles(Protocol):
    """A reader that knows which files it needs."""

    def files(self) -> list[Path]:
        """Paths of all files."""
        ...


def check_disks(config: RunConfig | None) -> Iterator[Check]:
    """Check the disks of runs and corpora, or of their copies if they are at a URI."""
    paths = RunPaths.of(config) if config else None
    runs, corpus = (paths.root.parent, paths.corpus) if paths else (Path("runs"), Path("corpora"))
    for name, path in (("runs", runs), ("corpus", corpus)):
        yield _room(f"disk: {name}", path, _MIN_FREE_GIB * GIB, "free disk space, or choose another folder")


def check_estimated_disks(config: RunConfig, estimated: Estimate) -> Iterator[Check]:
    """Check the disk space for cached hidden states, and for tensors that the strategy offloads to a disk.

    Without this space, training would fail.
    """
    size = estimated.disk["hidden states"]
    if size:
        fix = "free disk space, or set plant.cache_hidden=false finetune.cache_hidden=false"
        check = _room("hidden states", RunPaths.of(config).corpus, size, fix, needed=True)
        yield replace(check, detail=f"{check.detail}; about {size / GIB:,.2f} GiB needed")


def _room(name: str, path: Path, wanted: float, fix: str, *, needed: bool = False) -> Check:
    """Check the disk where a folder is, or would be created."""
    folder = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(name, "missing", f"{folder} is not writable", "choose another folder")
    free = shutil.disk_usage(folder).free
    return found(name, free >= wanted, f"{free / GIB:,.1f} GiB free at {path}", fix, needed=needed)


def check_places(config: RunConfig) -> Iterator[Check]:
    """Check the source; also runs and corpus, if they are at URIs."""
    runs, corpus = config.track.directory, config.data.corpus
    if is_remote(runs):
        yield _check("storage: runs", runs, lambda: _writable("storage: runs", runs))
    if is_remote(corpus):
        yield _check("storage: corpus", corpus, lambda: _corpus(corpus))
    if uris := list(dict.fromkeys(remote_parts(config.data.source))):
        yield _check("storage: source", uris[0], lambda: _source(uris))
    else:
        yield from _local_source(config)


def _local_source(config: RunConfig) -> Iterator[Check]:
    reader = config.data.source.build()
    if not isinstance(reader, HasFiles):
        return
    fix = "correct data.source, or copy the files there; paths are relative to the folder in which you start xmtc"
    try:
        files = reader.files()
        if absent := [str(path) for path in files if not path.exists()]:
            yield Check("source", "missing", f"no such file: {', '.join(absent)}", fix)
            return
        for path in files:
            check_file(path)
    except DataError as error:
        yield Check("source", "missing", str(error), fix)
    else:
        yield Check("source", "ok", f"{len(files)} files are here")


def _writable(name: str, uri: str) -> Check:
    _use(_ONCE.remote(uri))
    return Check(name, "ok", f"{uri} can be listed, written, read and deleted from")


def _use(remote: Remote) -> None:
    """List, write, read and delete a small file with a unique name, which mirrors ignore.

    Raises:
        StorageError: the first of these that fails; its cause is the client's error.
    """
    name = f".xmtc-probe-{uuid4().hex}"
    remote.list(name)
    remote.write(name, name.encode())
    try:
        if remote.read(name) != name.encode():
            raise StorageError(f"{remote.uri}/{name}: what was written there is not what is read")
    finally:
        remote.remove(name)


def _ends_in_time(action: Callable[[], None]) -> bool:
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
    thread.join(_PATIENCE_S)
    if errors:
        raise errors[0]
    return not thread.is_alive()


def _corpus(uri: str) -> Check:
    try:
        return _writable("storage: corpus", uri)
    except StorageError as error:
        if not is_denied(error.__cause__) or _ONCE.remote(uri).read(manifests.NAME) is None:
            raise
        detail = f"{uri} can be read but not written: enough if it holds the corpus of this configuration"
        return Check("storage: corpus", "note", detail)


def _source(uris: list[str]) -> Check:
    if absent := [uri for uri in uris if not is_there(uri, _ONCE)]:
        fix = "correct data.source, or copy the files there"
        return Check("storage: source", "missing", f"nothing at {', '.join(absent)}", fix)
    return Check("storage: source", "ok", f"found: {', '.join(uris)}")


def _check(name: str, uri: str, look: Callable[[], Check]) -> Check:
    results: list[Check] = []
    reach = "make sure that this machine can reach the server: network, proxy, the client's endpoint (AWS_ENDPOINT_URL)"
    try:
        if _ends_in_time(lambda: results.append(look())) and results:
            return results[0]
    except ConfigError as error:
        return Check(name, "missing", str(error), "install it on every node")
    except StorageError as error:
        return _failure(name, error, reach)
    return Check(name, "missing", f"{uri}: no answer within {_PATIENCE_S:.0f} s", reach)


def _failure(name: str, error: StorageError, reach: str) -> Check:
    """Make the check result for a client's error, with a fix."""
    cause = error.__cause__
    fix = reach
    if is_denied(cause):
        fix = "give the client credentials that may list, read, write and delete there"
    elif isinstance(cause, FileNotFoundError | ValueError):
        fix = "create the bucket, or correct the URI in the configuration"
    doing = str(error).partition(" failed")[0]
    detail = str(error) if cause is None else f"{doing} failed: {type(cause).__name__}: {cause}"
    return Check(name, "missing", detail, fix)
