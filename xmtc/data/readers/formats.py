"""Which format a file has, by the ending of its name."""

from pathlib import Path

from xmtc.data.readers.arrow_table import ArrowTable, ParquetTable
from xmtc.data.readers.csv_table import CsvTable
from xmtc.data.readers.endings import ending_of
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.table import TableFormat

FORMATS: dict[str, type[TableFormat]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonLines,
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
    ".feather": ArrowTable,
}
"""Formats by the ending of a file."""


def format_of(path: Path, otherwise: TableFormat) -> TableFormat:
    """Return the format of a file, by its extension, or another one if that is unknown."""
    format = FORMATS.get(ending_of(path))
    return otherwise if format is None else format()
