"""Write files and directories atomically, and hash and parse their content."""

import ctypes
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from xmtc.errors import DataError, StorageError, XmtcError

logger = logging.getLogger(__name__)

GENERATOR = '<meta name="generator" content="xmtc">'
"""Stands in the head of every page, so that no page replaces anything else."""
_HEAD_BYTES = 4096
"""How much of a page is looked at for the mark above."""
MALFORMED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RuntimeError,
    OverflowError,
    MemoryError,
)
"""Errors that reading a damaged or foreign file raises."""
_LIBRARY_ERRORS = (
    ("pyarrow", "ArrowException"),
    ("safetensors", "SafetensorError"),
    ("lzma", "LZMAError"),
)
"""Errors of libraries that read and write files, by module and class, which are no OSErrors."""
TEMPORARY = ".tmp"
"""The suffix of files and directories that are being written, which readers ignore. Each is locked while a process
writes it, so that the next one that writes the same path can remove what a killed process left."""
_REPLACED = f".old{TEMPORARY}"
"""The suffix of directories that have been replaced."""
_UNIQUE = 12
"""Characters by which processes tell their temporary names apart."""
_TO_LOCK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LOCK = "a link, pipe or device lies in the place of this file: remove it"
_HERE = -100
"""AT_FDCWD: paths are relative to the working directory."""
_EXCHANGE = 2
"""RENAME_EXCHANGE, see renameat2(2)."""
_MAX_KEY = 40
"""Characters of a key that a message quotes."""
_MAX_REASON = 200
"""Characters of a library's message that ours takes over."""


def resolve_links(path: Path) -> Path:
    """Resolve links; circular links stay, for which `Path.resolve` would raise RuntimeError."""
    return Path(os.path.realpath(path))


def is_yaml(path: str | Path) -> bool:
    """Whether a name is that of a YAML file."""
    return Path(path).suffix.lower() in (".yaml", ".yml")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is a pipe or device, which might never end.
        ValueError: it is not UTF-8, not JSON, too deep, or has a key twice or half of a character.
    """
    return parse_json(read_file(path))


def read_file(path: Path) -> bytes:
    """Read the bytes of a regular file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, or is a pipe or device, which might never end.
    """
    _check_regular(path)
    return path.read_bytes()


def _check_regular(path: Path) -> None:
    """Refuse pipes and devices: libraries that read files would wait for them, and no signal could end that."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "a pipe or device, not a regular file", str(path))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: see `read_json`.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        content = json.loads(text, object_pairs_hook=without_repeated_keys)
        if (
            "\\u" in text
        ):  # an escape may stand for half of a character, which UTF-8 cannot hold
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("thousands of lists in lists") from None
    except UnicodeEncodeError:
        raise ValueError(
            "the JSON holds half of a character, such as \\ud83d of \\ud83d\\ude00"
        ) from None
    return content


class RepeatedKeyError(ValueError):
    """Raised if a JSON object has a key twice."""


def without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object from these keys and values.

    Raises:
        RepeatedKeyError: a key occurs twice, so that a value would be lost.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated_key, _ = counts.most_common(1)[0]
        raise RepeatedKeyError(f"the key {repeated_key[:_MAX_KEY]!r} occurs twice")
    return content


