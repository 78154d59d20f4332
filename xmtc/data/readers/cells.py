"""What a cell says, whatever holds it: JSON, CSV, Arrow, NumPy, pandas or Python. Every label goes through here."""

import ast
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, repeat
from numbers import Integral, Real
from typing import Any
from uuid import UUID

_NOTHING = frozenset({"", "NaN", "nan", "NaT", "<NA>", "\\N"})
_UNSEEN = r"[\s\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
"""Blanks, and marks that nobody sees, such as those of writing from right to left."""
_AROUND = re.compile(f"^{_UNSEEN}|{_UNSEEN}$")
_LITERAL = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[-+\w.]++"""
_ITEM = rf"np\.\w++\((?:{_LITERAL})\)|<NA>|{_LITERAL}"
_ITEMS = re.compile(rf"[\[({{](?>\s*+(?:{_ITEM})\s*+,?+)*+\s*+[\])}}]")
"""A list as Python, NumPy (without commas, or of its scalars) or pandas (with NaN) writes it."""
_OPENINGS = ("[", "(", "{", "set()", "frozenset(", 'c("')
_CODE = r"\d+(?:\.\d+0)?"
_FOREIGN = re.compile(
    rf"""\[(?:[^][]*,[^][]*|\s*[\[({{].*|{_CODE})\]|\{{(?:[^{{}}]*,[^{{}}]*|['"].*|{_CODE})\}}|c\(".*"\)""", re.DOTALL
)
"""A list as databases and R write it, or objects: items have no quotes, or another meaning, or are codes like 007."""
_TAGS = re.compile(r"(?:<[^<>:]+>)+")
"""Tags as Stack Exchange writes them, such as <python><list>; IRIs in angle brackets have colons."""
_EXPONENT = re.compile(r"\s*\d(?:\.\d+)?e\+\d\d\s*")
"""A large number as R and pandas write it to CSV, such as 1e+05 for 100000."""
ZERO, ONE = frozenset({"0", "0.0", "False"}), frozenset({"1", "1.0", "True"})


def absent(value: Any) -> bool:
    """Whether a value says that nothing is known: null, NaN, a blank text, or what pandas and MySQL write for these."""
    if isinstance(value, str):
        return value.strip() in _NOTHING
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # pandas' NA, and a signalling NaN; arrays cannot say
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
            raise ValueError(f"bytes that are not UTF-8 text ({error.reason})") from None
    if getattr(getattr(value, "dtype", None), "char", None) == "M":
        value = value.astype("datetime64[us]")  # finer ones would become integers
    convert = next((name for name in ("to_pylist", "as_py", "tolist", "to_list") if hasattr(value, name)), None)
    return value if convert is None else getattr(value, convert)()


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
    if isinstance(value, date):
        return str(value.date() if isinstance(value, datetime) and value.time() == time() else value)
    raise ValueError(f"holds a {type(value).__name__}, which is not a label; name another column")


def label_of(value: Any) -> str | None:
    """Return a label in Unicode's composed form (NFC), without blanks or unseen marks around it; None if it is absent.

    An IRI in angle brackets, as Annif and RDF write it, is the IRI.

    Raises:
        ValueError: see `word_of`.
    """
    word = word_of(value)
    if word is None:
        return None
    label = word.strip() if word.isascii() else unicodedata.normalize("NFC", _AROUND.sub("", word))
    return label[1:-1] if label.startswith("<") and label.endswith(">") and "://" in label else label or None


def labels_of(cell: Any, separator: str | None = None) -> tuple[tuple[str, ...], int]:
    """Return the labels of a document without repetitions, and the number of absent entries of a list.

    Args:
        cell: one label, or an array, list or set of labels, or such a list as text.
        separator: separator of labels in text; None: text is one label.

    Raises:
        ValueError: the cell is something else, such as a vector of zeros and ones. The message does not quote it.
    """
    cell = list_in(plain(cell))
    if isinstance(cell, Mapping):
        raise ValueError(f"is a {type(cell).__name__}, not a list of labels or a string; name another column")
    is_list = isinstance(cell, Sequence | Set) and not isinstance(cell, str)
    given = cell if is_list else _split(cell, separator) if isinstance(cell, str) and separator else [cell]
    labels = [label for one in given if (label := label_of(one)) is not None]
    found = dict.fromkeys(sorted(labels) if isinstance(cell, Set) else labels)
    twice = len(found) < len(labels) and found.keys() <= ZERO | ONE and not ZERO.isdisjoint(found)
    if twice or (is_list and given and all(isinstance(plain(one), bool) for one in given)):
        raise ValueError(
            f"is a vector of {len(labels)} zeros and ones, not a list of labels; write labels instead: "
            "[[name for name, one in zip(names, vector) if one] for vector in vectors]"
        )
    return tuple(found), len(given) - len(labels) if is_list else 0


def mark_of(cell: Any) -> bool | None:
    """Return whether a cell of a column for one label says that the label fits; None if it says nothing.

    Raises:
        ValueError: the cell is neither 0 nor 1. The message does not quote it.
    """
    cell = plain(cell)
    if absent(cell):
        return None
    if (mark := str(cell).strip().capitalize()) not in ZERO | ONE:
        raise ValueError("is neither 0 nor 1, nor true or false; name columns of 0 and 1, or one column of labels")
    return mark in ONE


def _split(cell: str, separator: str) -> list[str]:
    """Split a cell; quotes around a label keep the separators in it, as in CSV."""
    if '"' not in cell:
        return cell.split(separator)
    parts = re.findall(rf'(\s*"(?:[^"]|"")*+"\s*|.*?)(?:{re.escape(separator)}|\Z)', cell, re.DOTALL)
    return [part[1:-1].replace('""', '"') if separator in part else part for part in map(str.strip, parts)]


def list_in(cell: Any) -> Any:
    """Parse the text that JSON, Python, NumPy, pandas or others write for a list; return anything else unchanged.

    Raises:
        ValueError: it is a list as others write it.
    """
    if isinstance(cell, str) and _TAGS.fullmatch(cell.strip()) and not absent(cell):
        return cell.strip()[1:-1].split("><")
    if not isinstance(cell, str) or not cell.lstrip().startswith(_OPENINGS):
        return cell
    text = re.sub(r"^(?:frozen)?set\((.*)\)$", r"\1", cell.strip(), flags=re.DOTALL) or "[]"
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_literal)
    if _ITEMS.fullmatch(text) and not re.fullmatch(r"\([^,]+\)", text):
        with suppress(ValueError, SyntaxError):
            return [_literal(one) for one in re.findall(_ITEM, text)]
    if _FOREIGN.fullmatch(text):
        raise ValueError('is not a list of labels in a form that is read; write it as JSON, such as ["a", "b"]')
    return cell


def _literal(item: str) -> Any:
    """Evaluate an item of a list; NumPy's scalars are written as calls. A code 250.00 raises ValueError."""
    if "." in item and re.fullmatch(_CODE, item):
        raise ValueError(item)
    item = re.sub(r"^np\.(?:(True|False)_|\w+\((.*)\))$", r"\1\2", item, flags=re.DOTALL)
    return None if item in ("nan", "<NA>") else ast.literal_eval(item)


def text_of(cell: Any) -> str | None:
    """Return a text; None if there is none.

    Raises:
        ValueError: the cell is something else.
    """
    cell = plain(cell)
    if absent(cell):
        return None
    if isinstance(cell, Real | Decimal | date | time):
        raise ValueError("is a number or a date, not a text; name another column")
    if not isinstance(cell, str):
        raise ValueError(f"is a {type(cell).__name__}, not a string; name another column")
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
            labels_of(cell)
        return [named(one, names) for one in cell]
    return None if absent(cell) or not 0 <= cell < len(names) else names[int(cell)]


def near_pairs(labels: Iterable[str], known: Iterable[str] | None = None) -> list[tuple[str, str]]:
    """List pairs of labels that differ only in case, blanks, leading zeros, a final `.0`, or a dot that one lacks.

    Args:
        labels: labels.
        known: labels to compare them with; None: the earlier ones of `labels`.
    """
    first: dict[str, str] = {}
    dotless: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for label, is_known in chain(zip(known or (), repeat(True)), zip(labels, repeat(False))):
        key = _near_key(label)
        other = first.get(key) or first.get(key.replace(".", "")) or dotless.get(key)
        if not is_known and other is not None and other != label:
            pairs.append((other, label))
        if is_known or known is None:
            first.setdefault(key, label)
            if "." in key:
                dotless.setdefault(key.replace(".", ""), label)
    return pairs


def _near_key(label: str) -> str:
    key = unicodedata.normalize("NFKC", label).casefold()
    if key.isascii():
        key = "".join(key.split())
    else:
        key = "".join(c for c in key if not c.isspace() and unicodedata.category(c) != "Cf")
    return re.sub(r"^0+(?=\d)|(?<=\d)\.0$", "", key)


def _number(value: Any) -> str:
    """Write a finite number: whole ones as integers, others with the fewest digits that their precision needs."""
    if value == int(value):
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    from numpy import float32  # settings import this module

    single = float32(value)
    return repr(float(str(single)) if float(single) == value else float(value))
