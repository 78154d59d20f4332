"""What a cell says, whatever holds it: JSON, CSV, Arrow, NumPy, pandas or Python. Every label goes through here."""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any
from uuid import UUID

from xmtc.data.readers.wrappings import spans_in, unwrapped
from xmtc.data.readers.written_lists import list_in

_NOTHING = frozenset({"", "NaN", "nan", "NaT", "<NA>", "\\N"})
"""What pandas, NumPy and MySQL write where nothing is known."""
_UNSEEN = r"[\s\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
"""Blanks, and marks that nobody sees, such as those of writing from right to left."""
_AROUND = re.compile(f"^{_UNSEEN}|{_UNSEEN}$")
_EXPONENT = re.compile(r"\s*\d(?:\.\d+)?e\+\d\d\s*")
"""A large number as R and pandas write it to CSV, such as 1e+05 for 100000."""
_LISTS = ("to_pylist", "as_py", "tolist", "to_list")
"""Methods by which Arrow, NumPy, pandas and polars convert to Python."""
_EXTENDED = "$"
"""How the only key of an object begins by which MongoDB tells a type, such as {"$oid": "5f1b"}."""
ZERO = frozenset({"0", "0.0", "False"})
"""How a column of 0 and 1 says that a label does not fit."""
ONE = frozenset({"1", "1.0", "True"})
"""How it says that one fits."""


TICK = frozenset({"X", "✓", "✔", "☑", "*"})
"""How it says that one fits where a blank says that it does not."""
FITS = ONE | TICK | {"Yes", "Y", "Ja", "Wahr", "Oui", "Vrai", "Si", "Sí", "T"}
"""How cells of several columns say that the label of the column fits …"""
FITS_NOT = ZERO | {"No", "N", "Nein", "Falsch", "Non", "Faux", "F"}
"""… or that it does not."""
UNKNOWN = frozenset({"-1", "-1.0"})
"""How competitions and medical data sets say that nobody knows."""


