"""Convert pydantic's errors to messages: `file:line: key: value: problem; fix`."""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from xmtc.config.shape import Shape
from xmtc.config.yaml_tree import Node, Place

_UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")


@dataclass(frozen=True)
class _Spot:
    """Where an error of pydantic's lies in the tree: its path, its shape and the innermost node that exists."""

    path: tuple[str | int, ...]
    shape: Shape | None
    node: Node
    parent: Shape | None

    @property
    def key(self) -> str:
        return ".".join(str(part) for part in self.path)


def describe_all(error: ValidationError, root: Node, shape: Shape) -> list[tuple[Place, str]]:
    """List each distinct problem of `error` with its place, in the order of the schema."""
    found: dict[tuple[Place, str, str], list[str]] = {}
    for details in error.errors(include_url=False):
        place, subject, problem, fix = _describe(details, root, shape)
        found.setdefault((place, subject, fix), []).append(problem)
    return [
        (place, f"{key}: {' or '.join(dict.fromkeys(problems))}{fix}")
        for (place, key, fix), problems in found.items()
        # another alternative of its type says where in it the problem lies
        if not any(other.startswith(f"{key.split(': ')[0]}.") for _, other, _ in found)
    ]


def suggestion(word: str, known: Iterable[str]) -> str:
    """Ask `did you mean 'x'?` if a known word is close; otherwise return an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}? " if close else ""


def shown(value: Any) -> str:
    """Format a value for a message: short, on one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _describe(details: ErrorDetails, root: Node, shape: Shape) -> tuple[Place, str, str, str]:
    """Return the place, the key with its value, what is wrong, in which alternatives of a union differ, and the fix."""
    spot = _locate(details["loc"], root, shape)
    value = spot.node.plain()
    if details["type"] in _UNKNOWN:
        return spot.node.place, spot.key, _unknown_key(spot), ""
    if details["type"] in _MISSING:
        return spot.node.place, spot.key, "missing", "; give it a value"
    if details["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_kind(spot)
    words = re.sub(r"^\w+ should (?=be|have|match)", "must ", details["msg"].removeprefix("Value error, "))
    words = words.replace("a valid array", "a list").replace("an object", "a section").replace(" after validation", "")
    members = spot.shape.members() if spot.shape else []
    like = ", ".join(one for member in members for one in member.schema.get("examples", ()))
    if like and details["type"] == "string_pattern_mismatch":
        words = f"must be like {like}"
    given = (spot.key or "the configuration") + ("" if isinstance(value, dict) else f": {shown(value)}")
    return spot.node.place, given, words, _fix(value, spot.shape) if spot.shape else ""


def _locate(loc: Sequence[str | int], root: Node, shape: Shape) -> _Spot:
    """Follow pydantic's path, without the parts that name an alternative and not a key."""
    path: tuple[str | int, ...] = ()
    here: Shape | None = shape
    parent: Shape | None = None
    node, parts = root, list(loc)
    while parts and here is not None and len(here.members()) == 1:  # of several, each has errors
        if here.kinds():
            here = here.kinds().get(str(parts.pop(0)))
            continue
        part = parts.pop(0)
        path, parent, here = (*path, part), here, here.child(part, node.plain())
        node = _step(node, part)
    if here is not None and here.kinds() and not parts and isinstance(node.value, dict):
        return _Spot(path, here, node, here)
    for part in parts if here is not None else ():  # what is no key here names one of several alternatives
        if (child := _step(node, part)) is not node:
            path, here, node = (*path, part), None, child
    return _Spot(path, here, node, parent)


def _step(node: Node, part: str | int) -> Node:
    """Return the child, or the node itself if the child is missing."""
    if isinstance(node.value, dict):
        return node.value.get(part, node)
    if isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return node


def _unknown_key(spot: _Spot) -> str:
    known = list(spot.parent.properties()) if spot.parent else []
    return f"unknown key; {suggestion(str(spot.path[-1]), known)}known here: {', '.join(known) or 'none'}"


def _wrong_kind(spot: _Spot) -> tuple[Place, str, str, str]:
    kinds = list(spot.shape.kinds()) if spot.shape else []
    given = spot.node.value.get("kind") if isinstance(spot.node.value, dict) else None
    if given is None:
        return spot.node.place, spot.key, "needs a kind", f"; add 'kind:' with one of {', '.join(kinds)}"
    hint = suggestion(str(given.plain()), kinds)
    return given.place, f"{spot.key}.kind: {shown(given.plain())}", "unknown kind", f"; {hint}known: {', '.join(kinds)}"


def _fix(value: Any, shape: Shape) -> str:
    members = {member.schema.get("type") for member in shape.members()}
    if isinstance(value, str):
        hint = suggestion(value, (choice for member in shape.members() for choice in member.choices()))
        if hint:
            return f"; {hint.strip()}"
        if "boolean" in members and value.lower() in ("on", "off", "yes", "no", "y", "n"):
            return f"; write {'true' if value.lower() in ('on', 'yes', 'y') else 'false'}"
    elif isinstance(value, float) and value.is_integer() and "integer" in members:
        return f"; write {int(value)}"
    elif isinstance(value, int | float) and "string" in members:
        return f'; put it in quotes: "{value}"'
    return f"; write [{value}]" if "array" in members and type(value) in (str, int, float) else ""
