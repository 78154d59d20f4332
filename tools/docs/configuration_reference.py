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
only `true` and `false` are booleans. `--print-config` shows the resolved file.
"""


def reference(schema: type[Any]) -> str:
    """Write the reference page of a configuration dataclass, in Markdown."""
    root = Shape.of(schema)
    return "\n".join([_INTRODUCTION, *_table(root, ""), *_sections(root, "", "")])


def _sections(shape: Shape, path: str, within: str) -> Iterator[str]:
    """Yield a heading and a table for every section below `path`, depth first; `within` names its kinds."""
    for key, child in shape.properties().items():
        below = f"{path}{key}"
        items = _item(child)
        if items is not None:
            yield from _alternatives(items, f"{below}[]", within)
        yield from _alternatives(child, below, within)


def _alternatives(shape: Shape, path: str, within: str) -> Iterator[str]:
    kinds = shape.kinds()
    for kind, alternative in kinds.items():
        yield from _section(alternative, path, f"{within}, kind `{kind}`")
    for member in shape.members():
        if not kinds and member.properties():
            yield from _section(member, path, within)


def _section(shape: Shape, path: str, within: str) -> Iterator[str]:
    yield f"## `{path}`{within}\n"
    if shape.description:
        yield _one_line(shape.description) + "\n"
    yield from _table(shape, f"{path}.")
    yield from _sections(shape, f"{path}.", within)


def _table(shape: Shape, path: str) -> Iterator[str]:
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    required = shape.required()
    for key, child in shape.properties().items():
        default = "**required**" if key in required else _default(child)
        yield f"| `{key}` | {_cell(_value_words(child, path + key))} | {default} | {_cell(child.description)} |"
    yield ""


def _value_words(shape: Shape, path: str) -> str:
    items = _item(shape)
    if items is not None and (items.kinds() or items.properties()):
        return f"a list of sections, see `{path}[]`"
    return re.sub(r"matching (\S+)", r"matching `\1`", shape.describe())


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
        return f"`kind: {default['kind']}`" if "kind" in default and shape.kinds() else "its defaults"
    as_it_is = isinstance(default, str) and default == default.strip() != "" and default.isprintable()
    return f"`{_cell(default if as_it_is else json.dumps(default))}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(RunConfig), encoding="utf-8")
