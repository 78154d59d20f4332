"""The reference page of the configuration: `python tools/docs/configuration_reference.py PAGE`."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydantic._internal._docs_extraction import extract_docstrings_from_cls

from xmtc.config.shape import Shape
from xmtc.run.config import RunConfig

_INTRODUCTION = """# Configuration

Every key of a configuration file. This page is generated from the schema by `make docs`; a test keeps it current.

A file may build on another one with `base: other.yaml` (relative to itself): sections are merged key by key, lists are
replaced, and a section whose `kind` changes is replaced whole. On the command line, `key=value` overrides come last:
`xmtc train configs/quickstart.yaml finetune.batch_size=16 model.scorers.0.penalty=1`. Values are YAML; `1e-4` is a
number, only `true` and `false` are booleans. `--print-config` shows the resolved file. A section of which there are
kinds has a key `kind`; a section without a default has the defaults of its keys.
"""


def reference(schema: type[Any]) -> str:
    """Write the reference page of a configuration dataclass, in Markdown."""
    root = with_inherited_words(Shape.of(schema))
    places: dict[str, list[tuple[str, str]]] = {}
    for place, description, keys in _sections(root, "", ""):
        places.setdefault(keys or description, []).append((place, description))
    sections = [_joined(same, content) for content, same in places.items()]
    return "\n".join([_INTRODUCTION, *_keys(root, ""), *sections])


def with_inherited_words(root: Shape) -> Shape:
    """Describe fields that a class of settings has from its bases; pydantic reads the docstrings of the class alone."""
    modules = [
        module for name, module in sys.modules.items() if name.startswith("xmtc.")
    ]
    named = [
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type)
    ]
    classes = {one.__name__: one for one in named if is_dataclass(one)}
    for name, definition in root.definitions.items():
        bases = [
            base
            for base in reversed(classes.get(name, object).__mro__)
            if is_dataclass(base)
        ]
        words = {
            key: text
            for base in bases
            for key, text in extract_docstrings_from_cls(base, use_inspect=True).items()
        }
        for key, schema in definition.get("properties", {}).items():
            if key in words:
                schema.setdefault("description", words[key])
    return root


def _joined(same: list[tuple[str, str]], content: str) -> str:
    """Write keys once for all their places: kinds, or stage 1 and 2, may share them."""
    heading = "; ".join(dict.fromkeys(place for place, _ in same))
    descriptions = list(dict.fromkeys(description for _, description in same))
    keys = "" if content in descriptions else f"\n{content}"
    if len(descriptions) == 1:
        return f"## {heading}\n\n{descriptions[0]}\n{keys}"
    by_place = "\n".join(f"- {place}: {words}" for place, words in dict(same).items())
    return f"## {heading}\n\n{by_place}\n\nThey have the same keys:\n{keys}"


def _sections(shape: Shape, path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield place, description and keys of every section below `path`, depth first."""
    for key, child in shape.properties().items():
        below = f"{path}{key}"
        items = _item(child)
        if items is not None:
            yield from _alternatives(items, f"{below}[]", kind)
        yield from _alternatives(child, below, kind)


def _alternatives(shape: Shape, path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    kinds = shape.kinds()
    for name, alternative in kinds.items():
        yield from _section(alternative, path, name)
    for member in shape.members():
        if not kinds and member.properties():
            yield from _section(member, path, "")


def _section(shape: Shape, path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    place = f"`{path}`" + (f", kind `{kind}`" if kind else "")
    has_keys = set(shape.properties()) - {"kind"}
    yield (
        place,
        _one_line(_description(shape)),
        "\n".join(_keys(shape, f"{path}.")) if has_keys else "",
    )
    yield from _sections(shape, f"{path}.", kind)


def _keys(shape: Shape, path: str) -> Iterator[str]:
    required = shape.schema.get("required", [])
    for key, child in shape.properties().items():
        if key == "kind" and len(child.choices()) == 1:
            continue  # the heading says it
        default = "required" if key in required else _default(child)
        given = "; ".join(filter(None, (_value_words(child, path + key), default)))
        yield f"- `{key}` ({given}): {_one_line(_description(child))}"
    yield ""


_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "pattern": "matching {}",
}
_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
}


def describe(shape: Shape) -> str:
    """Describe the values that a place accepts."""
    words = " or ".join(dict.fromkeys(map(_member_words, shape.members())))
    return f"{words} or null" if _nullable(shape) else words


def _description(shape: Shape) -> str:
    return shape.schema.get("description", "")


def _nullable(shape: Shape) -> bool:
    return any(member.get("type") == "null" for member in shape.schema.get("anyOf", []))


def _member_words(shape: Shape) -> str:
    if choices := shape.choices():
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    if kinds := shape.kinds():
        return "a section with kind: " + " or ".join(kinds)
    kind = shape.schema.get("type")
    if kind == "array":
        return "a list" + _size_words(shape.schema)
    if kind == "object":
        return "a section"
    bounds = [
        text.format(shape.schema[name])
        for name, text in _BOUNDS.items()
        if name in shape.schema
    ]
    if kind == "string" and shape.schema.get("minLength") and not bounds:
        bounds.append("not empty")
    return ", ".join([_WORDS.get(str(kind), "a value"), *bounds])


def _size_words(schema: dict[str, Any]) -> str:
    low, high = schema.get("minItems"), schema.get("maxItems")
    if low is None and high is None:
        return ""
    if low == high:
        return f" of {low}"
    return f" of {low} or more" if high is None else f" of {low or 0} to {high}"


_SHORTER = (
    (r"\ba (?=list|number|section|value|whole number)", ""),
    (r", at least (\S+)", r" ≥ \1"),
    (r", greater than (\S+)", r" > \1"),
    (r", at most (\S+)", r", ≤ \1"),
    (r", less than (\S+)", r", < \1"),
    (r"matching (\S+)", r"matching `\1`"),
    (r", not empty", ""),
    ("true or false", "boolean"),
    ("one of ", ""),
)


def _value_words(shape: Shape, path: str) -> str:
    """Describe the values of a key, with symbols for bounds."""
    items = _item(shape)
    if items is not None and (items.kinds() or items.properties()):
        return f"list, see `{path}[]`"
    if shape.kinds():
        return ", ".join(shape.kinds()) + (" or null" if _nullable(shape) else "")
    words = describe(shape)
    for long, short in _SHORTER:
        words = re.sub(long, short, words)
    return words.strip()


def _item(shape: Shape) -> Shape | None:
    """Return the shape of a list's items, if this is a list."""
    for member in shape.members():
        if "items" in member.schema:
            return member.child(0, [])
    return None


def _default(shape: Shape) -> str:
    """Format the default as YAML in one line; a section's as its kind, because its keys have defaults."""
    if "default" not in shape.schema:
        return ""
    default = shape.schema["default"]
    if isinstance(default, dict):
        return (
            f"default `{default['kind']}`"
            if "kind" in default and shape.kinds()
            else ""
        )
    as_it_is = (
        isinstance(default, str)
        and default == default.strip() != ""
        and default.isprintable()
    )
    return f"default `{default if as_it_is else json.dumps(default)}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="file to write")
    parser.parse_args().page.write_text(reference(RunConfig), encoding="utf-8")
