"""The recipes of CONTRIBUTING.md work as they are written.

The code blocks become a package in a temporary folder, joined by real entry points. Its own tests run, and one run
trains, scores and reports with all components together; the strategy trains in two processes. This process does not
have the package, so that it sees what a user without it sees.
"""

import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import tiny_runs
from xmtc.artefact.export import load_model
from xmtc.commands.family import GROUP as COMMANDS
from xmtc.config.members import FAMILIES
from xmtc.errors import CheckpointError, ConfigError
from xmtc.evaluate.metrics import GROUP as METRICS
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.report.section import GROUP as SECTIONS

pytestmark = pytest.mark.timeout(
    900
)  # the first test that needs the package waits for its training

ROOT = Path(__file__).parents[2]
RECIPES = (
    "loss",
    "ranking loss",
    "token signal",
    "reader",
    "head",
    "encoder",
    "scorer",
    "strategy",
    "metric",
    "report section",
    "command",
    "callback",
)
WITHOUT_YAML = ("report section", "command")
WITHOUT_SETTINGS = ("metric", "report section", "command")
_CALLS = """
import json, sys
from pathlib import Path

import pytest, torch

import tiny_runs
from gloo import run_gloo
from xmtc.cli import main

tests, reference, config, *calls = json.loads(sys.argv[1])
torch.set_num_threads(1)
assert pytest.main([tests, "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tests]) == 0

from xmtc.run.config import RunConfig
from configuration_reference import reference as write_reference

with open(reference, "w", encoding="utf-8") as file:
    file.write(write_reference(RunConfig))
for call in calls:
    sys.argv = ["xmtc", *call]
    print("$ xmtc", *call, flush=True)
    try:
        main()
    except SystemExit as end:
        assert not end.code, (call, end.code)
run_gloo(tiny_runs.finetune, 2, Path(reference).parent / "gloo", Path(config), "name=shared")
"""


@dataclass(frozen=True)
class Recipe:
    """The blocks of one section of CONTRIBUTING.md: files by their paths, entry points by group, settings."""

    files: dict[str, str]
    entry_points: dict[str, dict[str, str]]
    settings: dict[str, Any]


def recipes() -> dict[str, Recipe]:
    """Every recipe, by what it adds."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sections = re.split(r"^### An? (.+)$", text, flags=re.MULTILINE)[1:]
    return {
        name: _recipe(body)
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }


def _recipe(body: str) -> Recipe:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", body, flags=re.MULTILINE | re.DOTALL)
    files = {}
    for language, code in blocks:
        if language == "python":
            first, _, rest = code.partition("\n")
            files[first.removeprefix("# ")] = rest
    (declared,) = (
        tomllib.loads(code) for language, code in blocks if language == "toml"
    )
    settings = [yaml.safe_load(code) for language, code in blocks if language == "yaml"]
    return Recipe(
        files, declared["project"]["entry-points"], settings[0] if settings else {}
    )


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Nested sections together; the other one wins."""
    both = one | other
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            both[key] = (
                other[key] if "kind" in other[key] else merged(one[key], other[key])
            )
    return both


def install(site: Path, found: list[Recipe]) -> None:
    """Write the package and its metadata, as pip would."""
    points: dict[str, dict[str, str]] = {}
    for recipe in found:
        for path, code in recipe.files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(code, encoding="utf-8")
        points = merged(points, recipe.entry_points)
    (site / "my_package" / "__init__.py").touch()
    info = site / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n", encoding="utf-8"
    )
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items())
        for group, named in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def write_database(path: Path) -> None:
    """The documents of tiny_runs, as the reader's recipe wants them."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE documents (id, text, labels, split)")
        for split, first, n in (("train", 0, 60), ("dev", 60, 16), ("test", 76, 16)):
            for row in tiny_runs.documents(n, first=first):
                values = (row["id"], row["text"], ",".join(row["labels"]), split)
                database.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", values)


@dataclass(frozen=True)
class Installed:
    """What the recipes left."""

    folder: Path
    environment: dict[str, str]
    said: str

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "recipes"

    def error(self, *arguments: str) -> str:
        """What a command that must fail says where the package is installed."""
        done = self.call(*arguments)
        assert done.returncode == 1, done.stderr
        return " ".join(done.stderr.split())

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command where the package is installed."""
        command = [
            sys.executable,
            "-c",
            "from xmtc.cli import main; main()",
            *arguments,
        ]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )


