"""What a file holds, by its beginning: for files whose names do not say it, or say something else."""

import json
import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path

from xmtc.data.readers.csv_table import CsvTable
from xmtc.data.readers.endings import COMPRESSIONS, ending_of
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table_config import (
    ArrowConfig,
    CsvConfig,
    JsonlConfig,
    ParquetConfig,
    TableSettings,
    table_of,
)
from xmtc.errors import DataError
from xmtc.files import reading

_HEAD = 1 << 12
"""Characters by which a text is told."""
_TABLES: dict[bytes, TableSettings] = {b"PAR1": ParquetConfig, b"ARROW1": ArrowConfig}
"""How tables in binary begin."""
_COMPRESSED = {
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"BZh": ".bz2",
    b"\xfd7zXZ": ".xz",
}
"""How compressed files begin."""
_ZIP = b"PK\x03\x04"
_IN_SPREADSHEETS = ("xl/", "content.xml")
"""How names begin in the archive that a spreadsheet is."""


@dataclass(frozen=True)
class _Unread:
    """A format that is not read.

    Attributes:
        begins: how its files begin.
        what: what it is.
        fix: how to write what is read; `{path}` and `{parquet}` are the file and what may be written.
    """

    begins: bytes
    what: str
    fix: str

    def refusal(self, path: Path) -> DataError:
        """Make the error."""
        quoted = repr(str(path))
        fix = self.fix.format(
            path=quoted, parquet=repr(str(path.with_suffix(".parquet")))
        )
        return DataError(
            f"{path}: this is {self.what}, which xmtc does not read; {fix}"
        )


def _by_pandas(begins: bytes, what: str, function: str) -> _Unread:
    fix = f"in Python, pandas.{function}({{path}}).to_parquet({{parquet}}) writes what it reads"
    return _Unread(begins, what, fix)


_XML = (
    'write its documents as JSON lines, such as {{"text": "…", "labels": ["a", "b"]}}'
)
_SPREADSHEET = _Unread(
    _ZIP, "a spreadsheet", "save it as CSV in UTF-8 in the program that wrote it"
)
_UNREAD = (
    _Unread(b"\xd0\xcf\x11\xe0", _SPREADSHEET.what, _SPREADSHEET.fix),
    _Unread(
        b"SQLite format 3",
        "a database of SQLite",
        "write a table of it as CSV: sqlite3 -header -csv {path} 'select * from TABLE' > table.csv",
    ),
    *(
        _by_pandas(bytes([128, version]), "a pickle of Python", "read_pickle")
        for version in range(2, 6)
    ),
    _by_pandas(b"ORC", "an ORC file", "read_orc"),
    _by_pandas(b"\x89HDF", "an HDF5 file", "read_hdf"),
    _by_pandas(b"$FL2", "a file of SPSS", "read_spss"),
    _by_pandas(b"<stata_dta>", "a file of Stata", "read_stata"),
    _Unread(
        b"Obj\x01", "an Avro file", "write it as Parquet with the program that wrote it"
    ),
    _Unread(b"|", "a table in Markdown", "write it as CSV"),
    _Unread(b"%PDF", "a PDF", "write its text and labels as JSON lines or CSV"),
    _Unread(b"<?xml", "XML", _XML),
    _Unread(b"<", "XML or HTML", _XML),
    _Unread(
        b"TY  - ", "RIS", "export CSV from the program that wrote it, as Zotero does"
    ),
    _Unread(b"@", "BibTeX or ARFF", "export CSV from the program that wrote it"),
)
"""Formats that people have and xmtc does not read; the first that fits says what to do."""


def settings_by_content(path: Path) -> TableSettings | None:
    """Return the settings of the source that reads a file, by its beginning; None if nothing tells.

    Raises:
        DataError: it is something that is not read; the message says what to do.
    """
    head = _first_bytes(path)
    for begins, settings in _TABLES.items():
        if head.startswith(begins):
            return settings
    refuse_unread(path)
    with open_text(path) as text:
        begins_json = text.read(_HEAD).lstrip()[:1] in ("{", "[")
    if begins_json:
        return JsonlConfig
    return CsvConfig if CsvTable().fits(path) else None


def refuse_unread(path: Path) -> None:
    """Refuse a file that holds what is not read, or something else than its name says.

    Raises:
        DataError: it does.
    """
    head = _first_bytes(path)
    if head.startswith(_ZIP):
        raise _refusal_of_zip(path)
    for compressed, ending in _COMPRESSED.items():
        if head.startswith(compressed) and path.suffix.lower() not in COMPRESSIONS:
            raise DataError(
                f"{path}: the file is compressed, and its name does not say so; rename it to {path.name}{ending}"
            )
    for unread in _UNREAD:
        if head.lstrip(b"\xef\xbb\xbf").startswith(unread.begins):
            raise unread.refusal(path)
    by_ending = table_of(path)
    for begins, settings in _TABLES.items():
        if by_ending not in (None, settings) and head.startswith(begins):
            raise _misnamed(path, settings)
    if by_ending in (CsvConfig, JsonlConfig):
        _check_kind_of_text(path, by_ending is JsonlConfig)


def _check_kind_of_text(path: Path, named_json: bool) -> None:
    """Refuse CSV that is called JSON, and JSON that is called CSV."""
    try:
        with open_text(path) as text:
            first_line = text.readline(_HEAD)
    except DataError:  # whoever reads the file says why it cannot be read
        return
    is_object = first_line.lstrip()[:1] == "{" and _is_json(first_line)
    if is_object and not named_json:
        raise _misnamed(path, JsonlConfig)
    is_text = first_line.strip() and first_line.lstrip()[0] not in "{["
    if named_json and is_text and not _is_json(first_line) and CsvTable().fits(path):
        raise _misnamed(path, CsvConfig)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _misnamed(path: Path, settings: TableSettings) -> DataError:
    ending = settings.endings[0]
    compression = path.suffix if path.suffix.lower() in COMPRESSIONS else ""
    stem = path.name.removesuffix(compression)
    right = f"{Path(stem).stem}{ending}{compression}"
    return DataError(
        f"{path}: the file does not hold what {ending_of(path)} says; rename it to {right}"
    )


def _refusal_of_zip(path: Path) -> DataError:
    """Refuse a spreadsheet, or an archive that must be unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        names = []
    if any(name.startswith(_IN_SPREADSHEETS) for name in names):
        return _SPREADSHEET.refusal(path)
    folder = shlex.quote(str(path.with_suffix("")))
    return DataError(
        f"{path}: a zip archive, which xmtc does not read; unpack it: python -m zipfile -e {shlex.quote(str(path))} "
        f"{folder}, and give {folder}"
    )


def _first_bytes(path: Path) -> bytes:
    with reading(path), path.open("rb") as file:
        return file.read(32)
