"""Nothing outside a family's folder asks which member it has, and documentation names only what exists."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from test_imports import MODULES, PACKAGE, ROOT

from xmtc.config.members import FAMILIES
from xmtc.evaluate.metrics import GROUP as METRICS
from xmtc.report.section import GROUP as SECTIONS
from xmtc.run.config import RunConfig
from xmtc.scorers.config import ScorerConfig

FOLDERS = (
    "xmtc.losses",
    "xmtc.data.readers",
    "xmtc.models.heads",
    "xmtc.models.encoders",
    "xmtc.models.poolings",
    "xmtc.distributed.strategies",
    "xmtc.training.callbacks",
    "xmtc.report.sections",
    "xmtc.planting.mig",
    "xmtc.scorers",
)
CONTRACTS = ("base", "settings", "table")
"""Modules of a family that say what a member is. What they define is no member."""
KNOWN = (RunConfig, ScorerConfig)  # importing them fills FAMILIES


@dataclass
class Module:
    """What a module's names stand for.

    Attributes:
        tree: the code.
        imports: local name -> module and name there.
        aliases: local name -> names in the expressions that are assigned to it.
    """

    tree: ast.Module
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    aliases: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Module":
        module = cls(ast.parse(path.read_text(encoding="utf-8")))
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    module.imports[alias.asname or alias.name] = (
                        node.module,
                        alias.name,
                    )
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        module.aliases.setdefault(target.id, set()).update(
                            names_in(node.value)
                        )
        return module

    def members_in(self, expression: ast.expr) -> Iterator[str]:
        """The members of families that an expression names, also by way of a module, an alias or a union."""
        direct = names_in(expression)
        for name in direct.union(*(self.aliases.get(name, set()) for name in direct)):
            first, _, rest = name.partition(".")
            origin, original = self.imports.get(first, ("", ""))
            whole = f"{origin}.{original}.{rest}".rstrip(".")
            if whole in members():
                yield whole


def names_in(expression: ast.expr) -> set[str]:
    """Names and dotted names in an expression."""
    return {
        ast.unparse(node)
        for node in ast.walk(expression)
        if isinstance(node, ast.Name | ast.Attribute)
    }


@cache
def members() -> frozenset[str]:
    """Every class that is a member of a family or the settings of one, with its module."""
    found = set()
    for name, path in MODULES.items():
        if name.startswith(FOLDERS) and name.rpartition(".")[2] not in CONTRACTS:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found.update(
                f"{name}.{node.name}"
                for node in tree.body
                if isinstance(node, ast.ClassDef)
            )
    return frozenset(found)


def kinds() -> set[str]:
    return {kind for family in FAMILIES.values() for kind in family.builtin}


def distinctions(module: Module) -> Iterator[tuple[int, str]]:
    """Where a module asks for the member: the line, and what it asks for."""
    for node in ast.walk(module.tree):
        for asked in asked_classes(node):
            yield from ((asked.lineno, name) for name in module.members_in(asked))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".kind"):
            constants = [
                inner.value
                for part in node.comparators
                for inner in ast.walk(part)
                if is_text(inner)
            ]
            yield from ((node.lineno, value) for value in constants if value in kinds())


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def asked_classes(node: ast.AST) -> list[ast.expr]:
    """The classes in `isinstance(x, …)`, `issubclass(x, …)`, `type(x) is …` and `case …():`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "isinstance",
        "issubclass",
    ):
        return node.args[1:]
    if isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
        return node.comparators
    return [node.cls] if isinstance(node, ast.MatchClass) else []


@pytest.mark.parametrize(
    "name", [name for name in sorted(MODULES) if not name.startswith(FOLDERS)]
)
def test_nothing_outside_a_family_asks_for_its_member(name: str) -> None:
    found = list(distinctions(Module.read(MODULES[name])))
    assert found == [], f"{name}: let the member say itself what it can do"


def test_the_search_finds_distinctions(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "from xmtc.losses.config import CrossEntropyConfig\n"
        "from xmtc.models.heads import config as heads\n"
        "from xmtc.models.heads.base import Head\n"
        "wanted = heads.FlatConfig | heads.TwoTowerConfig\n"
        "isinstance(a, CrossEntropyConfig)\n"
        "isinstance(a, wanted)\n"
        "isinstance(a, Head)\n"
        "type(a) is heads.FlatConfig\n"
        "a.loss.kind in ('hinge', 'cross_entropy')\n"
        "match a:\n"
        "    case CrossEntropyConfig():\n"
        "        pass\n",
        encoding="utf-8",
    )
    lines = [line for line, _ in distinctions(Module.read(tmp_path / "module.py"))]
    assert sorted(lines) == [5, 6, 6, 8, 9, 11]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.stem
)
def test_tests_import_no_private_name(path: Path) -> None:
    """What a test needs of a module is public there, or reached through what is."""
    imports = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    names = [
        alias.name
        for node in imports
        if str(node.module).startswith("xmtc")
        for alias in node.names
    ]
    assert [name for name in names if name.startswith("_")] == []


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "log.md"
    ),  # which tells what is gone
]


PATHS = re.compile(
    r"(?<![\w/.-])(?:xmtc|tests|tools|configs|launch|docs)(?:/[\w.-]+)+\.(?:py|md|yaml|sh|sbatch)\b"
)
OWN_PACKAGE = re.compile(r"^[# ]+tests/test_\w+\.py$", re.MULTILINE)
"""Files that CONTRIBUTING.md tells the reader to write."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documentation_names_what_exists(page: Path) -> None:
    text = OWN_PACKAGE.sub("", page.read_text(encoding="utf-8"))
    assert [path for path in PATHS.findall(text) if not (ROOT / path).is_file()] == []
    names = re.findall(r"(?<![\w/.-])xmtc(?:\.[A-Za-z_]\w*)+", text)
    assert [
        name
        for name in names
        if name not in (*FAMILIES, METRICS, SECTIONS) and not exists(name)
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(
        r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
    )
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_folder_is_explained() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert [name for name in folders if not re.search(rf"\b{name}/", text)] == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = MODULES.get(".".join(parts[:length]))
        if path is not None:
            return defined(ast.parse(path.read_text(encoding="utf-8")), parts[length:])
    return False


def defined(tree: ast.AST, rest: list[str]) -> bool:
    """Whether names, one inside the other, are defined or imported in a piece of code."""
    if not rest:
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            if any((alias.asname or alias.name) == rest[0] for alias in node.names):
                return True
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == rest[0]:
            return defined(node, rest[1:])
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            if any(ast.unparse(target) == rest[0] for target in targets):
                return True
    return False
