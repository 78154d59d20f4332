"""Files of a source: which there are, what is in them, lines of text compressed or not."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import xxhash

from xmtc.config.base import config
from xmtc.errors import DataError

_BLOCK = 1 << 20
_LONGEST_FIELD = 1 << 30

Paths = str | tuple[str, ...] | None


@config
class SplitFilesConfig:
    """Which files hold which split."""

    train: str | tuple[str, ...]
    """File or files with the training documents. Without `dev` or `test`, `data.split` divides these."""
    dev: str | tuple[str, ...] | None = None
    """File or files of the development split, on which models are chosen and thresholds tuned."""
    test: str | tuple[str, ...] | None = None
    """File or files of the test split."""

    def by_split(self) -> list[tuple[str, Path]]:
        """(split, file), train first, in the order given."""
        named: list[tuple[str, Paths]] = [("train", self.train), ("dev", self.dev), ("test", self.test)]
        return [(split, Path(path)) for split, paths in named for path in as_tuple(paths)]

    def provides(self) -> frozenset[str]:
        """Splits that have files."""
        return frozenset(split for split, _ in self.by_split())


def as_tuple(paths: Paths) -> tuple[str, ...]:
    """One path, several, or none, as a tuple."""
    if paths is None:
        return ()
    return (paths,) if isinstance(paths, str) else paths


def check_file(path: Path) -> Path:
    """The same path.

    Raises:
        DataError: there is no such file, or it is empty.
    """
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "no such file"
        raise DataError(f"{path}: {what}; paths are relative to the folder in which xmtc is started ({Path.cwd()})")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: the file is empty")
    return path


def content_hash(paths: Sequence[Path]) -> str:
    """A hash of the files' content and order, so that moving or touching them changes nothing.

    Raises:
        DataError: a file is missing or empty.
    """
    digest = xxhash.xxh3_128()
    for path in paths:
        digest.update(f"{''.join(path.suffixes)}:{check_file(path).stat().st_size};".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def open_text(path: Path, newline: Literal["", "\n"] = "") -> Iterator[io.TextIOWrapper]:
    """Text of a plain, .gz, .zst or .bz2 file, UTF-8, a byte-order mark left out.

    Args:
        path: the file.
        newline: the line feed: a lone carriage return ends no line then.

    Raises:
        DataError: missing, empty, truncated or damaged file, or bytes that are not UTF-8.
    """
    check_file(path)
    try:
        with _open_bytes(path) as data, io.TextIOWrapper(data, encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        line = _first_undecodable(path)
        raise DataError(f"{path}:{line}: not UTF-8 text ({error.reason}); convert the file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}; the file is damaged or cut short") from error


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON lines file in which nothing may be wrong; blank lines are left out.

    Raises:
        DataError: the file cannot be read, or a line is not a JSON object.
    """
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield json_object(line)
            except ValueError as problem:
                raise DataError(f"{path}:{number}: {problem}") from None


def json_object(line: str) -> dict[str, Any]:
    """The JSON object that a line holds.

    Raises:
        ValueError: it holds none; the message says why without the line.
    """
    try:
        row = json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise ValueError(f"malformed JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise ValueError("malformed JSON: a number of thousands of digits, or thousands of lists in lists") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON {type(row).__name__}, not an object")
    return row


def csv_rows(path: Path, delimiter: str | None = None) -> Iterator[tuple[int, list[str]]]:
    """(line of the file, cells) of every row, the header included; blank rows have no cells.

    Args:
        path: plain or compressed.
        delimiter: None: a tab in files named .tsv, a comma in others.

    Raises:
        DataError: the file cannot be read, or is not CSV.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    with open_text(path) as lines:
        rows = csv.reader(lines, delimiter=delimiter or ("\t" if ".tsv" in path.suffixes else ","), strict=True)
        try:
            for cells in rows:
                yield rows.line_num, cells
        except csv.Error as error:
            raise DataError(f"{path}:{rows.line_num}: malformed CSV: {error}") from None


def _open_bytes(path: Path) -> io.BufferedReader:
    """The content of a file, unpacked."""
    return io.BufferedReader(_Raw(pa.input_stream(str(path), compression="detect", buffer_size=_BLOCK)), _BLOCK)


def _first_undecodable(path: Path) -> int:
    """The first line that is not UTF-8, from 1."""
    with _open_bytes(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    raise AssertionError(f"{path}: every line is UTF-8")


class _Raw(io.RawIOBase):
    """A pyarrow stream as a raw stream, whose `readinto` may fill less than the buffer."""

    def __init__(self, stream: pa.NativeFile):
        self._stream = stream

    def close(self) -> None:
        self._stream.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
