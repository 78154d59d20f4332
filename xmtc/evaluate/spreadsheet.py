"""CSV that a spreadsheet shows unchanged: no cell is a formula."""

import re

import pandas as pd

_FORMULA = re.compile(r"^\s*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?( ?%)?( [▲▼])?")


def to_csv(frame: pd.DataFrame, *, header: bool = True) -> str:
    """Write a table as CSV; text that a spreadsheet would take for a formula gets an apostrophe in front.

    Carriage returns become blanks. Without `header`, the names of the columns are left out.
    """
    columns = [
        column
        for column in frame.columns
        if pd.api.types.is_object_dtype(frame[column])
    ]
    columns += [
        column
        for column in frame.columns
        if pd.api.types.is_string_dtype(frame[column])
    ]
    shown = frame.assign(
        **{str(column): frame[column].map(harmless) for column in columns}
    )
    return shown.rename(columns=lambda column: harmless(column)).to_csv(
        index=False, header=header
    )


def harmless(cell: object) -> object:
    """Put an apostrophe in front of a cell that would be a formula."""
    if not isinstance(cell, str):
        return cell
    line = cell.replace("\r", " ")  # pandas does not quote it, and it would begin a row
    return f"'{line}" if _FORMULA.match(line) and not _NUMBER.fullmatch(line) else line