def absent(value: Any) -> bool:
    """Whether a value says that nothing is known: null, NaN, a blank text, or what pandas and MySQL write for these."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip() in _NOTHING
    try:
        return bool(value != value)  # only NaN differs from itself
    except (
        TypeError,
        ValueError,
        ArithmeticError,
    ):  # pandas' NA, and a signalling NaN; arrays cannot say
        return str(value) == "<NA>" or isinstance(value, Decimal)


def plain(value: Any) -> Any:
    """Convert a value of NumPy, pandas or Arrow to Python's, and bytes to text.

    Raises:
        ValueError: bytes that are not UTF-8.
    """
    if value is None or isinstance(value, str | list | int | float):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"bytes that are not UTF-8 text ({error.reason})"
            ) from None
    kind = getattr(getattr(value, "dtype", None), "char", None)
    if kind == "M":
        value = value.astype("datetime64[us]")  # finer ones would become integers
    for method in _LISTS:
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inside),) = value.items()
        return plain(inside) if str(key).startswith(_EXTENDED) else value
    return value


def word_of(value: Any) -> str | None:
    """Return an identifier as text; None if there is none. Whole floats become integers: columns with gaps have them.

    Raises:
        ValueError: a value of this type identifies nothing.
    """
    value = plain(value)
    if isinstance(value, bool | Integral | UUID):
        return str(value)
    if absent(value):
        return None
    if isinstance(value, str):
        return _number(Decimal(value)) if _EXPONENT.fullmatch(value) else value
    if isinstance(value, Real | Decimal) and math.isfinite(value):
        return _number(value)
    if isinstance(value, datetime) and value.time() == time():
        return str(value.date())  # a day that a library stores as its midnight
    if isinstance(value, date):
        return str(value)
    raise ValueError(
        f"holds a {type(value).__name__}, which is not a label; name another column"
    )


def label_of(value: Any) -> str | None:
    """Return a label in Unicode's composed form (NFC), without blanks or unseen marks around it; None if it is absent.

    An IRI in angle brackets, as Annif and RDF write it, is the IRI.

    Raises:
        ValueError: see `word_of`.
    """
    word = word_of(value)
    if word is None:
        return None
    label = (
        word.strip()
        if word.isascii()
        else unicodedata.normalize("NFC", _AROUND.sub("", word))
    )
    if label.startswith("<") and label.endswith(">") and "://" in label:
        return label[1:-1]
    return label or None


def labels_of(cell: Any, separator: str | None = None) -> tuple[tuple[str, ...], int]:
    """Return the labels of a document without repetitions, and the number of absent entries of a list.

    Args:
        cell: one label, or an array, list or set of labels, or such a list as text.
        separator: separator of labels in text; None: text is one label.

    Raises:
        ValueError: the cell is something else, such as a vector of zeros and ones. The message does not quote it.
    """
    cell = listed(cell)
    is_list = isinstance(cell, Sequence | Set) and not isinstance(cell, str)
    entries = _entries(cell, separator)
    labels: list[str] = []
    for entry in entries:
        label = label_of(entry)
        if label is not None:
            labels.append(label)
    if isinstance(cell, Set):
        labels.sort()  # a set has another order in every process
    distinct = dict.fromkeys(labels)
    if _is_vector(labels, distinct) or (
        is_list and entries and all(isinstance(plain(one), bool) for one in entries)
    ):
        raise ValueError(
            f"is a vector of {len(labels)} zeros and ones, not a list of labels; write labels instead: "
            "[[name for name, one in zip(names, vector) if one] for vector in vectors]"
        )
    absences = len(entries) - len(labels) if is_list else 0
    return tuple(distinct), absences


def listed(cell: Any) -> Any:
    """Return what a cell lists, without the wrappings of tools: a list, or one value.

    Raises:
        ValueError: it is no list of labels. The message does not quote it.
    """
    cell = unwrapped(list_in(unwrapped(plain(cell))))
    if isinstance(cell, Mapping):
        raise ValueError(
            f"is a {type(cell).__name__}, not a list of labels or a string; name another column"
        )
    if spans_in(cell):
        raise ValueError(
            "marks places of the text, such as [0, 5, a name], not labels of documents; export document labels, or "
            "name another column"
        )
    return cell


def _entries(cell: Any, separator: str | None) -> Sequence[Any]:
    """Return what a cell lists: the items of a list, the parts of a text, or the cell itself."""
    if isinstance(cell, str):
        return split_cell(cell, separator) if separator else [cell]
    if isinstance(cell, Sequence | Set):
        return list(cell)
    return [cell]


def _is_vector(labels: Sequence[str], distinct: Mapping[str, None]) -> bool:
    """Whether labels are only zeros and ones, of which one occurs twice."""
    repeated = len(distinct) < len(labels)
    return repeated and distinct.keys() <= ZERO | ONE and not ZERO.isdisjoint(distinct)


def mark_of(cell: Any) -> bool | None:
    """Return whether a cell of a column for one label says that the label fits; None if it says nothing.

    Raises:
        ValueError: the cell is neither 0 nor 1. The message does not quote it.
    """
    cell = plain(cell)
    if absent(cell):
        return None
    mark = str(cell).strip().capitalize()
    if mark in UNKNOWN:
        return None
    if mark not in FITS | FITS_NOT:
        raise ValueError(
            "is neither 0 nor 1, nor true or false, yes or no; name columns of 0 and 1, or one column of labels"
        )
    return mark in FITS


def split_cell(cell: str, separator: str) -> list[str]:
    """Split a cell; quotes around a label keep the separators in it, as in CSV."""
    if '"' not in cell:
        return cell.split(separator)
    quoted = r'\s*"(?:[^"]|"")*+"\s*'
    parts = re.findall(rf"({quoted}|.*?)(?:{re.escape(separator)}|\Z)", cell, re.DOTALL)
    return [_unquoted(part.strip(), separator) for part in parts]


def _unquoted(part: str, separator: str) -> str:
    return part[1:-1].replace('""', '"') if separator in part else part


def text_of(cell: Any) -> str | None:
    """Return a text; None if there is none. A list of paragraphs is a text of several lines.

    Raises:
        ValueError: the cell is something else.
    """
    cell = plain(cell)
    if absent(cell):
        return None
    if isinstance(cell, Real | Decimal | date | time):
        raise ValueError("is a number or a date, not a text; name another column")
    if isinstance(cell, list) and all(isinstance(paragraph, str) for paragraph in cell):
        return "\n".join(cell) or None
    if not isinstance(cell, str):
        raise ValueError(
            f"is a {type(cell).__name__}, not a string; name another column"
        )
    return cell


def named(cell: Any, names: Sequence[str] | None) -> Any:
    """Replace class numbers in a cell by their names; `datasets` has -1 for an unknown label.

    Raises:
        ValueError: the cell is a vector of zeros and ones.
    """
    cell = plain(cell)
    if names is None or isinstance(cell, str | Mapping):
        return cell
    if isinstance(cell, Sequence | Set):
        if len(cell) == len(names) > 2:
            labels_of(cell)  # raises if it is a vector
        return [named(item, names) for item in cell]
    if absent(cell) or not 0 <= cell < len(names):
        return None
    return names[int(cell)]


def near_pairs(
    labels: Iterable[str], known: Iterable[str] | None = None
) -> list[tuple[str, str]]:
    """List pairs of labels that differ only in case, blanks, leading zeros, a final `.0`, or a dot that one lacks.

    Args:
        labels: labels.
        known: labels to compare them with; None: the earlier ones of `labels`.
    """
    first: dict[str, str] = {}
    without_dots: dict[str, str] = {}

    def remember(label: str, key: str) -> None:
        first.setdefault(key, label)
        if "." in key:
            without_dots.setdefault(key.replace(".", ""), label)

    for label in known or ():
        remember(label, _near_key(label))
    pairs: list[tuple[str, str]] = []
    for label in labels:
        key = _near_key(label)
        other = (
            first.get(key) or first.get(key.replace(".", "")) or without_dots.get(key)
        )
        if other is not None and other != label:
            pairs.append((other, label))
        if known is None:
            remember(label, key)
    return pairs


def _near_key(label: str) -> str:
    """Return what labels have in common that differ as `near_pairs` says."""
    key = unicodedata.normalize("NFKC", label).casefold()
    if key.isascii():
        key = "".join(key.split())
    else:
        key = "".join(
            letter
            for letter in key
            if not letter.isspace() and unicodedata.category(letter) != "Cf"
        )
    return re.sub(r"^0+(?=\d)|(?<=\d)\.0$", "", key)


def _number(value: Any) -> str:
    """Write a finite number: whole ones as integers, others with the fewest digits that their precision needs."""
    if value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    from numpy import float32  # settings import this module, and they import no library

    single = float32(value)
    is_single = float(single) == value
    return repr(float(str(single)) if is_single else float(value))
