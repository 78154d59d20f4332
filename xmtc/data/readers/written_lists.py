"""Lists in the text of one cell, as JSON, Python, NumPy, pandas, Java, databases, R and Stack Exchange write them."""

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
_OPENINGS = ("[", "(", "{")
_CALL = re.compile(
    r"(?:set|frozenset|array|Index|c|List|Set|Seq|Vector|ArraySeq|ArrayBuffer|WrappedArray)"
    r"\((.*?)(?:,\s*dtype=[^\])}]*)?\)",
    re.DOTALL,
)
"""A list that Python, NumPy, pandas, R or Scala writes as a call, such as `array(['a'], dtype=object)`."""
_ONE_IN_BRACKETS = re.compile(r"\([^,]+\)")
"""A remark such as (other), which is no list: Python writes a list of one as ("other",)."""
_CODE = r"\d+(?:\.\d+0)?"
"""A number whose digits matter, such as 007 or 250.00."""
_BARE = r"""[^\]\[{}()"',\s][^\]\[{}()",]*+"""
"""An item without quotes, which may have blanks within."""
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_BARE_ITEM = re.compile(rf"\s*+(?:({_QUOTED})|({_BARE}))\s*+(?:,|\Z)")
_BARE_LIST = re.compile(
    rf"[\[{{]((?:\s*+(?:{_QUOTED}|{_BARE})\s*+(?:,(?=.)|(?=[\]}}]$)))++)[\]}}]",
    re.DOTALL,
)
"""A list as Java, Spark and databases write it: items without quotes, or with them where they need them."""
_OBJECTS = ("{'", "[{'", "[['", '[["')
"""How Python writes objects, lists of objects and lists of lists."""
_FOREIGN = (
    re.compile(r"\[(?:[^][]*,[^][]*|\s*[\[({].*)\]", re.DOTALL),
    re.compile(r"\{(?:[^{}]*,[^{}]*|['\"].*)\}", re.DOTALL),
)
"""A list of calls, or of objects that nobody writes so."""
_TAGS = re.compile(r"(?:<[^<>:]+>)+")
"""Tags as Stack Exchange writes them, such as <python><list>; IRIs in angle brackets have colons."""
_NOT_TAGS = frozenset({"<NA>"})
_SCALAR = re.compile(r"^np\.(?:(True|False)_|\w+\((.*)\))$", re.DOTALL)
"""A scalar as NumPy 2 writes it, such as np.str_('a') or np.True_."""


def list_in(cell: Any) -> Any:
    """Parse the text that JSON, Python, NumPy, pandas or others write for a list; return anything else unchanged.

    Raises:
        ValueError: it is a list of something that is not read.
    """
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    if _TAGS.fullmatch(text) and text not in _NOT_TAGS:
        return text[1:-1].split("><")
    call = _CALL.fullmatch(text)
    if call is not None:
        inside = call[1].strip()
        text = inside if inside.startswith(_OPENINGS) else f"[{inside}]"
    if not text.startswith(_OPENINGS):
        return cell
    if text == "{}":
        return []
    with suppress(ValueError, RecursionError):
        return json.loads(text, parse_float=_literal)
    if _ITEMS.fullmatch(text) and not _ONE_IN_BRACKETS.fullmatch(text):
        with suppress(ValueError, SyntaxError):
            return [_literal(item) for item in re.findall(_ITEM, text)]
    if text.startswith(_OBJECTS):
        with suppress(ValueError, SyntaxError, RecursionError):
            return ast.literal_eval(text)
    if _BARE_LIST.fullmatch(text):
        return [
            json.loads(quoted) if quoted else _bare(bare)
            for quoted, bare in _BARE_ITEM.findall(text[1:-1])
        ]
    if any(pattern.fullmatch(text) for pattern in _FOREIGN):
        raise ValueError(
            'is not a list of labels in a form that is read; write it as JSON, such as ["a", "b"]'
        )
    return cell


def _bare(item: str) -> str | None:
    """Return an item without quotes, whose digits all count; NULL of databases is none."""
    return None if item.strip() == "NULL" else item.strip()


def _literal(item: str) -> Any:
    """Evaluate an item of a list.

    Raises:
        ValueError: it is a code whose digits would be lost, such as 250.00.
    """
    if "." in item and re.fullmatch(_CODE, item):
        raise ValueError(item)
    item = _SCALAR.sub(r"\1\2", item)
    return None if item in ("nan", "<NA>") else ast.literal_eval(item)
