"""Lists in the text of one cell, as JSON, Python, NumPy, pandas, Stack Exchange, databases and R write them."""

import ast
import json
import re
from contextlib import suppress
from typing import Any

_LITERAL = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[-+\w.]++"""
"""A text in quotes, or a number or word without them."""
_ITEM = rf"np\.\w++\((?:{_LITERAL})\)|<NA>|{_LITERAL}"
"""An item of a list; NumPy's scalars are written as calls, and pandas' missing value as <NA>."""
_ITEMS = re.compile(rf"[\[({{](?>\s*+(?:{_ITEM})\s*+,?+)*+\s*+[\])}}]")
"""A list as Python, NumPy (without commas, or of its scalars) or pandas (with NaN) writes it."""
_OPENINGS = ("[", "(", "{", "set()", "frozenset(", 'c("')
_SET = re.compile(r"^(?:frozen)?set\((.*)\)$", re.DOTALL)
_ONE_IN_BRACKETS = re.compile(r"\([^,]+\)")
"""A remark such as (other), which is no list: Python writes a list of one as ("other",)."""
_CODE = r"\d+(?:\.\d+0)?"
"""A number whose digits matter, such as 007 or 250.00."""
_BRACKETS = (r"[^][]*,[^][]*", r"\s*[\[({].*", _CODE)
"""What stands between [ and ] in a list without quotes: commas, lists or objects, one code."""
_BRACES = (r"[^{}]*,[^{}]*", r"['\"].*", _CODE)
"""What stands between { and }: commas, a text in quotes, one code."""
_FOREIGN = (
    re.compile(rf"\[(?:{'|'.join(_BRACKETS)})\]", re.DOTALL),
    re.compile(rf"\{{(?:{'|'.join(_BRACES)})\}}", re.DOTALL),
    re.compile(r'c\(".*"\)', re.DOTALL),
)
"""A list as databases and R write it, or objects: items have no quotes, or another meaning, or are codes like 007."""
_TAGS = re.compile(r"(?:<[^<>:]+>)+")
"""Tags as Stack Exchange writes them, such as <python><list>; IRIs in angle brackets have colons."""
_NOT_TAGS = frozenset({"<NA>"})
_SCALAR = re.compile(r"^np\.(?:(True|False)_|\w+\((.*)\))$", re.DOTALL)
"""A scalar as NumPy 2 writes it, such as np.str_('a') or np.True_."""


def list_in(cell: Any) -> Any:
    """Parse the text that JSON, Python, NumPy, pandas or others write for a list; return anything else unchanged.

    Raises:
        ValueError: it is a list as others write it.
    """
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    if _TAGS.fullmatch(text) and text not in _NOT_TAGS:
        return text[1:-1].split("><")
    if not text.startswith(_OPENINGS):
        return cell
    text = _SET.sub(r"\1", text) or "[]"  # an empty set is written as set()
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_literal)
    if _ITEMS.fullmatch(text) and not _ONE_IN_BRACKETS.fullmatch(text):
        with suppress(ValueError, SyntaxError):
            return [_literal(item) for item in re.findall(_ITEM, text)]
    if any(pattern.fullmatch(text) for pattern in _FOREIGN):
        raise ValueError(
            'is not a list of labels in a form that is read; write it as JSON, such as ["a", "b"]'
        )
    return cell


def _literal(item: str) -> Any:
    """Evaluate an item of a list.

    Raises:
        ValueError: it is a code whose digits would be lost, such as 250.00.
    """
    if "." in item and re.fullmatch(_CODE, item):
        raise ValueError(item)
    item = _SCALAR.sub(r"\1\2", item)
    return None if item in ("nan", "<NA>") else ast.literal_eval(item)
