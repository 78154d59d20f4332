"""Check the arguments that Python callers pass to a model: texts, labels and limits. Nothing else checks them."""

import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xmtc.data.fields import ONE_FIELD, FieldText
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.data.readers.cells import absent
from xmtc.data.readers.columns import category_terms
from xmtc.data.readers.in_memory import (
    check_lengths,
    column_names,
    column_of,
    values_of,
)
from xmtc.errors import ConfigError, DataError
from xmtc.fusion.config import BAR, BARS, RULE, RULES

_ACCEPTED = "a list, tuple, Series, one-dimensional array or iterator of strings"


def as_texts(
    given: Any,
    fields: Sequence[str] = ONE_FIELD,
    categories: Sequence[str] = (),
    longest: int = LONGEST_DOCUMENT,
) -> list[str]:
    """Convert `given` to a list of texts, in order; an iterator is read to its end.

    Args:
        given: a list, tuple, Series, Arrow array, one-dimensional NumPy array, or another ordered iterable of texts or
            of mappings, see `as_text`; or a table with a column for each field, see `xmtc.data.readers.in_memory`.
        fields: names of the fields.
        categories: names of the categories.
        longest: most characters of a field.

    Raises:
        DataError: it is a single document, a set or not a collection, an item is neither text nor mapping, or a field
            is missing. The message never quotes a text.
    """
    cells = [given.get(field) for field in fields] if isinstance(given, Mapping) else []
    if isinstance(given, str) or (
        cells and all(isinstance(cell, str) or absent(cell) for cell in cells)
    ):
        raise DataError("this is one text, not a list of texts: put it in brackets")
    if there := column_names(given):
        names = [*fields, *(name for name in categories if name in there)]
        columns = {name: column_of(given, name) for name in names}
        check_lengths(columns)
        given = [
            dict(zip(names, row, strict=True))
            for row in zip(*columns.values(), strict=True)
        ]
    return [
        as_text(item, fields, f"text {place}", categories, longest)
        for place, item in enumerate(_items(given, "text"))
    ]


def as_text(
    given: Any,
    fields: Sequence[str] = ONE_FIELD,
    name: str = "the text",
    categories: Sequence[str] = (),
    longest: int = LONGEST_DOCUMENT,
) -> str:
    """Check a single text, or join the fields of a mapping to one. A field without a text is empty.

    Args:
        given: a text; or a mapping with all fields, and with a value or a list of values for some of the categories,
            whose other keys are ignored.
        fields: names of the fields.
        name: name of the text in messages.
        categories: names of the categories.
        longest: most characters of a field.

    Raises:
        DataError: a text is not a Unicode string, a field is missing, or a category holds no values.
    """
    if not isinstance(given, Mapping):
        return _checked(given, name, longest)
    missing = [field for field in fields if field not in given]
    if missing:
        raise DataError(
            f"{name} has no field {missing[0]!r}: give {', '.join(fields)}, empty if there is none"
        )
    parts = [
        _checked(
            "" if absent(given[field]) else given[field], f"{field} of {name}", longest
        )
        for field in fields
    ]
    try:
        terms = category_terms(given, categories)
    except ValueError as problem:
        raise DataError(f"{name}: {problem}") from None
    return FieldText.join(
        parts, [_checked(term, f"a category of {name}") for term in terms]
    )


def as_labels(given: Any) -> list[str]:
    """Convert `given` to a list of labels, in order, sorted if it is a set; a string is one label.

    Raises:
        DataError: see `as_texts`.
    """
    if isinstance(given, str):
        return [_checked(given, "the label")]
    given = sorted(given, key=str) if isinstance(given, set | frozenset) else given
    return [
        _checked(item, f"label {place}")
        for place, item in enumerate(_items(given, "label"))
    ]


def as_count(given: Any, name: str, least: int = 1) -> int:
    """Check a whole number of at least `least`.

    Raises:
        ConfigError: it is not a whole number, or too small.
    """
    if (
        isinstance(given, bool)
        or not isinstance(given, numbers.Integral)
        or given < least
    ):
        raise ConfigError(f"{name}={_shown(given)}: give a whole number from {least}")
    return int(given)


def as_rule(given: str) -> str:
    """Check the rule of a decision.

    Raises:
        ConfigError: it is none.
    """
    if not re.fullmatch(RULE, given):
        raise ConfigError(f"{_shown(given)}: not a rule: give {' or '.join(RULES)}")
    return given


def as_bar(given: str) -> str:
    """Check what must be expected of a document to be released.

    Raises:
        ConfigError: it is no bar.
    """
    if not re.fullmatch(BAR, given):
        raise ConfigError(f"{_shown(given)}: not a bar: give {' or '.join(BARS)}")
    return given


def as_threshold(given: Any) -> float | str:
    """Check a threshold: `tuned`, a rule, or a probability; None is 0.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(given, str) and (given == "tuned" or re.fullmatch(RULE, given)):
        return given
    if given is None:
        return 0.0
    if (
        isinstance(given, bool)
        or not isinstance(given, numbers.Real)
        or not 0 <= float(given) <= 1
    ):
        raise ConfigError(
            f"threshold={_shown(given)}: give None, a number from 0 to 1, tuned, {', '.join(RULES)}"
        )
    return float(given)


def _items(given: Any, what: str) -> Iterable[Any]:
    """Iterate over an ordered, one-dimensional collection."""
    if isinstance(given, np.ndarray) and given.ndim != 1:
        raise DataError(
            f"the array of {what}s has {given.ndim} dimensions: give {_ACCEPTED}"
        )
    return values_of(given, f"{what}s")


def _checked(item: Any, name: str, longest: int = LONGEST_DOCUMENT) -> str:
    if not isinstance(item, str):
        advice = (
            "decode it first" if isinstance(item, bytes | bytearray) else "leave it out"
        )
        raise DataError(
            f"{name} is of type {type(item).__name__}, not a string: {advice}"
        )
    if len(item) > longest:
        raise DataError(
            f"{name} has {len(item):,} characters, more than {longest:,}: divide it, or raise scorer.longest_document "
            "of the model"
        )
    try:
        item.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{name} holds half of a character, such as \\ud83d of \\ud83d\\ude00: correct it"
        ) from None
    return item


def _shown(given: Any) -> str:
    """Format a setting for a message. A long value may be a misplaced text, so only its type is shown."""
    shown = repr(given)
    return shown if len(shown) <= 40 else f"a {type(given).__name__}"
