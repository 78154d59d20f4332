"""Files of a source: their content, their lines, compressed or not, and the words for what is wrong with them."""

import codecs
import io
import json
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import xxhash
import zstandard

from xmtc.data.readers.base import no_column
from xmtc.data.readers.endings import COMPRESSIONS
from xmtc.errors import DataError
from xmtc.files import RepeatedKeyError, reading, reason_of, without_repeated_keys

_BLOCK = 1 << 20
"""Bytes that are read at once."""
_HEAD = 1 << 10
"""Bytes from which UTF-16 is told, whose every second byte is often zero."""
_FRAME = 32
"""Bytes that hold the head of a frame of zstd."""
_LARGEST_WINDOW = 1 << 27
"""Window that a reader of zstd takes without being told to."""
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How files in UTF-16 begin, as Excel and PowerShell write them."""
_UTF32_MARK = codecs.BOM_UTF32_LE
"""How files in UTF-32 begin, which begin like UTF-16 too."""
_UTF16 = "utf-16"
_CONVERT = "convert the file, if Windows wrote it by iconv -f cp1252 -t utf-8"
_PYTHON = ("{'", "{u'")
"""How Python begins to write a dictionary."""
_FROM_PYTHON = (
    "convert the file: python -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in "
    "sys.stdin]' < FILE > NEW.jsonl"
)
_UNDECODED = re.compile("[\udc80-\udcff]")
"""What Python puts in the place of bytes that are not UTF-8."""


def check_file(path: Path) -> Path:
    """Check that a file can be read, and return its path.

    Raises:
        DataError: there is no such file, it is empty, or its name is not UTF-8, which data libraries do not know.
    """
    if any("\ud800" <= character <= "\udfff" for character in str(path)):
        raise DataError(f"{path}: the name is not UTF-8; rename the file or folder")
    with reading(path):
        if not path.is_file():
            here = f"paths are relative to the folder in which xmtc is started ({Path.cwd()})"
            raise DataError(f"{path}: {_what_is_there(path)}; {here}")
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty")
    return path


def _what_is_there(path: Path) -> str:
    if path.is_dir():
        return "is a folder, not a file"
    return "is a device or pipe, not a file" if path.exists() else "no such file"


def content_hash(paths: Sequence[Path]) -> str:
    """Hash the files' content and order, so that moving or touching them changes nothing.

    Raises:
        DataError: a file is missing or empty.
    """
    digest = xxhash.xxh3_128()
    for path in paths:
        with reading(path):
            digest.update(
                f"{''.join(path.suffixes)}:{check_file(path).stat().st_size};".encode()
            )
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
    return digest.hexdigest()


@contextmanager
def open_text(
    path: Path,
    newline: Literal["", "\n"] = "",
    *,
    encoding: str | None = None,
    fix: str = _CONVERT,
) -> Iterator[io.TextIOWrapper]:
    """Open the text of a plain, .gz, .zst, .bz2 or .xz file, without a byte-order mark.

    Args:
        path: the file.
        newline: the line feed: a lone carriage return ends no line then.
        encoding: None: UTF-8, or UTF-16 if the file begins with its mark.
        fix: what to do about a text that is not UTF-8.

    Raises:
        DataError: missing, empty, truncated or damaged file, or bytes that are not text of its encoding.
    """
    check_file(path)
    with reading(path, fix="the file is damaged or cut short"):
        read_as = encoding or _encoding_of(path)
        try:
            with (
                _open_bytes(path) as data,
                io.TextIOWrapper(data, encoding=read_as, newline=newline) as text,
            ):
                yield text
        except UnicodeDecodeError as error:
            if encoding is not None:
                raise DataError(
                    f"{path}: not {encoding} text ({error.reason}); name its encoding, or convert the file to UTF-8"
                ) from None
            if read_as == _UTF16:
                raise DataError(
                    f"{path}: not UTF-16 text ({error.reason}), though it begins like it; write the file again as UTF-8"
                ) from None
            line = _first_undecodable(path)
            raise DataError(
                f"{path}:{line}: not UTF-8 text ({error.reason}); {fix}"
            ) from None


def _encoding_of(path: Path) -> str:
    """Return the encoding of a text.

    Raises:
        DataError: it looks like UTF-16 without a mark, of which nobody knows the order of bytes.
    """
    with _open_bytes(path) as data:
        head = data.read(_HEAD)
    if head.startswith(_UTF16_MARKS) and not head.startswith(_UTF32_MARK):
        return _UTF16
    if head.count(0) > len(head) / 4:
        raise DataError(
            f"{path}: not UTF-8 text, but perhaps UTF-16 without its mark, or UTF-32; convert the file"
        )
    return "utf-8-sig"


def bounded_lines(text: io.TextIOWrapper, most: int) -> Iterator[str | None]:
    """Yield the lines of a text with their ends, or None for a line of more than `most` characters.

    Of such a line, only that many characters are ever in memory; the rest of it is skipped when the next one is read.
    """
    while line := text.readline(most):
        if len(line) < most or line.endswith(("\n", "\r")):
            yield line
            continue
        yield None
        while len(line) == most and not line.endswith(("\n", "\r")):
            line = text.readline(most)


def json_object(line: str) -> dict[str, Any]:
    """Parse a line that holds a JSON object.

    Raises:
        ValueError: it holds none; the message says why without the line.
    """
    try:
        row = json.loads(line.rstrip(), object_pairs_hook=without_repeated_keys)
    except json.JSONDecodeError as error:
        if line.startswith(_PYTHON):
            raise ValueError(f"Python's writing, not JSON; {_FROM_PYTHON}") from None
        raise ValueError(f"{reason_of(error)}; a line holds one object") from None
    except RepeatedKeyError:
        raise ValueError("a key occurs twice, and one value would be lost") from None
    except (ValueError, RecursionError):
        raise ValueError(
            "malformed JSON: a number of thousands of digits, or thousands of lists in lists"
        ) from None
    if not isinstance(row, dict):
        raise ValueError(
            f"a JSON {type(row).__name__}, not an object on each line (pandas: lines=True)"
        )
    return row


def line_count(path: Path, *, quotes: bool = False) -> int | None:
    """Count the lines of a plain text file; None for a compressed one, which would have to be decompressed.

    Args:
        path: the file.
        quotes: whether line breaks between double quotes are part of a line, as in CSV.
    """
    if path.suffix.lower() in COMPRESSIONS:
        return None
    lines = 0
    last = b"\n"
    inside = False
    with reading(path), path.open("rb") as file:
        while block := file.read(_BLOCK):
            parts = block.split(b'"') if quotes else [block]
            for place, part in enumerate(parts):
                if place > 0:  # a quote stood before it
                    inside = not inside
                if not inside:
                    lines += part.count(b"\n")
            last = block[-1:]
    if last != b"\n":
        lines += 1  # the last line has no end
    return lines


def missing_column(
    path: Path, missing: str, there: Iterable[object], advice: str
) -> DataError:
    """Make the error for a column that a table lacks.

    Args:
        path: the file.
        missing: the column.
        there: columns that it has.
        advice: how to name another one.
    """
    return DataError(f"{path}: {no_column(missing, there)}; {advice}")


def check_columns(
    path: Path, needed: Iterable[str], there: Sequence[str], advice: str
) -> None:
    """Check that a table has each of some columns once.

    Raises:
        DataError: see `missing_column`, or there are two of a name.
    """
    for name in needed:
        if name not in there:
            raise missing_column(path, name, there, advice)
        if there.count(name) > 1:
            numbered = [
                f"{name} {number}" for number in range(1, there.count(name) + 1)
            ]
            raise DataError(
                f"{path}: {there.count(name)} columns are called {name!r}; rename them, such as {', '.join(numbered)}: "
                "several columns of labels that are numbered so are read together"
            )


def wrong_width(cells: int, columns: int) -> str:
    """Describe a row of a table whose number of cells differs from the header's."""
    return f"{cells} cells, but the header has {columns} columns; check the row's quotes and delimiters"


def _open_bytes(path: Path) -> Any:
    """Open a file for reading bytes, decompressed."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression == "xz":  # which Arrow does not know
        return lzma.open(path)
    if compression == "zstd":
        _check_window(path)
    return pa.input_stream(str(path), compression=compression, buffer_size=_BLOCK)


def _check_window(path: Path) -> None:
    """Refuse a file that zstd needs more memory for than Arrow gives it.

    Raises:
        DataError: it was compressed so.
    """
    with path.open("rb") as file:
        head = file.read(_FRAME)
    try:
        window = zstandard.get_frame_parameters(head).window_size
    except zstandard.ZstdError:  # whoever reads the file says that it is damaged
        return
    if window > _LARGEST_WINDOW:
        raise DataError(
            f"{path}: compressed with a window of {window >> 20:,} MiB; decompress it: zstd -d --long=31 {path.name}"
        )


def _first_undecodable(path: Path) -> int:
    """Find the first line that is not UTF-8, numbered from 1."""
    with (
        _open_bytes(path) as data,
        io.TextIOWrapper(data, "utf-8", "surrogateescape", newline="\n") as lines,
    ):
        return next(
            number
            for number, line in enumerate(lines, start=1)
            if _UNDECODED.search(line)
        )