def write_config(folder: Path, found: list[Recipe]) -> Path:
    """One configuration that uses every recipe."""
    base = yaml.safe_load(tiny_runs.write_config(folder).read_text(encoding="utf-8"))
    del base["data"]["source"]
    base["model"] = {}
    base |= {"name": "recipes", "distributed": {}, "plant": {}}
    for recipe in found:
        base = merged(base, recipe.settings)
    base["data"]["source"]["path"] = str(folder / base["data"]["source"]["path"])
    path = folder / "recipes.yaml"
    path.write_text(yaml.safe_dump(base, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    folder, found = tmp_path_factory.mktemp("recipes"), list(recipes().values())
    install(folder / "site", found)
    write_database(folder / "documents.db")
    config = str(write_config(folder, found))
    model, scored, page = (
        str(folder / name) for name in ("runs/recipes/model", "scored", "page.html")
    )
    calls = [
        ["train", config, "distributed.workers=0"],
        [
            "train",
            config,
            "distributed.workers=0",
            "name=planted",
            "model.head={kind: label_attention, width: 16}",
            "plant.method=ranking",
            "plant.epochs=2",
        ],
        ["score", model, config, "--output", scored],
        ["report", str(folder / "runs" / "recipes"), "--output", page],
        ["frequent", model, "--top", "3"],
    ]
    paths = [
        str(folder / "site"),
        str(ROOT),
        str(ROOT / "tests" / "support"),
        str(ROOT / "tools/docs"),
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
    }
    given = json.dumps(
        [str(folder / "site" / "tests"), str(folder / "reference.md"), config, *calls]
    )
    command = [sys.executable, "-c", _CALLS, given]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Installed(folder, environment, done.stdout)


def test_every_family_has_a_recipe_of_one_file() -> None:
    found = recipes()
    assert tuple(found) == RECIPES
    for name, recipe in found.items():
        tests = [path for path in recipe.files if path.startswith("tests/")]
        assert (len(recipe.files), len(tests)) == (2, 1), name
        assert bool(recipe.settings) != (name in WITHOUT_YAML), name
        (group,) = recipe.entry_points
        assert group in (*FAMILIES, METRICS, SECTIONS, COMMANDS), name


def test_their_own_tests_pass(installed: Installed) -> None:
    assert f"{len(RECIPES)} passed" in installed.said


def test_they_train_score_and_report_together(installed: Installed) -> None:
    losses = tiny_runs.losses(installed.run, "finetune")
    assert losses[max(losses)] < losses[min(losses)]
    assert (
        json.loads((installed.run / "heartbeat.json").read_text(encoding="utf-8"))[
            "stage"
        ]
        == "finetune"
    )
    metrics = json.loads(
        (installed.run / "eval" / "test" / "metrics.json").read_text(encoding="utf-8")
    )
    low, high = metrics["ci95"]["mrr"]
    assert 0 < low <= metrics["mrr"] <= high
    scored = (installed.folder / "scored").rglob("*.parquet")
    assert sum(pq.read_table(path).num_rows for path in scored) == 92
    for page in (
        installed.folder / "page.html",
        installed.run / "eval" / "test" / "report.html",
    ):
        assert "MRR" in page.read_text(encoding="utf-8")
        assert (
            '<section id="silent-labels"><h2>Labels that recipes never predicts</h2>'
            in page.read_text(encoding="utf-8")
        )


def test_the_signal_and_the_ranking_loss_plant(installed: Installed) -> None:
    planted = installed.folder / "runs" / "planted"
    ranking = TokenRanking.load(planted / "mig" / "ranking.safetensors")
    assert (ranking.counts > 0).all()
    assert tiny_runs.losses(planted, "plant")


def test_the_strategy_trains_as_one_process_does(installed: Installed) -> None:
    alone = tiny_runs.losses(installed.run, "finetune")
    shared = tiny_runs.losses(installed.folder / "runs" / "shared", "finetune")
    assert shared == pytest.approx(alone, rel=0.02)


@pytest.mark.parametrize(
    "name", [name for name in RECIPES if name not in WITHOUT_SETTINGS]
)
def test_the_reference_has_them(installed: Installed, name: str) -> None:
    page = (installed.folder / "reference.md").read_text(encoding="utf-8")
    ((kind, _),) = next(iter(recipes()[name].entry_points.values())).items()
    assert f", kind `{kind}`\n" in page


def test_help_lists_them(installed: Installed) -> None:
    said = " ".join(installed.call("--help").stdout.split())
    for recipe in recipes().values():
        for named in recipe.entry_points.values():
            assert all(kind in said for kind in named)
    assert "my-package 1.0 adds " in said


def test_the_command_runs_and_stands_under_its_heading(installed: Installed) -> None:
    printed = installed.said.partition("$ xmtc frequent")[2].splitlines()[1:4]
    counts = [int(line.split()[0].replace(",", "")) for line in printed]
    assert counts == sorted(counts, reverse=True)
    look = (
        installed.call("--help").stdout.partition("─ Look ")[2].partition("─ Use ")[0]
    )
    assert "frequent" in look


def test_misspelt_kinds_and_keys_are_told_where_they_are_installed(
    installed: Installed,
) -> None:
    overrides = [
        "finetune.loss={kind: hinge, margn: 1.0}",
        "plant.loss={kind: grade_regresion}",
        "mig.signal={kind: log_ods}",
        "model.head={kind: mean_mox}",
        "model.encoder={kind: locl}",
        "model.scorers=[{kind: centroid}]",
        "data.source={kind: sqlit}",
        "finetune.callbacks=[{kind: heartbeet}]",
        "distributed.strategy={kind: half_exchang}",
    ]
    said = installed.error("train", str(installed.folder / "recipes.yaml"), *overrides)
    known = (
        "margin",
        "mean_max",
        "local",
        "centroids",
        "sqlite",
        "heartbeat",
        "half_exchange",
    )
    for word in (*known, "grade_regression", "log_odds"):
        assert f"did you mean {word!r}?" in said


def test_a_strategy_explains_what_it_refuses(installed: Installed) -> None:
    settings = ["model.head={kind: two_tower}", "finetune.sampled_labels=3"]
    said = installed.error("train", str(installed.folder / "recipes.yaml"), *settings)
    assert (
        "model.head.kind: two_tower and distributed.strategy.kind: half_exchange exclude each other"
        in said
    )


def test_a_configuration_that_needs_them_is_refused_without_the_package(
    installed: Installed,
) -> None:
    with pytest.raises(
        ConfigError, match=r"finetune\.loss\.kind: 'hinge': .*asymmetric_focal"
    ):
        tiny_runs.load(installed.folder / "recipes.yaml")


def test_without_the_package_loading_names_the_kind(installed: Installed) -> None:
    with pytest.raises(
        CheckpointError, match=r"model\.encoder: .*'local'.*install the package"
    ):
        load_model(installed.run / "model")
