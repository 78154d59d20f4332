"""A remote directory: a few operations of fsspec, retried while its server does not answer."""

import errno
import itertools
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fsspec.core import url_to_fs

from xmtc.errors import ConfigError, StorageError
from xmtc.storage.config import on_this_machine

logger = logging.getLogger(__name__)

T = TypeVar("T")
Stamp = list[str | int]

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
# Waiting does not help with these.
_LASTING_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    ValueError,  # of gcsfs, for a name that no bucket can have
    NotImplementedError,
)
_LASTING_NAMES = ("ParamValidationError",)
# Web servers answer 405 or 501 to what they never do, and 401 or 403 to whom they refuse.
_LASTING_STATUS = (401, 403, 405, 501)
_CREDENTIALS_NAMES = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "DefaultCredentialsError",
)
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
# A file appears there only when it is complete; elsewhere it is written under another name and renamed.
_OBJECT_STORES = {
    "s3",
    "s3a",
    "gs",
    "gcs",
    "abfs",
    "abfss",
    "az",
    "adl",
    "oci",
    "oss",
    "memory",
}
_PROOF = ".writable"
# What distinguishes versions of a file, best first.
_VERSION_KEYS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "mtime",
    "LastModified",
    "last_modified",
    "modified",
)


class Remote:
    """A directory (or one file) at a URI.

    Args:
        uri: what fsspec understands; credentials and endpoints come from the client's own settings.
        retry_s: how long an operation is tried again.

    Raises:
        ConfigError: nothing that is installed knows the scheme.
        StorageError: the file system cannot be opened.
    """

    def __init__(self, uri: str, retry_s: float = 300.0):
        self.uri = uri.rstrip("/")
        self._retry_s = retry_s
        scheme = uri.split("://", 1)[0]
        local = on_this_machine(self.uri)
        address = self.uri if local is None else f"file://{local}"
        options: dict[str, Any] = (
            {"auto_mkdir": True} if scheme in ("file", "local") else {}
        )
        try:
            self._fs, root = url_to_fs(address, **options)
        except (ImportError, ValueError) as error:
            extra = (
                f"pip install 'xmtc[{_EXTRAS[scheme]}]'"
                if scheme in _EXTRAS
                else "install fsspec's package for it"
            )
            raise ConfigError(f"{uri}: {error}; {extra}") from error
        except (
            Exception
        ) as error:  # the library has no error class; some look there at once
            raise StorageError(
                f"{uri}: {_words(error)}; check the address, and that it can be reached"
            ) from error
        self._root = str(root).rstrip("/")
        self._whole_files = scheme in _OBJECT_STORES

    def __reduce__(self) -> tuple[type["Remote"], tuple[str, float]]:
        """Open it again in another process."""
        return Remote, (self.uri, self._retry_s)

    def list(self, folder: str = "") -> dict[str, Stamp]:
        """List all files below `folder`, by name relative to this directory, with their versions."""
        top = self._path(folder)

        def find() -> dict[str, Stamp]:
            self._fs.invalidate_cache()
            stamps: dict[str, Stamp] = {}
            for path, info in self._fs.find(top, detail=True).items():
                name = path[len(self._root) :].lstrip("/")
                if name and not name.endswith("/"):
                    # Some file systems give only the name of a single file.
                    stamps[name] = _stamp(info or self._fs.info(path))
            return stamps

        return self._with_retries("listing", folder, find, absent=dict)

    def is_file(self) -> bool:
        """Whether the URI itself is a file."""
        # fsspec's own `isfile` says no also where nobody answers
        return self._with_retries(
            "looking at",
            "",
            lambda: self._info("")["type"] == "file",
            absent=lambda: False,
        )

    def stamp(self, name: str = "") -> Stamp | None:
        """Return what identifies the version of a file; None if there is no file."""
        return self._with_retries(
            "looking at", name, lambda: _stamp(self._info(name)), absent=lambda: None
        )

    def read(self, name: str) -> bytes | None:
        """Read the content of a small file; None if there is no file."""
        return self._with_retries(
            "reading",
            name,
            lambda: self._fs.cat_file(self._path(name)),
            absent=lambda: None,
        )

    def write(self, name: str, content: bytes) -> None:
        """Write a small file; it appears there when it is complete."""
        self._put(name, lambda target: self._fs.pipe_file(target, content))

    def check_writable(self) -> None:
        """Write an empty file, and delete it again.

        Raises:
            StorageError: it cannot be written.
        """
        self.write(_PROOF, b"")
        self.remove(_PROOF)

    def upload(self, path: Path, name: str) -> Stamp:
        """Copy a local file to `name`; it appears there when it is complete."""
        return self._put(name, lambda target: self._fs.put_file(str(path), target))

    def _put(self, name: str, send: Callable[[str], object]) -> Stamp:
        """Let `send` write to the path that it gets, which becomes `name` when it is complete."""

        def put() -> Stamp:
            target = self._path(name)
            partial = target if self._whole_files else f"{target}.part"
            send(partial)
            if partial != target:
                self._fs.mv(partial, target)
            return _stamp(self._info(name))

        return self._with_retries("writing", name, put)

    def download(self, name: str, path: Path) -> None:
        """Copy the file `name` to a local path, whose folder exists."""
        self._with_retries(
            "reading", name, lambda: self._fs.get_file(self._path(name), str(path))
        )

    def remove(self, name: str) -> None:
        """Delete a file; a missing one is not an error."""
        self._with_retries(
            "deleting",
            name,
            lambda: self._fs.rm_file(self._path(name)),
            absent=lambda: None,
        )

    def _info(self, name: str) -> dict[str, Any]:
        self._fs.invalidate_cache()
        return self._fs.info(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _with_retries(
        self,
        doing: str,
        name: str,
        action: Callable[[], T],
        absent: Callable[[], T] | None = None,
    ) -> T:
        """Run `action` until it succeeds or the time is up; return `absent()` if there is no file.

        Raises:
            StorageError: names URI, operation, cause and what to do.
        """
        place = f"{self.uri}/{name}" if name else self.uri
        started = time.monotonic()
        for attempt in itertools.count():
            try:
                return action()
            except (
                Exception
            ) as raised:  # the library has no error class that all clients share
                error = _cause(raised)
                if absent is not None and isinstance(error, FileNotFoundError):
                    return absent()
                self._raise_if_lasting(error, place, doing)
                # Not all ranks at the same time, when the server is back.
                pause = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
                pause *= random.uniform(0.7, 1.3)
                waited = time.monotonic() - started
                if waited + pause > self._retry_s:
                    raise StorageError(
                        f"{place}: {doing} failed for {waited:.0f} s ({_words(error)}). What is done is kept in the "
                        "local copy; check that the server can be reached, and run the same command again. "
                        "storage.retry_minutes sets how long xmtc retries"
                    ) from error
                if attempt == 0:
                    logger.warning(
                        "%s: %s failed (%s); trying again", place, doing, _words(error)
                    )
                time.sleep(pause)
        raise AssertionError("the loop ends by return or raise")

    def _raise_if_lasting(self, error: BaseException, place: str, doing: str) -> None:
        if isinstance(error, OSError) and error.errno in _FULL_DISK:
            raise StorageError(
                f"{place}: {doing} failed: the disk of the local copy is full; make room there, or set storage.cache"
            ) from error
        lasting = (
            type(error).__name__ in _LASTING_NAMES
            or getattr(error, "status", None) in _LASTING_STATUS
        )
        if lasting or is_denied(error) or isinstance(error, _LASTING_ERRORS):
            raise StorageError(
                f"{place}: {doing} failed ({_words(error)}); check that bucket and folder exist, and that the client's "
                "credentials (for s3:// those of the AWS command line, for gs:// gcloud's) allow it"
            ) from error


def is_denied(error: BaseException | None) -> bool:
    """Whether the server wants other credentials, or the client has none."""
    if isinstance(error, PermissionError) or type(error).__name__ in _CREDENTIALS_NAMES:
        return True
    # gcsfs: 403 is an OSError, 401 its own error; "Invalid Credentials" is a token that could not be renewed just now.
    if isinstance(error, OSError) and str(error).startswith("Forbidden:"):
        return True
    return getattr(error, "code", None) in (
        401,
        403,
    ) and "Invalid Credentials" not in str(error)


def _cause(error: Exception) -> BaseException:
    """Return why fsspec finds no file at http:// if the server can't be reached, or refuses; else the error itself."""
    cause = error.__cause__
    if cause is None or not isinstance(error, FileNotFoundError):
        return error
    is_refused = isinstance(cause, OSError) or getattr(cause, "status", 404) != 404
    return cause if is_refused else error


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _stamp(info: dict[str, Any]) -> Stamp:
    """Return size and version of a file, from what its file system says of it."""
    versions = [str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None]
    version = versions[0] if versions else ""
    return [int(info.get("size") or 0), version]
