"""Labels in wrappings that tools put around them: objects, marks by label, HTML entities, Excel's formulas."""

import html
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

_FORMULA = re.compile(r'\s*="(.*)"\s*', re.DOTALL)
"""How a text is written to CSV so that Excel doesn't read it as a number, such as ="001"."""
_NUMBERED = re.compile(r"\d+;#[^;#]+(?:;#\d+;#[^;#]+)*")
_NUMBER = re.compile(r"(?:^|(?<=;#))\d+;#")
"""How SharePoint writes rows of another list: `3;#law;#7;#sport`."""
_ENTITY = "&lt;"
"""How < is written in HTML, which Stack Exchange's dumps have around tags."""
_NAMES = (
    *("name", "label", "title", "term", "tag", "value", "text", "element", "item"),
    *("category", "classname", "class", "displayName", "id"),
)
"""Keys that name a label in an object, from the clearest."""
_SPANS = frozenset({"start", "end", "start_offset", "end_offset", "offset", "offsets"})
"""Keys of objects that mark a place in the text, not a label of the document."""
_SHOWN = 5
"""Keys that a message names."""


def unwrapped(cell: Any) -> Any:
    """Return what is inside objects, and lists of objects or lists; marks by label become the marked labels.

    Raises:
        ValueError: nothing says which part of an object is the label. The message names keys, never values.
    """
    if isinstance(cell, str):
        return _without_signs(cell)
    if isinstance(cell, Mapping):
        marks = marks_in(cell)
        if marks is not None:
            return [label for label, fits in marks.items() if fits]
        if cell and all(isinstance(value, float) for value in cell.values()):
            raise ValueError(
                "holds a weight for each label, not a list of labels; write those that fit: "
                "[label for label, weight in weights.items() if weight >= 0.5]"
            )
        return unwrapped(_inside(cell))
    if isinstance(cell, list | tuple) and any(
        isinstance(item, Mapping) for item in cell
    ):
        return [_label_in(item) for item in cell]
    if isinstance(cell, list) and cell and all(map(_is_entry, cell)):
        return unwrapped(dict(cell))
    if isinstance(cell, list) and cell and all(map(_is_path, cell)):
        return list(chain.from_iterable(cell))
    return cell


def _is_entry(item: Any) -> bool:
    """Whether an item of a list is a name with a value, as Arrow gives the entries of a map."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _is_path(item: Any) -> bool:
    """Whether an item of a list is a list of names, such as the path of a category in a hierarchy."""
    return isinstance(item, list) and all(isinstance(name, str) for name in item)


def marks_in(cell: Any) -> dict[str, bool] | None:
    """Return which labels of an object such as {"sport": 1.0, "art": 0.0} fit; None if it is something else."""
    if not isinstance(cell, Mapping) or not cell:
        return None
    values = [
        value for value in cell.values() if value is not None
    ]  # Arrow fills in the keys of other rows
    if not values or not all(
        isinstance(value, bool | int | float) and value in (0, 1) for value in values
    ):
        return None
    return {
        str(label): bool(value) for label, value in cell.items() if value is not None
    }


def _without_signs(cell: str) -> str:
    """Undo Excel's formula around a text, HTML's entities in tags, and SharePoint's numbers before names."""
    if _NUMBERED.fullmatch(cell):
        return _NUMBER.sub("", cell)
    formula = _FORMULA.fullmatch(cell)
    if formula is not None:
        return formula[1].replace('""', '"')
    return html.unescape(cell) if _ENTITY in cell else cell


def _inside(cell: Mapping[str, Any]) -> Any:
    """Return the value of an object with one key, or the name in an object with several."""
    if len(cell) == 1:
        return next(iter(cell.values()))
    return _label_in(cell)


def _label_in(item: Any) -> Any:
    """Return the label in an item of a list, which may be an object."""
    if not isinstance(item, Mapping):
        return item
    keys = ", ".join(map(repr, list(item)[:_SHOWN]))
    if not _SPANS.isdisjoint(item):
        raise ValueError(
            f"marks places of the text (keys {keys}), not labels of documents; name another column"
        )
    if len(item) == 1:
        value = next(iter(item.values()))
        return _label_in(value) if isinstance(value, Mapping) else value
    for name in _NAMES:
        value = item.get(name)
        is_number = name == "label" and isinstance(value, int)
        if isinstance(value, str) or is_number:
            return value
    raise ValueError(
        f"holds objects with the keys {keys}, of which none is called {', '.join(_NAMES[:4])}; write a list of labels"
    )


def spans_in(cell: Any) -> bool:
    """Whether a cell lists places of the text, such as [[0, 5, "PERSON"]] of a tool for annotating words."""
    if not isinstance(cell, Sequence) or isinstance(cell, str) or not cell:
        return False
    return all(
        isinstance(item, list | tuple)
        and len(item) == 3
        and all(isinstance(place, int) for place in item[:2])
        for item in cell
    )