def file_sha256(path: Path) -> str:
    """Compute the SHA-256 of a file's content, in hexadecimal."""
    _check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end, flushed to the disk, or is removed on failure.

    A reader sees the old file or the new one, also after a crash. The temporary name is unique, so that two processes
    may write the same file. Parent directories are created. The file's rights are those that the umask gives.

    Raises:
        OSError: the file cannot be written, or it is not a file; the old file is unharmed.

    Example:
        >>> with replacing_file(folder / "table.parquet") as partial:
        ...     pq.write_table(table, partial)
    """
    if path.is_symlink():
        path = resolve_links(path)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(
            errno.EINVAL,
            "it is a folder, device, pipe or circle of links, not a file",
            str(path),
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path, Path.touch) as partial, ExitStack() as lock:
        mode = stat.S_IMODE(partial.stat().st_mode)
        try:
            yield partial
            with suppress(OSError):  # held already, unless a library made another file
                lock.enter_context(_lock_if_free(partial))
            partial.chmod(mode)  # safetensors makes one that only its owner may read
            flush(partial)
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
    with _temporary(directory, Path.mkdir) as partial:
        try:
            yield partial
            for path in partial.rglob("*"):
                flush(path)
            publish_directory(partial, directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def publish_directory(written: Path, directory: Path) -> None:
    """Give a finished directory its place in one step, instead of an older one; both are on the same file system.

    A reader, or a process that is killed here, finds the old directory or the new one, and never none: Linux exchanges
    the two names at once, and the older directory is removed under the other name. Where the file system cannot do
    that, such as NFS, the older directory is first renamed; what is killed in between is finished by
    `recover_directory`. Files get the rights that the umask gave the directory.

    Raises:
        OSError: the file system refuses; the older directory stays.
    """
    mode = stat.S_IMODE(written.stat().st_mode) & 0o666
    for path in written.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(mode)
    recover_directory(directory)
    if not directory.exists():
        written.rename(directory)
    elif not exchange(written, directory):
        _replace_in_two_steps(written, directory)
    flush(directory.parent)
    for replaced in (written, *_replaced_directories(directory)):
        shutil.rmtree(replaced, ignore_errors=True)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names at once; return False, with nothing done, where the file system cannot.

    Raises:
        OSError: it can, and refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        rename = libc.renameat2
    except AttributeError:  # an older C library
        return False
    names = (ctypes.c_char_p(os.fsencode(first)), ctypes.c_char_p(os.fsencode(second)))
    if rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(second))


def _replace_in_two_steps(written: Path, directory: Path) -> None:
    old = _beside(directory, _REPLACED)
    directory.rename(old)
    try:
        written.rename(directory)
    except OSError:
        old.rename(directory)
        raise


def recover_directory(directory: Path) -> None:
    """Put back an older directory that a process renamed, and then did not replace because it was killed.

    Only file systems that cannot exchange names leave such directories, see `publish_directory`. Another process may
    put it back at the same time.

    Raises:
        OSError: the file system refuses.
    """
    if directory.exists() or not directory.parent.is_dir():
        return
    candidates = _replaced_directories(directory)
    if candidates:
        newest = max(candidates, key=lambda path: path.stat().st_mtime_ns)
        with suppress(FileNotFoundError):
            newest.rename(directory)
            logger.warning(
                "%s: put back, because a process that replaced it was killed", directory
            )


def _replaced_directories(directory: Path) -> list[Path]:
    """List the older directories that processes renamed, and did not remove because they were killed."""
    return _all_beside(directory, _REPLACED)


def lock_of(path: Path) -> Path:
    """Return the file that `locked` locks."""
    return path.with_name(f".{path.name}.lock")


def open_lock(path: Path) -> IO[str]:
    """Open a file to lock it and to say who holds the lock; it is made if it is missing.

    What a stranger may have put in its place is neither followed, nor written to, nor waited for.

    Raises:
        OSError: it cannot be opened, or is a link, pipe or device.
    """
    try:
        descriptor = os.open(path, _LOCK_FILE, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, _NO_LOCK, str(path)) from None
        raise
    file = os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace")
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        file.close()
        raise OSError(errno.EINVAL, _NO_LOCK, str(path))
    return file


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process of this machine make `path` at a time; the others wait and then find it finished.

    Raises:
        StorageError: nothing can be written next to it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock_file = open_lock(lock_of(path))
    with lock_file:
        if not take_lock(lock_file, alone=True):
            logger.info("%s: another process makes it; waiting", path)
            take_lock(lock_file, alone=True, wait=True)
        yield


@contextmanager
def holding(path: Path, *, alone: bool = False) -> Iterator[bool]:
    """Hold a lock on an existing file; yield whether it was free, see `take_lock`.

    The lock is of the file, not of its name: it stays with it when a folder is renamed.

    Args:
        path: the file.
        alone: whether nobody else may hold it meanwhile.
    """
    with path.open("r+b" if alone else "rb") as file:
        yield take_lock(file, alone=alone)


def take_lock(file: IO[Any], *, alone: bool, wait: bool = False) -> bool:
    """Take a lock on an open file, which ends when the file is closed or the process ends.

    A file system without locks gives it to everybody.

    Args:
        file: the file; a lock that is held alone needs one that is open for writing.
        alone: whether nobody else may hold it meanwhile. Otherwise several processes may hold it, none of them alone.
        wait: whether to wait for other processes.

    Returns:
        Whether the lock was taken; False if another process holds it.
    """
    mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    try:
        fcntl.flock(file, mode if wait else mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        logger.debug("%s: no locks here", file.name)
    return True


def _beside(path: Path, suffix: str) -> Path:
    """Make a name in the same directory that no other process uses."""
    return path.with_name(f".{path.name}.{uuid4().hex[:_UNIQUE]}{suffix}")


def _all_beside(path: Path, suffix: str) -> list[Path]:
    """List everything that has a name of `_beside`."""
    pattern = f".{escape(path.name)}.{'[0-9a-f]' * _UNIQUE}{suffix}"
    return list(path.parent.glob(pattern))


@contextmanager
def _temporary(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a file or directory beside a path, and hold its lock; first remove what killed processes left there."""
    _remove_abandoned(path)
    descriptor = None
    while descriptor is None:
        temporary = _beside(path, TEMPORARY)
        make(temporary)
        descriptor = _lock_new(temporary)
    try:
        yield temporary
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files and directories of a path that no process holds."""
    for temporary in _all_beside(path, TEMPORARY):
        with suppress(OSError), _lock_if_free(temporary):
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink()


def _lock_new(temporary: Path) -> int | None:
    """Lock a new file or directory; None if another process took it for abandoned before, and removed it."""
    try:
        descriptor = os.open(temporary, _TO_LOCK)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks, where nothing is removed
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if temporary.exists():
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def _lock_if_free(temporary: Path) -> Iterator[None]:
    """Hold the lock of a file or directory.

    Raises:
        OSError: it is held, it cannot be opened, or the file system has no locks.
    """
    descriptor = os.open(temporary, _TO_LOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def flush(path: Path) -> None:
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
    with writing(path), replacing_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any, *, indent: int | None = None) -> None:
    """Replace a file whole with JSON; see `write_text`."""
    write_text(
        path,
        json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent) + "\n",
    )


def check_page(path: Path) -> None:
    """Make sure that a page may be written: to a new place, or over an earlier page of xmtc.

    Raises:
        StorageError: the name is not a page's, or something else exists there.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise StorageError(
            f"{path}: the output is an HTML page: give a file for it, such as report.html"
        )
    with writing(path):
        if path.exists() and not (path.is_file() and GENERATOR.encode() in _head(path)):
            raise StorageError(
                f"{path}: exists, and is not a page of xmtc; choose another place, or move it away"
            )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Convert every error of writing a result in the context to one line.

    Args:
        place: file, folder or URI, as the user knows it.

    Raises:
        StorageError: the system or a library refuses.
    """
    try:
        yield
    except (OSError, *_loaded(_LIBRARY_ERRORS)) as error:
        raise StorageError(
            f"{place}: cannot be written: {reason_of(error)}; free space or choose another place"
        ) from error


@contextmanager
def reading(
    place: object,
    kind: type[XmtcError] = DataError,
    fix: str = "copy or write it again",
    what: str = "cannot be read",
) -> Iterator[None]:
    """Convert every error of reading a file in the context to one line; a user gave the file or may have changed it.

    No line quotes the file: it may hold document text. A path that is a pipe or device is refused beforehand.

    Args:
        place: file, folder or URI, as the user knows it.
        kind: kind of the error.
        fix: what to do.
        what: what is wrong, as in the default.

    Raises:
        XmtcError: of this kind, where the file is missing, cannot be read, or holds another structure.
    """
    try:
        if isinstance(place, Path):
            _check_regular(place)
        yield
    except (*MALFORMED, *_loaded(_LIBRARY_ERRORS)) as error:
        raise kind(f"{place}: {what}: {reason_of(error)}; {fix}") from error


def reason_of(error: BaseException) -> str:
    """Say why something failed, in one line without content of files."""
    if isinstance(error, _loaded([("pydantic", "ValidationError")])):
        return _first_problem(error)
    if isinstance(error, UnicodeDecodeError):
        lines_before = error.object[: error.start + 1].splitlines()
        return f"not UTF-8 in line {len(lines_before)} ({error.reason})"
    if isinstance(error, UnicodeError):
        return "a name that is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        place = f"line {error.lineno}" if "\n" in error.doc else f"column {error.colno}"
        problem = error.msg.removesuffix(" at")  # some of Python's messages end with it
        return f"malformed JSON: {problem} at {place}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, FileNotFoundError):  # Arrow's has no number
        return "no such file"
    if isinstance(error, KeyError):
        return f"lacks {str(error)[:60]}"
    lines = str(error).strip().splitlines()
    first_line = lines[0] if lines else ""
    reason = first_line.split(":")[0].strip()  # after a colon, Arrow quotes the row
    return reason[:_MAX_REASON] or type(error).__name__


def _first_problem(error: Any) -> str:
    """Say what pydantic found first, with its place."""
    problem = error.errors(include_input=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]


def _loaded(classes: Iterable[tuple[str, str]]) -> tuple[type[BaseException], ...]:
    """Select the classes whose module has been imported; others cannot have been raised."""
    return tuple(
        getattr(sys.modules[module], name)
        for module, name in classes
        if module in sys.modules
    )
