"""Tables and columns in memory, of pandas, polars, Arrow, Hugging Face `datasets` or Python."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from xmtc.data.readers.arrow_table import class_names
from xmtc.data.readers.base import no_column
from xmtc.data.readers.cells import named, plain
from xmtc.errors import DataError
from xmtc.files import reading

T = TypeVar("T")


def column_names(table: Any) -> list[Any]:
    """List the columns of a table; none if it is something else."""
    if isinstance(table, Mapping):
        return list(table)
    if isinstance(table, pa.Table | pa.RecordBatch):
        return list(table.column_names)  # their `columns` are the values
    for attribute in ("columns", "column_names"):  # of pandas and polars; of `datasets`
        names = getattr(table, attribute, None)
        if names is not None:
            return list(names)
    return []


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
    if not keys:
        raise DataError(f"the table: {no_column(name, column_names(table))}")
    if len(keys) > 1:
        raise DataError(f"{len(keys)} columns are called {name!r}; rename one")
    class_names = _class_names(table, name)
    with reading(
        f"a {type(table).__name__}", fix="collect it first", what="no values yet"
    ):
        column = table[keys[0]]
    return converted(
        name, values_of(column, name), lambda cell: named(cell, class_names)
    )


def values_of(column: Any, what: str) -> list[Any]:
    """Convert the values of a column to Python objects; one of a Hugging Face `Dataset` knows the names of its classes.

    Args:
        column: a list, an array …
        what: its name in messages.

    Raises:
        DataError: it is no column, or has no order.
    """
    is_text = isinstance(column, str | bytes)
    is_table = bool(column_names(column)) or hasattr(column, "toarray")
    cells = (
        None
        if is_text or is_table or isinstance(column, set | frozenset)
        else plain(column)
    )
    if isinstance(cells, str) or not isinstance(
        cells, Iterable
    ):  # an array without dimensions may be one text
        raise DataError(
            f"{what}: a {type(column).__name__} is not an ordered list of texts or labels; give a list"
        )
    class_names = _class_names(
        getattr(column, "source", None), str(getattr(column, "column_name", ""))
    )
    if class_names is None:
        return list(cells)
    return converted(what, cells, lambda cell: named(cell, class_names))


def _class_names(table: Any, name: str) -> Sequence[str] | None:
    """Return the names of the classes of a column, if the table knows any."""
    if isinstance(table, pa.Table | pa.RecordBatch):
        return class_names(table.schema).get(name)
    schema = getattr(
        getattr(table, "features", None), "arrow_schema", None
    )  # of a Hugging Face `Dataset`
    return None if schema is None else class_names(schema).get(name)


def converted(name: str, values: Iterable[Any], convert: Callable[[Any], T]) -> list[T]:
    """Convert cells.

    Raises:
        DataError: names the first that cannot be converted.
    """
    results: list[T] = []
    try:
        results.extend(convert(value) for value in values)
    except ValueError as problem:
        raise DataError(f"{name}: item {len(results)} {problem}") from None
    return results
