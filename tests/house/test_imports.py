"""The package's imports go one way, and its packages of one level do not import each other."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xmtc"

# From the lowest to the highest. A module belongs to the longest prefix here that it has; it may import lower levels,
# and its own unit. Units that share a level do not import each other. The commands that a folder offers, in its module
# `commands`, belong to the unit xmtc.commands: they may use everything.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("xmtc.errors",),
    ("xmtc.files",),
    ("xmtc.config",),
    ("xmtc.storage",),
    ("xmtc.track",),
    ("xmtc.data",),
    ("xmtc.losses", "xmtc.distributed", "xmtc.planting.mig"),
    ("xmtc.scorers",),
    ("xmtc.fusion",),
    ("xmtc.models",),
    ("xmtc.mining",),
    ("xmtc.artefact", "xmtc.evaluate"),
    ("xmtc.training", "xmtc.predict"),
    ("xmtc.planting",),
    ("xmtc.score",),
    ("xmtc.labels",),
    ("xmtc.run",),
    ("xmtc.report", "xmtc.estimate"),
    ("xmtc.stages",),
    ("xmtc.preflight",),
    ("xmtc.cluster", "xmtc.init"),
    ("xmtc.pipeline",),
    ("xmtc.sweep", "xmtc.own_data", "xmtc.desk"),
    ("xmtc.classifier",),
    ("xmtc.commands",),
    ("xmtc.cli",),
    ("xmtc.__main__",),
    ("xmtc",),
)
# Libraries that only some folders or modules may import.
ONLY_IN = {
    "ray": ("xmtc.cluster", "xmtc.desk.serve.on_ray"),
    "deepspeed": ("xmtc.distributed",),
    "typer": ("xmtc.cli", "xmtc.commands"),
    "fastapi": ("xmtc.desk.serve",),
    "starlette": ("xmtc.desk.serve",),
    "uvicorn": ("xmtc.desk.serve",),
    "prometheus_client": ("xmtc.desk.serve",),
    "fsspec": ("xmtc.storage",),
    "wandb": (),
    "mlflow": (),
    "tensorboardX": (),
}


def modules() -> dict[str, Path]:
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = modules()


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, at any depth, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}:{node.lineno}: a relative import; name the module in full"
            )
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in MODULES else str(node.module)), node.lineno


def home(module: str) -> str:
    """The module itself, or xmtc.commands for the commands that a folder offers."""
    return "xmtc.commands" if re.fullmatch(r"xmtc\.\w+\.commands", module) else module


def unit(module: str) -> tuple[int, str]:
    """The level of a module and the unit it belongs to."""
    module = home(module)
    found = [
        (level, name)
        for level, names in enumerate(LEVELS)
        for name in names
        if module == name or (module.startswith(name + ".") and name != "xmtc")
    ]
    assert found, f"{module} belongs to no level of {Path(__file__).name}"
    return max(found, key=lambda item: len(item[1]))


def is_inside(module: str, folders: Sequence[str]) -> bool:
    """Whether a module is one of some folders and modules, or lies in one."""
    return any(
        module == folder or module.startswith(f"{folder}.") for folder in folders
    )


def wrong_imports(module: str) -> list[str]:
    level, own = unit(module)
    wrong = []
    for target, line in imported(MODULES[module]):
        if target.split(".")[0] != "xmtc":
            continue
        target_level, target_unit = unit(target)
        if target_level >= level and target_unit != own:
            wrong.append(f"{module}:{line} imports {target}")
    return wrong


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_one_way(module: str) -> None:
    assert wrong_imports(module) == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_libraries_stay_where_they_belong(module: str) -> None:
    for target, line in imported(MODULES[module]):
        folders = ONLY_IN.get(target.split(".")[0])
        assert folders is None or is_inside(home(module), folders), (
            f"{module}:{line} imports {target}"
        )


@pytest.mark.parametrize(
    "module", [name for name in sorted(MODULES) if not is_inside(name, ["xmtc.desk"])]
)
def test_nothing_imports_the_desk(module: str) -> None:
    """What happens at a person's desk after training can be left out of an installation."""
    for target, line in imported(MODULES[module]):
        assert not is_inside(target, ["xmtc.desk"]), f"{module}:{line} imports {target}"


def test_scripts_import_only_the_package_and_the_standard_library() -> None:
    """A launch script is a few lines over the package."""
    for path in sorted((ROOT / "launch").glob("*.py")):
        assert len(path.read_text().splitlines()) <= 30, (
            f"{path.name} is long for a launch script"
        )
        assert {name.split(".")[0] for name, _ in imported(path)} <= {
            "xmtc",
            "sys",
            "pathlib",
        }, path.name


# Each file and line here is a rule of the house that a reader would otherwise have to remember.
FORBIDDEN = {
    r"except Exception\b(?!.*# (the library has no error class|a candidate may do anything))": "name the errors",
    r"except:\s*$": "name the errors that are expected",
    r"#\s*type:\s*ignore": "correct the type",
    r"#\s*noqa": "correct the line",
    r"trust_remote_code\s*=\s*True": "no code is run from a model directory",
    r"\bpickle\.loads?\(|torch\.load\((?!.*weights_only=True)": "safetensors only",
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_house_rules(pattern: str) -> None:
    for path in MODULES.values():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(pattern, line), (
                f"{path.relative_to(ROOT)}:{number}: {FORBIDDEN[pattern]}"
            )
