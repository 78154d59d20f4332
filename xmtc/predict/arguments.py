"""Check the arguments that Python callers pass to a model: texts, labels and limits. Nothing else checks them."""

import numbers
from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from xmtc.errors import ConfigError, DataError

_ACCEPTED = "a list, tuple, Series, one-dimensional array or iterator of strings"


def as_texts(given: Any) -> list[str]:
    """Convert `given` to a list of texts, in order; an iterator is read to its end.

    Args:
        given: a list, tuple, Series, Arrow array, one-dimensional NumPy array, or another ordered iterable.

    Raises:
        DataError: it is a single text, a table, a mapping, a set or not a collection, or an item is not a Unicode
            string. The message never quotes a text.
    """
    if isinstance(given, str):
        raise DataError("this is one text, not a list of texts: put it in brackets")
    return _strings(given, "text")


def as_text(given: Any) -> str:
    """Check a single text.

    Raises:
        DataError: `given` is not a Unicode string.
    """
    return _checked(given, "the text")


def as_labels(given: Any) -> list[str]:
    """Convert `given` to a list of labels, in order; a string is one label.

    Raises:
        DataError: see `as_texts`.
    """
    return [_checked(given, "the label")] if isinstance(given, str) else _strings(given, "label")


def as_count(given: Any, name: str, least: int = 1) -> int:
    """Check a whole number of at least `least`.

    Raises:
        ConfigError: it is not a whole number, or too small.
    """
    if isinstance(given, bool) or not isinstance(given, numbers.Integral) or given < least:
        raise ConfigError(f"{name}={_shown(given)}: give a whole number from {least}")
    return int(given)


def as_threshold(given: Any) -> float | Literal["tuned"]:
    """Check a threshold: `tuned`, or a probability; None is 0.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(given, str) and given == "tuned":
        return "tuned"
    if given is None:
        return 0.0
    if isinstance(given, bool) or not isinstance(given, numbers.Real) or not 0 <= float(given) <= 1:
        raise ConfigError(f"threshold={_shown(given)}: give 'tuned', a probability from 0 to 1, or None")
    return float(given)


def _strings(given: Any, what: str) -> list[str]:
    return [_checked(item, f"{what} {place}") for place, item in enumerate(_items(given, what))]


def _items(given: Any, what: str) -> Iterable[Any]:
    """Iterate over an ordered, one-dimensional collection."""
    kind = type(given).__name__
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return given.to_pylist()
    if isinstance(given, Mapping) or hasattr(given, "columns") or hasattr(given, "column_names"):
        raise DataError(f"a {kind} has several columns: give the column with the {what}s, such as table[{what!r}]")
    if isinstance(given, Set):
        raise DataError(f"a {kind} has no order, so results cannot be assigned to {what}s: give {_ACCEPTED}")
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise DataError(f"the array of {what}s has {given.ndim} dimensions: give {_ACCEPTED}")
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise DataError(f"a {kind} is not a collection of {what}s: give {_ACCEPTED}")
    return given


def _checked(item: Any, name: str) -> str:
    if not isinstance(item, str):
        advice = "decode it first" if isinstance(item, bytes | bytearray) else "leave it out"
        raise DataError(f"{name} is a {type(item).__name__}, not a string: {advice}")
    try:
        item.encode()
    except UnicodeEncodeError:
        raise DataError(f"{name} holds half of a character, such as \\ud83d of \\ud83d\\ude00: correct it") from None
    return item


def _shown(given: Any) -> str:
    """Format a setting for a message. A long value may be a misplaced text, so only its type is shown."""
    shown = repr(given)
    return shown if len(shown) <= 40 else f"a {type(given).__name__}"
