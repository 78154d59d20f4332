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

# Types of errors of pydantic for which there are words of our own.
_UNKNOWN_KEY_ERRORS = ("unexpected_keyword_argument", "extra_forbidden")
_MISSING_KEY_ERRORS = ("missing", "missing_argument", "missing_keyword_only_argument")
_KIND_ERRORS = ("union_tag_invalid", "union_tag_not_found")

_LONGEST_SHOWN = 80
"""Characters of a value in a message."""
_SIMILAR = 0.6
"""Similarity, as `difflib` measures it, from which a word may be meant by another one."""
_VERY_SIMILAR = 0.8
"""The same for a word that stands in another section."""


@dataclass(frozen=True)
class _Spot:
    """Where an error of pydantic's lies in the tree.

    Attributes:
        path: keys and numbers of elements that lead there.
        shape: what is accepted there, if it is known.
        node: the innermost node that exists.
        parent: what the section around it accepts.
    """

    path: tuple[str | int, ...]
    shape: Shape | None
    node: Node
    parent: Shape | None

    @property
    def key(self) -> str:
        return ".".join(str(part) for part in self.path)


@dataclass(frozen=True)
class _Problem:
    """One problem, in the parts of its message.

    Attributes:
        place: file and line.
        subject: the key, with its value where that helps.
        words: what is wrong; the alternatives of a union differ in this alone.
        fix: what to do, as the end of the sentence; empty if the words say it.
    """

    place: Place
    subject: str
    words: str
    fix: str = ""

    @property
    def key(self) -> str:
        return self.subject.split(": ")[0]


def describe_all(
    error: ValidationError, root: Node, shape: Shape
) -> list[tuple[Place, str]]:
    """List each distinct problem of `error` with its place, in the order of the schema."""
    words_of: dict[tuple[Place, str, str], list[str]] = {}
    keys: dict[tuple[Place, str, str], str] = {}
    for details in error.errors(include_url=False):
        problem = _describe(details, root, shape)
        subject = (problem.place, problem.subject, problem.fix)
        words_of.setdefault(subject, []).append(problem.words)
        keys[subject] = problem.key
    messages: list[tuple[Place, str]] = []
    for (place, subject, fix), words in words_of.items():
        inner_prefix = f"{keys[place, subject, fix]}."
        if any(
            other_subject.startswith(inner_prefix) for _, other_subject, _ in words_of
        ):
            continue  # another alternative of its type says where in it the problem lies
        alternatives = " or ".join(dict.fromkeys(words))
        messages.append((place, f"{subject}: {alternatives}{fix}"))
    return messages


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Ask `did you mean 'x'?` if one of the candidates is close to a word; otherwise return an empty string."""
    close = _close(word, candidates, _SIMILAR)
    return f"did you mean {close[0]!r}? " if close else ""


def _close(word: str, candidates: Iterable[str], similarity: float) -> list[str]:
    """Return the candidate that is most like a word, if one is so similar."""
    return difflib.get_close_matches(word, list(candidates), n=1, cutoff=similarity)


def shown(value: Any) -> str:
    """Format a value for a message: short, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = (
        json.dumps(value, ensure_ascii=False)
        if isinstance(value, dict | list)
        else repr(value)
    )
    if len(text) <= _LONGEST_SHOWN:
        return text
    return text[: _LONGEST_SHOWN - 3] + "…"


def _describe(details: ErrorDetails, root: Node, shape: Shape) -> _Problem:
    spot = _locate(details["loc"], root, shape)
    if details["type"] in _UNKNOWN_KEY_ERRORS:
        return _Problem(spot.node.place, spot.key, _unknown_key(spot))
    if details["type"] in _MISSING_KEY_ERRORS:
        return _Problem(spot.node.place, spot.key, "missing", "; give it a value")
    if details["type"] in _KIND_ERRORS:
        return _wrong_kind(spot)
    value = spot.node.plain()
    subject = spot.key or "the configuration"
    if not isinstance(value, dict):
        subject += f": {shown(value)}"
    fix = _fix(value, spot.shape) if spot.shape else ""
    return _Problem(spot.node.place, subject, _words(details, spot.shape), fix)


