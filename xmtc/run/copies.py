"""Local copies of what the configuration or the command line names by URI, and publishing the results."""

import dataclasses
import fnmatch
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from xmtc.artefact.hub import locate_model
from xmtc.artefact.output import check_replaceable
from xmtc.data import manifest as manifests
from xmtc.data.manifest import Manifest
from xmtc.errors import ConfigError, StorageError
from xmtc.run.directory import RunPaths
from xmtc.storage.config import StorageConfig
from xmtc.storage.lock import locked
from xmtc.storage.uri import is_remote
from xmtc.training.layout import of_a_checkpoint

if TYPE_CHECKING:
    from xmtc.data.corpus import Corpus
    from xmtc.data.prepare import DataConfig
    from xmtc.storage.mirror import Mirror

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STATUS = ("run.json", "config.yaml", "metrics.jsonl")


def fetch(path: str, storage: StorageConfig | None = None, choose: Callable[[str], bool] | None = None) -> Path:
    """Return a local path for a path or URI: of a file, a folder, or a pattern of files.

    Args:
        path: as the user gave it; without a scheme, or with `file://`, it is local already.
        storage: settings of the cache for copies. Default: the default cache.
        choose: selects files of a folder by their names in it. Default: all.

    Raises:
        StorageError: there is nothing, or it cannot be copied.
    """
    if (local := _on_this_machine(path)) is not None:
        return local
    storage, uri = storage or StorageConfig(), path.rstrip("/")
    if re.search(r"[*?\[]", uri):
        folder, pattern = _split_pattern(uri)
        mirror = storage.mirror("fetched", folder)
        mirror.pull(choose=lambda name: fnmatch.fnmatch(name, pattern))
        return mirror.local / pattern
    folder, name = uri.rsplit("/", 1)
    if choose is None and storage.remote(uri).is_file():
        mirror = storage.mirror("fetched", folder)
        mirror.pull(name)
        return mirror.local / name
    mirror = storage.mirror("fetched", uri)
    mirror.pull(choose=choose or (lambda name: True), exact=True)
    if not any(mirror.local.glob("[!.]*")):
        raise StorageError(f"{uri}: nothing there")
    return mirror.local


def _on_this_machine(path: str) -> Path | None:
    if path.startswith("file://"):
        return Path(unquote(urlsplit(path).path))
    return None if is_remote(path) else Path(path)


def fetch_model(path: str) -> Path:
    """Return a local model unchanged, or the local copy of a model at a URI or on the Hugging Face Hub.

    Raises:
        StorageError: there is nothing, or it cannot be copied.
        CheckpointError: the Hub has no such model.
    """
    if is_remote(path) or Path(path).exists():
        return fetch(path)
    return locate_model(path)


def fetch_status(path: str) -> Path:
    """Fetch the files of a run directory that show its state, without weights."""
    return fetch(path, choose=lambda name: name in _STATUS or name.endswith("/manifest.json"))


def _split_pattern(uri: str) -> tuple[str, str]:
    parts = uri.split("/")
    first = next(i for i, part in enumerate(parts) if re.search(r"[*?\[]", part))
    return "/".join(parts[:first]), "/".join(parts[first:])


def local_source(data: "DataConfig", storage: StorageConfig) -> "DataConfig":
    """Replace every URI of the source by a local copy; the corpus's fingerprint stays the same."""
    return dataclasses.replace(data, source=_localised(data.source, storage))


def has_remote_parts(config: Any) -> bool:
    """Whether any URI is in these settings."""
    return any(True for _ in remote_parts(config))


def remote_parts(config: Any) -> Iterator[str]:
    """Yield every URI in these settings."""
    if isinstance(config, str):
        if is_remote(config):
            yield config
    elif dataclasses.is_dataclass(config):
        for field in dataclasses.fields(config):
            yield from remote_parts(getattr(config, field.name))
    elif isinstance(config, tuple):
        for part in config:
            yield from remote_parts(part)


def is_there(uri: str, storage: StorageConfig) -> bool:
    """Whether `fetch` would find something.

    Raises:
        StorageError: there is no answer.
    """
    uri = uri.rstrip("/")
    if re.search(r"[*?\[]", uri):
        folder, pattern = _split_pattern(uri)
        return any(fnmatch.fnmatch(name, pattern) for name in storage.remote(folder).list())
    return storage.remote(uri).is_file() or bool(storage.remote(uri).list())


def _localised(value: T, storage: StorageConfig) -> T:
    changed: Any = value
    if isinstance(value, str) and is_remote(value):
        changed = str(fetch(value, storage))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        changed = dataclasses.replace(value, **{name: _localised(part, storage) for name, part in fields.items()})
    elif isinstance(value, tuple):
        changed = tuple(_localised(part, storage) for part in value)
    return changed


