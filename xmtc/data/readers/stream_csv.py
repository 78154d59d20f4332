"""Columns of a CSV file of any size, a block at a time: for tables whose rows need no look at the others."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from xmtc.data.readers.base import Rejected
from xmtc.data.readers.files import check_columns, check_file, open_text, wrong_width
from xmtc.errors import DataError

Rows = Any  # a pandas DataFrame; pandas brings no types
Column = Any

# A row may not be longer than a block; clinical notes have at most some 100 kB.
_BLOCK = 16 << 20


def stream_columns(path: Path, columns: Sequence[str]) -> Iterator[Rows | Rejected]:
    """Yield blocks of rows, each value a text, unchanged, empty if missing; the index is the row in the file.

    Rows with another number of cells than the header come as `Rejected`, without their content.

    Args:
        path: plain or compressed; the header is compared without regard to case.
        columns: which to read, in lower case.

    Raises:
        DataError: the file is missing, empty, damaged, not UTF-8, lacks a column, or has one twice.
    """
    actual = _header(path, columns)
    bad: list[Rejected] = []
    skipped: list[int] = []

    def note(row: pa_csv.InvalidRow) -> str:
        bad.append(
            Rejected(
                f"{path}: row {row.number}",
                wrong_width(row.actual_columns, row.expected_columns),
            )
        )
        skipped.append(row.number)
        return "skip"

    done = 1
    try:
        with pa_csv.open_csv(
            path,
            read_options=pa_csv.ReadOptions(
                block_size=_BLOCK, use_threads=False
            ),  # threads do not know row numbers
            parse_options=pa_csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=note
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in actual.values()},
                include_columns=list(actual.values()),
            ),
        ) as blocks:
            for block in blocks:
                while bad:
                    yield bad.pop(0)
                ahead = np.arange(done + 1, done + 1 + block.num_rows + len(skipped))
                rows = np.setdiff1d(ahead, skipped)[: block.num_rows]
                yield (
                    block.select(list(actual.values()))
                    .rename_columns(list(actual))
                    .to_pandas()
                    .set_axis(rows)
                )
                done = int(rows[-1]) if len(rows) else done
        yield from bad  # without rows there is no block
    except (pa.ArrowException, OSError) as error:
        # Only the first line, and not of parse errors: Arrow quotes the row, and rows here are clinical text.
        what = (
            str(error).splitlines()[0].split(":")[0]
            if isinstance(error, pa.ArrowException)
            else str(error)
        )
        raise DataError(
            f"{path}: cannot be read after row {done}: {what}; the file is damaged or cut short"
        ) from None


def _header(path: Path, columns: Sequence[str]) -> dict[str, str]:
    """Map each wanted column to its name in the file."""
    with open_text(check_file(path)) as lines:
        names = [
            cell.strip().strip('"')
            for cell in lines.readline().rstrip("\r\n").split(",")
        ]
    check_columns(
        path,
        columns,
        [name.lower() for name in names],
        "give the file as it was published",
    )
    by_lower = {name.lower(): name for name in names}
    return {column: by_lower[column] for column in columns}
