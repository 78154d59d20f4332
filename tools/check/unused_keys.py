"""Configuration keys that no shipped configuration, page or test uses: `python tools/check/unused_keys.py`.

A key is used where its section is named too: `batch_size` below `finetune:`, in `finetune.batch_size=8`, or as an
argument of `FinetuneConfig`. The mapping of a component names its `kind`. A name that only one class has needs no
section. The generated reference page does not count.
"""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args, get_type_hints

import yaml

from size import ROOT, settings_classes
from xmtc.config.members import Members

GENERATED = ("configuration.md", "cli.md", "log.md", "CHANGELOG.md")
YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.M | re.S)
DOTTED = re.compile(r"\b(\w+)(?:\[\])?\.(\w+)\b")


@dataclass
class Found:
    """What the sources name.

    Attributes:
        below: pairs of section and key.
        of_kind: pairs of kind and key.
        of_class: pairs of class and key.
        words: every word that could be a key.
    """

    below: set[tuple[str, str]] = field(default_factory=set)
    of_kind: set[tuple[str, str]] = field(default_factory=set)
    of_class: set[tuple[str, str]] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    def add_tree(self, tree: Any, section: str = "") -> None:
        """Add a YAML document, or a part of one."""
        if isinstance(tree, list):
            for item in tree:
                self.add_tree(item, section)
        elif isinstance(tree, dict):
            for key, value in tree.items():
                first, _, rest = str(key).partition(".")
                self.add_key(section, str(tree.get("kind", "")), first)
                self.add_tree({rest: value} if rest else value, first)

    def add_key(self, section: str, kind: str, key: str) -> None:
        """Add a key with the section that holds it and the kind that the section names."""
        self.words.add(key)
        self.below.add((section, key))
        self.of_kind.add((kind, key))

    def add_text(self, text: str) -> None:
        """Add keys with their section, such as `finetune.batch_size`."""
        self.below.update(DOTTED.findall(text))
        self.words.update(name for pair in DOTTED.findall(text) for name in pair)

    def add_page(self, text: str) -> None:
        """Add what a page names in code."""
        for code in re.findall(r"`([^`\n]+)`", text):
            self.words.update(re.findall(r"\w+", code))
            self.add_text(code)
        for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
            self.add_text(block)
        for block in YAML_BLOCK.findall(text):
            self.add_tree(yaml.safe_load(block))

    def add_module(self, text: str) -> None:
        """Add what a test names: arguments of settings classes, mappings, and texts."""
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                self._add_call(node)
            elif isinstance(node, ast.Dict):
                self._add_mapping(node, "")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.add_text(node.value)
                self._add_yaml(node.value)

    def _add_call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        for keyword in node.keywords:
            if keyword.arg:
                self.words.add(keyword.arg)
                self.of_class.add((name, keyword.arg))
                self.add_key("", "", keyword.arg)
                if isinstance(keyword.value, ast.Dict):
                    self._add_mapping(keyword.value, keyword.arg)

    def _add_mapping(self, node: ast.Dict, section: str) -> None:
        items = [
            (key.value, value)
            for key, value in zip(node.keys, node.values, strict=True)
            if is_text(key)
        ]
        kind = next(
            (value.value for key, value in items if key == "kind" and is_text(value)),
            "",
        )
        for key, value in items:
            self.add_key(section, kind, key)
            for inner in value.elts if isinstance(value, ast.List) else [value]:
                if isinstance(inner, ast.Dict):
                    self._add_mapping(inner, key)

    def _add_yaml(self, text: str) -> None:
        place, _, value = text.rpartition("=")
        if "&" in text:  # an anchor could hold itself
            return
        try:
            self.add_tree(yaml.safe_load(value), place.rpartition(".")[2])
        except yaml.YAMLError:
            return


def is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def sources() -> Found:
    """Read every shipped configuration, page and test."""
    found = Found()
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        found.add_tree(yaml.safe_load(path.read_text(encoding="utf-8")))
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
    ]:
        if path.name not in GENERATED:
            found.add_page(path.read_text(encoding="utf-8"))
    for path in (ROOT / "tests").rglob("*.py"):
        found.add_module(path.read_text(encoding="utf-8"))
    return found


@cache
def classes() -> dict[type, list[str]]:
    """Every settings class with the keys that it adds to those of its bases."""
    found = {}
    for path, names in settings_classes():
        module = importlib.import_module(
            ".".join(path.relative_to(ROOT).with_suffix("").parts)
        )
        found |= {getattr(module, name): keys for name, keys in names.items()}
    return found


def within(annotation: Any) -> Iterator[type]:
    """The settings classes that a field may hold."""
    if isinstance(annotation, Members):
        yield from annotation.builtin.values()
    elif annotation in classes():
        yield annotation
    for part in (*get_args(annotation), *getattr(annotation, "__metadata__", ())):
        yield from within(part)


@cache
def sections() -> dict[type, set[str]]:
    """The keys under which each class stands."""
    found: dict[type, set[str]] = defaultdict(set)
    for owner, keys in classes().items():
        hints = get_type_hints(owner, include_extras=True)
        for key in keys:
            for inner in within(hints[key]):
                found[inner].add(key)
    return found


def is_used(owner: type, key: str, found: Found) -> bool:
    definers = [other for other, keys in classes().items() if key in keys]
    if len(definers) == 1 and key in found.words:
        return True
    for heir in [other for other in classes() if issubclass(other, owner)]:
        kind = getattr(heir, "kind", None)
        names = sections()[heir]
        if (heir.__name__, key) in found.of_class or (
            kind is not None and (kind, key) in found.of_kind
        ):
            return True
        if (kind is None or key not in definers) and any(
            (name, key) in found.below for name in names
        ):
            return True
        if not names and ("", key) in found.below:
            return True
    return False


def unused() -> list[str]:
    """Name each unused key as `module:class.key`."""
    found = sources()
    return [
        f"{owner.__module__}:{owner.__qualname__}.{key}"
        for owner, keys in classes().items()
        for key in keys
        if key != "kind" and not is_used(owner, key, found)
    ]


if __name__ == "__main__":
    print("\n".join(unused()))
