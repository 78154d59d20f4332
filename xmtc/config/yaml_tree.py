"""YAML as a tree that remembers the file and line of each value, so that every later error can name its place.

YAML 1.1 has traps that YAML 1.2 took away, and this module reads as 1.2 does: `1e-4` is a number, only `true` and
`false` are booleans (not `on`, `no`, `y`), `2024-01-31` and `0123` and `12:30` are text. A key that occurs twice in a
section is an error, never a silent overwrite.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from xmtc.errors import ConfigError
from xmtc.files import read_file, reading

_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"""^(?:
        [-+]? (?: (?:0|[1-9][0-9_]*) \.[0-9_]* | \.[0-9][0-9_]* ) (?:[eE][-+]?[0-9]+)?   # 1.5, 1., .5, 1.5e-4
      | [-+]? (?:0|[1-9][0-9_]*) [eE][-+]?[0-9]+                                         # 1e-4
      | [-+]? \.(?:inf|Inf|INF)
      | \.(?:nan|NaN|NAN)
    )$""",
    re.VERBOSE,
)
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Place:
    """Where a value was written: a file and a line (from 1), or the command line (line 0)."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Node:
    """A value and its place; `value` is a dict[str, Node], a list[Node] or a scalar."""

    value: Any
    place: Place

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


class _Loader(yaml.SafeLoader):
    """A safe loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


# A configuration beyond these limits is a mistake, or means to keep the processor busy.
_MAX_BYTES = 1_000_000
_MAX_NODES = 100_000
_MAX_DEPTH = 50
_MAX_DIGITS = 100


class _Dumper(yaml.SafeDumper):
    """A safe dumper that quotes text which either YAML version would read as something else."""


for _tag, _pattern, _first in (
    ("bool", _BOOL, list("tTfF")),
    ("float", _FLOAT, list("-+0123456789.")),
    ("int", _INT, list("-+0123456789")),
    ("null", _NULL, ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(_TAG + _tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_TAG + _tag, _pattern, _first)


def dump(data: Any) -> str:
    """Write plain data (dicts, lists, scalars) as YAML in the given order; `parse` reads back an equal value."""
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120
    )


def read(path: Path, problems: list[str]) -> Node:
    """Read the tree of a YAML file; append duplicate keys and unknown tags to `problems`.

    Raises:
        ConfigError: the file is missing, unreadable, not UTF-8, not YAML, or its top level is not a section.
    """
    if path.is_file():
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ConfigError(
                f"{path}: the file has {size:,} bytes, and a configuration has at most {_MAX_BYTES:,}; check the path"
            )
    with reading(path, ConfigError, "check the path, and save the file as UTF-8"):
        text = read_file(path).decode()
    node = parse(text, str(path), problems)
    if node.value is None:
        return Node({}, node.place)
    if not isinstance(node.value, dict):
        content = (
            "a list" if isinstance(node.value, list) else f"the value {node.value!r}"
        )
        raise ConfigError(
            f"{node.place}: the top level must be sections such as 'data:', not {content}"
        )
    return node


def parse(text: str, file: str, problems: list[str], *, lines: bool = True) -> Node:
    """Parse YAML text; `lines=False` for text without meaningful line numbers, such as an override.

    Raises:
        ConfigError: the text is not YAML; names the line.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        place = _places(file, lines)
        if root is None:
            return Node(None, Place(file, 1 if lines else 0))
        return _TreeBuilder(loader, place, problems).build(root, place(root), ())
    except yaml.YAMLError as error:
        raise ConfigError(_syntax_message(error, text, file, lines)) from error
    except RecursionError:
        raise ConfigError(
            f"{file}: sections or lists lie too deep in each other; write them out"
        ) from None


def _places(file: str, lines: bool) -> Callable[[yaml.Node], Place]:
    return lambda node: Place(file, node.start_mark.line + 1 if lines else 0)


class _TreeBuilder:
    """Makes our tree of PyYAML's, and collects the problems in it.

    Args:
        loader: converts scalars.
        place: finds the place of a node.
        problems: problems are appended here.
    """

    def __init__(
        self, loader: _Loader, place: Callable[[yaml.Node], Place], problems: list[str]
    ):
        self.loader = loader
        self.place = place
        self.problems = problems
        self.built = 0

    def build(self, node: yaml.Node, place: Place, above: tuple[int, ...]) -> Node:
        """Convert a node and all below it; `above` has the identities of the nodes that contain it."""
        if id(node) in above:
            raise ConfigError(
                f"{place}: an alias refers to a section that contains it; write the values out"
            )
        above = (*above, id(node))
        self.built += 1
        if len(above) > _MAX_DEPTH or self.built > _MAX_NODES:
            raise ConfigError(
                f"{place}: too many sections or lists in each other, or too many aliases; write them out"
            )
        if isinstance(node, yaml.MappingNode):
            return Node(self._mapping(node, above), place)
        if isinstance(node, yaml.SequenceNode):
            elements = [
                self.build(child, self.place(child), above) for child in node.value
            ]
            return Node(elements, place)
        return Node(self._scalar(node, place), place)

    def _mapping(
        self, node: yaml.MappingNode, above: tuple[int, ...]
    ) -> dict[str, Node]:
        section: dict[str, Node] = {}
        for key_node, child in node.value:
            place = self.place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(
                    f"{place}: a key must be a word, not a list or section"
                )
                continue
            key = key_node.value
            if key in section:
                first = section[key].place.line
                self.problems.append(
                    f"{place}: {key}: occurs twice in this section (first in line {first}); keep one"
                )
            section[key] = self.build(child, place, above)
        return section

    def _scalar(self, node: yaml.Node, place: Place) -> Any:
        # "0x_1" would be an int to PyYAML and "1_0" is one to us: the resolvers above decide, Python converts.
        if node.tag == _TAG + "int" and _INT.match(node.value):
            if len(node.value) <= _MAX_DIGITS:
                return int(node.value)
            digits = len(node.value)
            self.problems.append(
                f"{place}: the number has {digits:,} digits, at most {_MAX_DIGITS} are allowed"
            )
            return 0
        if node.tag.removeprefix(_TAG) in ("str", "bool", "float", "null"):
            return self.loader.construct_object(node)
        self.problems.append(
            f"{place}: the tag {node.tag} is not supported; leave it out"
        )
        return node.value


def _syntax_message(error: yaml.YAMLError, text: str, file: str, lines: bool) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark and lines else file
        problem = error.problem or error.context
        return f"{place}: not valid YAML: {problem}; check indentation, colons and quotes here"
    # A control character is the one error without a mark.
    position = getattr(error, "position", 0)
    line = text.count("\n", 0, position) + 1
    place = f"{file}:{line}" if lines else file
    return (
        f"{place}: not valid YAML: {str(error).splitlines()[0]}; take the character out"
    )