def fetch_corpus(paths: RunPaths) -> None:
    """Copy the corpus at a URI to this machine, and compare each shard with its hash.

    Raises:
        StorageError: it cannot be read, or its files at the URI are damaged.
    """
    if paths.corpus_uri is not None:
        with locked(paths.corpus):
            fetch_locked(paths)


def fetch_locked(paths: RunPaths, fingerprint: str | None = None) -> None:
    """Fetch the corpus like `fetch_corpus`, in a process that holds the corpus's lock.

    Args:
        paths: paths of the run.
        fingerprint: fingerprint of the wanted corpus; another one is left alone. None: any.

    Raises:
        StorageError: it cannot be read, or its files at the URI are damaged.
    """
    mirror = paths.corpus_mirror
    if mirror.remote is None:
        return
    own = _manifest_text(paths.corpus)
    if own is not None and _fingerprint(own) == fingerprint:
        return
    theirs = mirror.remote.read(manifests.NAME)
    if theirs is not None and theirs == own:
        return
    if theirs is None or (fingerprint is not None and _fingerprint(theirs) != fingerprint):
        if own is None:  # an interrupted copy
            shutil.rmtree(paths.corpus, ignore_errors=True)
        return
    shutil.rmtree(paths.corpus, ignore_errors=True)  # no mixture of two corpora, whenever this is interrupted
    manifest = Manifest.parse(theirs, f"{mirror.place}/{manifests.NAME}")
    mirror.pull(sha256={file.path: file.sha256 for file in manifest.files()})
    logger.info("corpus %s: copied to %s, every shard compared with its hash", mirror.place, paths.corpus)


def publish_corpus(paths: RunPaths) -> None:
    """Copy a corpus to its URI, its manifest last, unless it already exists.

    Raises:
        StorageError: it cannot be written.
    """
    mirror = paths.corpus_mirror
    if mirror.remote is None or mirror.remote.read(manifests.NAME) == _manifest_text(paths.corpus):
        return
    _replace(mirror)
    logger.info("corpus %s: published", mirror.place)


def _replace(mirror: "Mirror") -> None:
    """Publish a directory over an older one. A reader may find it missing for a while, but never a mixture."""
    mirror.remove("")
    mirror.push(choose=lambda name: not name.startswith("hidden/"))


@contextmanager
def published_model(path: str) -> Iterator[Path]:
    """Yield a local directory to write a model to; publish it at the end, replacing an earlier one.

    Args:
        path: as the user gave it: directory or URI.

    Raises:
        ConfigError: something else is at the URI.
        StorageError: it cannot be read or written.
    """
    if (local := _on_this_machine(path)) is not None:
        yield local
        return
    mirror, remote = StorageConfig().mirror("fetched", path), StorageConfig().remote(path)
    if remote.is_file():
        raise ConfigError(f"{path}: is a file; give a new or an empty folder")
    check_replaceable(path, remote.list(), remote.read("config.json"))
    mirror.pull(exact=True)
    yield mirror.local
    _replace(mirror)
    logger.info("%s: published", path)


def open_corpus(paths: RunPaths) -> "Corpus":
    """Open the corpus of a run; copy it first if it is at a URI."""
    from xmtc.data.corpus import Corpus

    fetch_corpus(paths)
    return Corpus.open(paths.corpus)


def _manifest_text(directory: Path) -> bytes | None:
    return _bytes(directory / manifests.NAME)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _fingerprint(text: bytes) -> str | None:
    found = re.search(rb'"fingerprint": "(\w+)"', text)
    return found.group(1).decode() if found else None


def fetch_run(paths: RunPaths) -> None:
    """Update the local run directory, without checkpoints: only one is needed, and `CheckpointStore` fetches it.

    Raises:
        StorageError: it cannot be read.
    """
    paths.mirror.pull(choose=lambda name: not of_a_checkpoint(name))


def publish_run(paths: RunPaths) -> None:
    """Copy changed files of the run directory to its URI.

    Raises:
        StorageError: it cannot be written, or another machine has written there meanwhile.
    """
    mirror = paths.mirror
    if mirror.changed_elsewhere("run.json"):
        raise StorageError(
            f"{mirror.place}: another machine has continued this run meanwhile; let one of them finish, then run "
            "the same command again, or use another name"
        )
    mirror.push(choose=lambda name: not of_a_checkpoint(name))


@contextmanager
def published_run(paths: RunPaths) -> Iterator[None]:
    """Fetch the run directory from its URI, and publish it at the end, also after an error of the run."""
    fetch_run(paths)
    try:
        yield
    except StorageError:
        raise
    except BaseException:
        _try_to_publish(paths)
        raise
    publish_run(paths)


def _try_to_publish(paths: RunPaths) -> None:
    """Publish after another error, which must not be lost if this fails too."""
    try:
        publish_run(paths)
    except StorageError as error:
        logger.warning("%s", error)
