"""Tables and columns in memory, of pandas, polars, Arrow, Hugging Face `datasets` or Python."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from xmtc.data.readers.arrow_table import class_names
from xmtc.data.readers.base import no_column
from xmtc.data.readers.cells import named, plain
from xmtc.errors import DataError
from xmtc.files import reading


def column_names(table: Any) -> list[Any]:
    """List the columns of a table; none if it is something else."""
    attributes = ("column_names",) if isinstance(table, pa.Table | pa.RecordBatch) else ("columns", "column_names")
    found = [table] if isinstance(table, Mapping) else [getattr(table, attribute, None) for attribute in attributes]
    return list(next((names for names in found if names is not None), ()))


def check_lengths(columns: Mapping[str, list[Any]]) -> None:
    """Raise DataError unless columns have one length; a mapping may hold others."""
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{number:,} in {name}" for name, number in sizes.items())
        raise DataError(f"columns must be of one length; there are {shown}")


def column_of(table: Any, name: str) -> list[Any]:
    """Convert a column of a table to Python objects; numbers of classes become their names.

    Raises:
        DataError: the table has no such column, or two, or it is no column of values.
    """
    keys = [key for key in column_names(table) if str(key) == name]
    if len(keys) != 1:
        there = no_column(name, column_names(table))
        raise DataError(f"{len(keys)} columns are called {name!r}; rename one" if keys else f"the table: {there}")
    names = _class_names(table, name)
    with reading(f"a {type(table).__name__}", fix="collect it first", what="no values yet"):
        column = table[keys[0]]
    return converted(name, values_of(column, name), lambda cell: named(cell, names))


def values_of(column: Any, what: str) -> list[Any]:
    """Convert the values of a column to Python objects; one of a Hugging Face `Dataset` knows the names of its classes.

    Args:
        column: a list, an array …
        what: its name in messages.

    Raises:
        DataError: it is no column, or has no order.
    """
    one = isinstance(column, str | bytes | set | frozenset) or column_names(column) or hasattr(column, "toarray")
    if one or isinstance(cells := plain(column), str) or not isinstance(cells, Iterable):  # an array may be one text
        raise DataError(f"{what}: a {type(column).__name__} is not an ordered list of texts or labels; give a list")
    cells, name = list(cells), str(getattr(column, "column_name", ""))
    names = _class_names(getattr(column, "source", None), name)
    return cells if names is None else converted(name, cells, lambda cell: named(cell, names))


def _class_names(table: Any, name: str) -> Sequence[str] | None:
    """Return the names of the classes of a column, if the table knows any."""
    of_dataset = getattr(getattr(table, "features", None), "arrow_schema", pa.schema([]))
    return class_names(table.schema if isinstance(table, pa.Table | pa.RecordBatch) else of_dataset).get(name)


def converted(name: str, values: Iterable[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Convert cells.

    Raises:
        DataError: names the first that cannot be converted.
    """
    done: list[Any] = []
    try:
        done.extend(map(convert, values))
    except ValueError as problem:
        raise DataError(f"{name}: item {len(done)} {problem}") from None
    return done
