"""Files that name labels: a table of any format. Any bad row is an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xmtc.data.readers.arrow_table import ParquetTable
from xmtc.data.readers.base import LabelInfo, Rejected, quoted_cell
from xmtc.data.readers.csv_table import CsvTable
from xmtc.data.readers.files import missing_column
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.skos import SKOS_FORMATS, SkosTable
from xmtc.data.readers.table import Row, TableFormat
from xmtc.data.readers.table_config import COMPRESSIONS, LabelFileConfig
from xmtc.errors import DataError

_FORMATS: dict[str, TableFormat] = {
    ".csv": CsvTable(),
    ".tsv": CsvTable(),
    ".parquet": ParquetTable(),
    **{ending: SkosTable(syntax) for ending, syntax in SKOS_FORMATS.items()},
}


def read_label_file(settings: LabelFileConfig) -> LabelInfo:
    """Read names and parents of labels.

    Raises:
        DataError: the file cannot be read, a row is wrong, or a column is missing.
    """
    names: dict[str, str] = {}
    rows: dict[str, int] = {}
    parents: dict[str, tuple[str, ...]] = {}
    path = Path(settings.path)
    needed = [column for column in (settings.label, settings.name, settings.parents) if column]
    for number, row in enumerate(sound_rows(_format(path), path), start=1):
        missing = [column for column in needed if column not in row.cells]
        if missing:
            raise missing_column(path, missing[0], row.cells, "set source.labels")
        label = _word(row.cells[settings.label])
        if not label:
            raise DataError(f"{path}: no label in column {settings.label!r} of row {number}")
        if label in rows:
            raise DataError(
                f"{path}: label {quoted_cell(label)} is in row {rows[label]} and again in row {number}; keep one"
            )
        rows[label] = number
        names[label] = _word(row.cells[settings.name] if settings.name else None) or label
        broader = _words(row.cells[settings.parents] if settings.parents else None)
        if broader:
            parents[label] = broader
    return LabelInfo(names, parents, settings.closed)


def sound_rows(format: TableFormat, path: Path) -> Iterator[Row]:
    """Yield the rows of a file; a bad row is an error.

    Raises:
        DataError: the file cannot be read, or a row is bad.
    """
    for row in format.rows(path, None):
        if isinstance(row, Rejected):
            raise DataError(f"{row.where}: {row.reason}")
        yield row


def _format(path: Path) -> TableFormat:
    """Choose the format by the file's extension; JSON lines by default."""
    suffixes = [suffix for suffix in path.suffixes if suffix not in COMPRESSIONS]
    return _FORMATS.get(suffixes[-1], JsonLines()) if suffixes else JsonLines()


def _words(value: Any) -> tuple[str, ...]:
    return tuple(filter(None, map(_word, value if isinstance(value, list) else [value])))


def _word(value: Any) -> str:
    """Read a cell like a label of a document: without surrounding blanks, empty if there is nothing."""
    return "" if value is None else str(value).strip()
