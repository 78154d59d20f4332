"""Load a configuration from YAML files and `key=value` overrides, or raise one error that names every problem."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from xmtc.config import yaml_tree
from xmtc.config.problems import describe_all
from xmtc.config.shape import Shape, adapter
from xmtc.config.yaml_tree import Node, Place
from xmtc.errors import ConfigError
from xmtc.files import resolve_links

T = TypeVar("T")

COMMAND_LINE = "command line"
_ANSWERS = ("true", "false", "yes", "no")
"""Words that are no overrides, but meant for an option that needs none."""
_MAX_DOTS = 20
"""Dots in the key of an override. A deeper key is a mistake."""
_NULL = "~"
"""How YAML writes null in one sign."""
_MAX_SHOWN = 200
"""Characters of an override that a message quotes."""


@dataclass(frozen=True)
class _Override:
    """A value for one key, and the keys of the sections that lead to it."""

    keys: list[str]
    value: Node


def load_config(
    schema: type[T],
    path: str | Path,
    overrides: Sequence[str] = (),
    values: Mapping[str, Node] | None = None,
) -> T:
    """Read a configuration file and validate it as `schema`.

    A file may name another one by `base: other.yaml`, relative to itself: sections are merged key by key, the file's
    own values win, lists are replaced. Where a section's `kind` differs from the base's, the base's section is dropped
    whole, because its other keys belong to the other kind. Overrides are applied last, in order, `kind`s first.

    Args:
        schema: a `@config` dataclass.
        path: the YAML file.
        overrides: such as `finetune.batch_size=16` or `model.scorers.0.penalty=0.3`; the values are written in YAML,
            but one sign, such as `,` or `|`, is itself.
        values: values by dotted key that come from another file, which errors then name. They count as the last
            overrides.

    Raises:
        ConfigError: the file cannot be read, or is wrong: every problem, as `file:line: key: value: problem; fix`.
    """
    problems: list[str] = []
    tree = _read_with_bases(Path(path), Shape.of(schema), problems, above=())
    return _validated(schema, tree, overrides, problems, values or {})


def load_overrides(schema: type[T], overrides: Sequence[str]) -> T:
    """Return the defaults of `schema` with these overrides.

    Raises:
        ConfigError: an override is wrong; see `load_config`.
    """
    return _validated(
        schema, Node({}, Place(COMMAND_LINE)), overrides, problems=[], values={}
    )


def read_tree(schema: type, path: Path) -> Node:
    """Read a configuration file, merged over its bases, as values with their places, without validating it.

    Raises:
        ConfigError: the file cannot be read, or is not YAML.
    """
    problems: list[str] = []
    tree = _read_with_bases(path, Shape.of(schema), problems, above=())
    if problems:
        raise ConfigError(_report(problems))
    return tree


def _validated(
    schema: type[T],
    tree: Node,
    overrides: Sequence[str],
    problems: list[str],
    values: Mapping[str, Node],
) -> T:
    """Apply overrides and values to a tree, and make the configuration of it."""
    shape = Shape.of(schema)
    assignments = _parsed(overrides, problems)
    assignments += [_Override(key.split("."), value) for key, value in values.items()]
    tree = _fill_kinds(_apply(tree, assignments), shape)
    try:
        config = adapter(schema).validate_json(json.dumps(tree.plain()))
    except ValidationError as error:
        problems += [
            f"{place}: {words}" for place, words in describe_all(error, tree, shape)
        ]
        raise ConfigError(_report(problems)) from None
    if problems:
        raise ConfigError(_report(problems))
    return config


def _report(problems: list[str]) -> str:
    """Write one problem on the line of the error, several below it."""
    if len(problems) == 1:
        return problems[0]
    lines = "\n".join(f"  {problem}" for problem in problems)
    return f"{len(problems)} problems in the configuration:\n{lines}"


def _read_with_bases(
    path: Path, shape: Shape, problems: list[str], above: tuple[Path, ...]
) -> Node:
    """Read the tree of `path`, merged over that of its base, recursively.

    Args:
        path: the file.
        shape: what the configuration accepts.
        problems: problems of all files are appended here.
        above: the files whose bases led to this one, without links.
    """
    if resolve_links(path) in above:
        chain = " -> ".join(file.name for file in (*above, path))
        raise ConfigError(
            f"{path}: base: the files are each other's base ({chain}); take one 'base:' out"
        )
    tree = yaml_tree.read(path, problems)
    base = tree.value.get("base")
    if base is None:
        return _fill_kinds(tree, shape)
    if not isinstance(base.value, str):
        raise ConfigError(
            f"{base.place}: base: must be the path of one YAML file, relative to this one"
        )
    base_path = path.parent / base.value
    if not base_path.is_file():
        raise ConfigError(
            f"{base.place}: base: {base.value!r}: no such file; the path is relative to {path.name}"
        )
    below = _read_with_bases(base_path, shape, problems, (*above, resolve_links(path)))
    own_values = {key: child for key, child in tree.value.items() if key != "base"}
    return _fill_kinds(_merge(below, Node(own_values, tree.place)), shape)


def _merge(below: Node, above: Node) -> Node:
    """Merge `above` over `below`, section by section; a section of another kind replaces the whole section."""
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    kind = _kind_in(above)
    if kind is not None and kind != _kind_in(below):
        return above
    merged = dict(below.value)
    for key, child in above.value.items():
        merged[key] = _merge(merged[key], child) if key in merged else child
    return Node(merged, above.place)


def _kind_in(section: Node) -> object:
    """Return the `kind` that a section says, or None."""
    kind = section.value.get("kind")
    return kind.plain() if kind is not None else None


def _parsed(overrides: Sequence[str], problems: list[str]) -> list[_Override]:
    """Parse the overrides of the command line; append what is not written as one to `problems`."""
    parsed: list[_Override] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        keys = key.split(".")
        if key.lower() in _ANSWERS and not equals:
            problems.append(
                f"{COMMAND_LINE}: {text!r}: an option such as --dry-run takes no value; leave {text} out"
            )
            continue
        if not equals or not all(keys) or key.count(".") > _MAX_DOTS:
            problems.append(
                f"{COMMAND_LINE}: {_shortened(text)!r}: an override is written key=value, as in finetune.batch_size=16"
            )
            continue
        place = f"{COMMAND_LINE}: {key}={_shortened(value)}"
        node = (
            Node(value, Place(place))
            if _is_sign(value)
            else yaml_tree.parse(value, place, problems, lines=False)
        )
        parsed.append(_Override(keys, node))
    return parsed


def _is_sign(value: str) -> bool:
    """Whether a value is one sign, such as a separator: the shell took the quotes that YAML would need."""
    return len(value) == 1 and not value.isalnum() and value != _NULL


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _apply(tree: Node, assignments: list[_Override]) -> Node:
    """Apply overrides in order, `kind`s first: a kind clears its section, and must not clear an earlier override."""
    kinds = [assignment for assignment in assignments if assignment.keys[-1] == "kind"]
    values = [assignment for assignment in assignments if assignment.keys[-1] != "kind"]
    for assignment in kinds + values:
        tree = _set(tree, assignment.keys, assignment.value)
    return tree


def _set(node: Node, keys: list[str], value: Node) -> Node:
    """Return a copy of `node` with `value` at `keys`; a mapping as a value is merged like a file's.

    An element of a list is named by its number, from 0, as messages do.
    """
    if isinstance(node.value, list):
        return _set_in_list(node, keys, value)
    key, *rest = keys
    # An override makes a section of a null or a scalar.
    section = node if isinstance(node.value, dict) else Node({}, value.place)
    if not rest:
        return _merge(section, Node({key: value}, section.place))
    child = section.value.get(key, Node({}, value.place))
    return Node({**section.value, key: _set(child, rest, value)}, section.place)


def _set_in_list(node: Node, keys: list[str], value: Node) -> Node:
    """Set a value in an element of a list, whose number is the first key."""
    elements = {str(number): child for number, child in enumerate(node.value)}
    if keys[0] not in elements:
        count = len(elements)
        raise ConfigError(
            f"{value.place}: {keys[0]}: the list has {count} elements, which are numbered from 0"
        )
    changed = _set(Node(elements, node.place), keys, value)
    return Node(list(changed.value.values()), node.place)


def _fill_kinds(node: Node, shape: Shape | None) -> Node:
    """Write out the default's `kind` where a section leaves it out, so that it can be tuned without naming it."""
    if shape is None or not isinstance(node.value, dict):
        return node
    section = dict(node.value)
    default = shape.schema.get("default")
    if (
        shape.kinds()
        and "kind" not in section
        and isinstance(default, dict)
        and "kind" in default
    ):
        section = {"kind": Node(default["kind"], node.place), **section}
    plain = Node(section, node.place).plain()
    filled = {
        key: _fill_kinds(child, shape.child(key, plain))
        for key, child in section.items()
    }
    return Node(filled, node.place)
