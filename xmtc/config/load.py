"""Load a configuration from YAML files and `key=value` overrides, or raise one error that names every problem."""

import json
from collections.abc import Iterable, Mapping, Sequence
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
_DEEPEST, _LONGEST_SHOWN = 20, 200  # dots of a key, characters of an override in a message


def load_config(
    schema: type[T], path: str | Path, overrides: Sequence[str] = (), values: Mapping[str, Node] | None = None
) -> T:
    """Read a configuration file and validate it as `schema`.

    A file may name another one by `base: other.yaml`, relative to itself: sections are merged key by key, the file's
    own values win, lists are replaced. Where a section's `kind` differs from the base's, the base's section is dropped
    whole, because its other keys belong to the other kind. Overrides are applied last, in order, `kind`s first.

    Args:
        schema: a `@config` dataclass.
        path: the YAML file.
        overrides: such as `finetune.batch_size=16` or `model.scorers.0.penalty=0.3`; values are YAML.
        values: by dotted key, from another file, which errors name; they count as the last overrides.

    Raises:
        ConfigError: the file cannot be read, or is wrong: every problem, as `file:line: key: value: problem; fix`.
    """
    problems: list[str] = []
    tree = _read_with_bases(Path(path), Shape.of(schema), problems, ())
    return _validated(schema, tree, overrides, problems, values)


def load_overrides(schema: type[T], overrides: Sequence[str]) -> T:
    """Return the defaults of `schema` with these overrides; see `load_config`."""
    return _validated(schema, Node({}, Place(COMMAND_LINE)), overrides, [])


def _validated(
    schema: type[T], tree: Node, overrides: Sequence[str], problems: list[str], values: Mapping[str, Node] | None = None
) -> T:
    shape = Shape.of(schema)
    given = [(key.split("."), node) for key, node in (values or {}).items()]
    tree = _fill_kinds(_apply(tree, [*_parsed(overrides, problems), *given]), shape)
    try:
        config = adapter(schema).validate_json(json.dumps(tree.plain()))
    except ValidationError as error:
        problems += [f"{place}: {words}" for place, words in describe_all(error, tree, shape)]
        raise ConfigError(_report(problems)) from None
    if problems:
        raise ConfigError(_report(problems))
    return config


def read_tree(schema: type, path: Path) -> Node:
    """Read a configuration file, merged over its bases, as values with their places, without validating it.

    Raises:
        ConfigError: the file cannot be read, or is not YAML.
    """
    problems: list[str] = []
    tree = _read_with_bases(path, Shape.of(schema), problems, ())
    if problems:
        raise ConfigError(_report(problems))
    return tree


def _report(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} problems in the configuration:\n" + "\n".join(f"  {problem}" for problem in problems)


def _read_with_bases(path: Path, shape: Shape, problems: list[str], above: tuple[Path, ...]) -> Node:
    """Read the tree of `path`, merged over that of its base, recursively."""
    if resolve_links(path) in above:
        chain = " -> ".join(step.name for step in (*above, path))
        raise ConfigError(f"{path}: base: the files are each other's base ({chain}); take one 'base:' out")
    tree = yaml_tree.read(path, problems)
    base = tree.value.get("base")
    if base is None:
        return _fill_kinds(tree, shape)
    if not isinstance(base.value, str):
        raise ConfigError(f"{base.place}: base: must be the path of one YAML file, relative to this one")
    base_path = path.parent / base.value
    if not base_path.is_file():
        raise ConfigError(f"{base.place}: base: {base.value!r}: no such file; the path is relative to {path.name}")
    below = _read_with_bases(base_path, shape, problems, (*above, resolve_links(path)))
    own = Node({key: child for key, child in tree.value.items() if key != "base"}, tree.place)
    return _fill_kinds(_merge(below, own), shape)


def _merge(below: Node, above: Node) -> Node:
    """Merge `above` over `below`, section by section; a section of another kind replaces the whole section."""
    if not isinstance(below.value, dict) or not isinstance(above.value, dict):
        return above
    own, other = (node.value["kind"].plain() if "kind" in node.value else None for node in (above, below))
    if own is not None and own != other:
        return above
    merged = dict(below.value)
    for key, child in above.value.items():
        merged[key] = _merge(merged[key], child) if key in merged else child
    return Node(merged, above.place)


def _parsed(overrides: Sequence[str], problems: list[str]) -> list[tuple[list[str], Node]]:
    """Parse the overrides into paths and values."""
    parsed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(key.strip().split(".")) or key.count(".") > _DEEPEST:
            problems.append(f"{COMMAND_LINE}: {_short(text)!r}: an override is written key=value, as in seed=16")
            continue
        place = f"{COMMAND_LINE}: {key.strip()}={_short(value)}"
        parsed.append((key.strip().split("."), yaml_tree.parse(value, place, problems, lines=False)))
    return parsed


def _apply(tree: Node, settings: Iterable[tuple[list[str], Node]]) -> Node:
    # A kind clears its section, so it must not wipe out an override that was written before it.
    for keys, node in sorted(settings, key=lambda item: item[0][-1] != "kind"):
        tree = _set(tree, keys, node)
    return tree


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _set(node: Node, keys: list[str], value: Node) -> Node:
    """Return a copy of `node` with `value` at `keys`; a mapping given as a value is merged like a file's.

    An element of a list is named by its number, from 0, as messages do.
    """
    key, *rest = keys
    if isinstance(node.value, list):
        elements = {str(number): child for number, child in enumerate(node.value)}
        if key not in elements:
            raise ConfigError(f"{value.place}: {key}: the list has {len(elements)} elements, numbered from 0")
        return Node(list(_set(Node(elements, node.place), keys, value).value.values()), node.place)
    section, place = (node.value, node.place) if isinstance(node.value, dict) else ({}, value.place)
    if not rest:
        return _merge(Node(section, place), Node({key: value}, place))
    child = section.get(key, Node({}, value.place))
    return Node({**section, key: _set(child, rest, value)}, place)


def _fill_kinds(node: Node, shape: Shape | None) -> Node:
    """Write out the default's `kind` where a section leaves it out, so that it can be tuned without naming it."""
    if shape is None or not isinstance(node.value, dict):
        return node
    section = dict(node.value)
    default = shape.schema.get("default")
    if shape.kinds() and "kind" not in section and isinstance(default, dict) and "kind" in default:
        section = {"kind": Node(default["kind"], Place(node.place.file, node.place.line)), **section}
    plain = Node(section, node.place).plain()
    return Node({key: _fill_kinds(child, shape.child(key, plain)) for key, child in section.items()}, node.place)