def _words(details: ErrorDetails, shape: Shape | None) -> str:
    """Say what is wrong with a value, in the words of YAML instead of JSON's and pydantic's."""
    if details["type"] == "string_pattern_mismatch" and shape is not None:
        examples: list[str] = []
        for member in shape.members():
            examples += member.schema.get("examples", ())
        if examples:
            return f"must be like {', '.join(examples)}"
    words = details["msg"].removeprefix("Value error, ")
    words = re.sub(r"^\w+ should (?=be|have|match)", "must ", words)
    words = words.replace("a valid array", "a list")
    words = words.replace("an object", "a section")
    return words.replace(" after validation", "")


def _locate(loc: Sequence[str | int], root: Node, shape: Shape) -> _Spot:
    """Follow pydantic's path, without the parts that name an alternative and not a key."""
    path: tuple[str | int, ...] = ()
    here: Shape | None = shape
    parent: Shape | None = None
    node = root
    parts = list(loc)
    while (
        parts and here is not None and len(here.members()) == 1
    ):  # each alternative of several has errors of its own
        part = parts.pop(0)
        if here.kinds():
            here = here.kinds().get(str(part))
            continue
        path = (*path, part)
        parent = here
        here = here.child(part, node.plain())
        node = _step(node, part)
    if here is None:
        return _Spot(path, here, node, parent)
    if here.kinds() and not parts and isinstance(node.value, dict):
        return _Spot(path, here, node, parent=here)
    for part in parts:  # what is no key here is the name of one of several alternatives
        child = _step(node, part)
        if child is not node:
            path = (*path, part)
            here = None
            node = child
    return _Spot(path, here, node, parent)


def _step(node: Node, part: str | int) -> Node:
    """Return the child, or the node itself if the child is missing."""
    if isinstance(node.value, dict):
        return node.value.get(part, node)
    if (
        isinstance(node.value, list)
        and isinstance(part, int)
        and part < len(node.value)
    ):
        return node.value[part]
    return node


def _unknown_key(spot: _Spot) -> str:
    key = str(spot.path[-1])
    keys = list(spot.parent.properties()) if spot.parent else []
    places: dict[str, str] = {}
    for deeper_key, place in spot.parent.keys_beneath() if spot.parent else ():
        places.setdefault(deeper_key, place)
    hint = suggestion(key, keys)
    deeper = [key] if key in places else _close(key, places, _VERY_SIMILAR)
    if key in places or (deeper and not hint):
        section = ".".join([*map(str, spot.path[:-1]), places[deeper[0]]])
        hint = f"did you mean {section!r}? "
    return f"unknown key; {hint}known here: {', '.join(keys) or 'none'}"


def _wrong_kind(spot: _Spot) -> _Problem:
    kinds = list(spot.shape.kinds()) if spot.shape else []
    listed = ", ".join(kinds)
    kind = spot.node.value.get("kind") if isinstance(spot.node.value, dict) else None
    if kind is None:
        return _Problem(
            spot.node.place,
            spot.key,
            "needs a kind",
            f"; add 'kind:' with one of {listed}",
        )
    hint = suggestion(str(kind.plain()), kinds)
    return _Problem(
        kind.place,
        f"{spot.key}.kind: {shown(kind.plain())}",
        "unknown kind",
        f"; {hint}known: {listed}",
    )


_YES_NO = {
    "on": "true",
    "yes": "true",
    "y": "true",
    "off": "false",
    "no": "false",
    "n": "false",
}
"""What other dialects of YAML read as a boolean, and how it is written here."""


def _fix(value: Any, shape: Shape) -> str:
    """Say how to write what the value probably means, as the end of a sentence; empty if nobody can know."""
    types = {member.schema.get("type") for member in shape.members()}
    if isinstance(value, str):
        choices = [choice for member in shape.members() for choice in member.choices()]
        hint = suggestion(value, choices)
        if hint:
            return f"; {hint.strip()}"
        if "boolean" in types and value.lower() in _YES_NO:
            return f"; write {_YES_NO[value.lower()]}"
    elif isinstance(value, float) and value.is_integer() and "integer" in types:
        return f"; write {int(value)}"
    elif isinstance(value, int | float) and "string" in types:
        return f'; put it in quotes: "{value}"'
    if "array" in types and type(value) in (str, int, float):
        return f"; write [{value}]"
    return ""
