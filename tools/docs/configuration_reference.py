"""The reference page of the configuration: `python tools/docs/configuration_reference.py PAGE`."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xmtc.config.shape import Shape
from xmtc.run.config import RunConfig

_INTRODUCTION = """# Configuration

Every key of a configuration file. This page is generated from the schema by `make docs`; a test keeps it current.

A file may build on another one with `base: other.yaml` (relative to itself): sections are merged key by key, lists are
replaced, and a section whose `kind` changes is replaced whole. On the command line, `key=value` overrides come last:
`xmtc train configs/quickstart.yaml finetune.batch_size=16 data.limit.train=null`. Values are YAML; `1e-4` is a number,
only `true` and `false` are booleans. `--print-config` shows the resolved file. A section of which there are kinds has
a key `kind`; a section without a default has the defaults of its keys.
"""


def reference(schema: type[Any]) -> str:
    """Write the reference page of a configuration dataclass, in Markdown."""
    root = Shape.of(schema)
    places: dict[str, list[tuple[str, str]]] = {}
    for place, description, keys in _sections(root, "", ""):
        places.setdefault(keys or description, []).append((place, description))
    sections = [_joined(same, content) for content, same in places.items()]
    return "\n".join([_INTRODUCTION, *_keys(root, ""), *sections])


def _joined(same: list[tuple[str, str]], content: str) -> str:
    """Write keys once for all their places: kinds, or stage 1 and 2, may share them."""
    heading = "; ".join(dict.fromkeys(place for place, _ in same))
    description = same[0][1]
    keys = "" if content == description else f"\n{content}"
    return f"## {heading}\n\n{description}\n{keys}"


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
    yield place, _one_line(shape.description), "\n".join(_keys(shape, f"{path}.")) if has_keys else ""
    yield from _sections(shape, f"{path}.", kind)


def _keys(shape: Shape, path: str) -> Iterator[str]:
    required = shape.required()
    for key, child in shape.properties().items():
        if key == "kind":
            continue
        default = "required" if key in required else _default(child)
        given = "; ".join(filter(None, (_value_words(child, path + key), default)))
        yield f"- `{key}` ({given}): {_one_line(child.description)}"
    yield ""


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
    """Describe the values of a key as errors do, with symbols for bounds."""
    items = _item(shape)
    if items is not None and (items.kinds() or items.properties()):
        return f"list, see `{path}[]`"
    if shape.kinds():
        return ", ".join(shape.kinds()) + (" or null" if shape.nullable else "")
    words = shape.describe()
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
        return f"default `{default['kind']}`" if "kind" in default and shape.kinds() else ""
    as_it_is = isinstance(default, str) and default == default.strip() != "" and default.isprintable()
    return f"default `{default if as_it_is else json.dumps(default)}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(RunConfig), encoding="utf-8")
