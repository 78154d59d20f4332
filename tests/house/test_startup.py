"""Help, status and mistakes in a configuration come at once: nothing large is imported for them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from xmtc.run.state import RunState
from xmtc.track.config import TrackConfig

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "configs/quickstart.yaml")
LARGE = [
    "torch",
    "transformers",
    "peft",
    "deepspeed",
    "faiss",
    "ray",
    "pyarrow",
    "pandas",
    "scipy",
    "sklearn",
    "fsspec",
]
COMMANDS = (
    *(
        "prepare",
        "mig",
        "train",
        "sweep",
        "evaluate",
        "report",
        "predict",
        "score",
        "labels",
        "labels add",
    ),
    *("labels remove", "labels rename", "labels merge"),
    *(
        "annotations",
        "annotations report",
        "annotations sample",
        "annotations audit",
        "diff",
        "drift",
        "explain",
        "status",
        "doctor",
        "serve",
        "init",
        "push",
    ),
)
LIGHT_MODULES = (
    *(
        "xmtc",
        "xmtc.cli",
        "xmtc.errors",
        "xmtc.files",
        "xmtc.config.load",
        "xmtc.config.members",
    ),
    *(
        "xmtc.distributed.config",
        "xmtc.distributed.strategies.config",
        "xmtc.distributed.rowwise_config",
    ),
    *(
        "xmtc.evaluate.config",
        "xmtc.storage.config",
        "xmtc.storage.fetch",
        "xmtc.track.config",
    ),
    *(
        "xmtc.track.sinks",
        "xmtc.run.state",
        "xmtc.run.directory",
        "xmtc.run.copies",
        "xmtc.run.status",
    ),
)
_CALL = """
import json, sys
from xmtc.cli import main
large, calls = json.loads(sys.argv[1]), json.loads(sys.argv[2])
found = []
for call in calls:
    sys.argv = ["xmtc", *call]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    found.append([code or 0, sorted(set(large) & set(sys.modules))])
print(json.dumps(found))
"""

_IMPORT = """
import importlib, json, sys
large, found = set(json.loads(sys.argv[1])), {}
for name in sys.argv[2:]:
    importlib.import_module(name)
    if new := large & set(sys.modules) - {large for names in found.values() for large in names}:
        found[name] = sorted(new)
print(json.dumps(found))
"""


def call(*calls: list[str]) -> tuple[list[tuple[int, list[str]]], str]:
    """Exit code and large packages imported by then, for each of several commands in one process; and its stderr."""
    command = [sys.executable, "-c", _CALL, json.dumps(LARGE), json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [
        (code, large) for code, large in json.loads(done.stdout.splitlines()[-1])
    ], done.stderr


def imported(large: Sequence[str], modules: Sequence[str]) -> dict[str, list[str]]:
    """Large packages that each module imports first, in a new process."""
    command = [sys.executable, "-c", _IMPORT, json.dumps(large), *modules]
    return json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def test_help_imports_nothing_large() -> None:
    outcomes, _ = call(
        ["--help"],
        ["--version"],
        *([*command.split(), "--help"] for command in COMMANDS),
    )
    assert outcomes == [(0, [])] * (len(COMMANDS) + 2)


def test_status_imports_nothing_large(tmp_path: Path) -> None:
    with RunState.open(tmp_path, TrackConfig()) as run, run.stage("plant", "aa"):
        pass
    (tmp_path / "metrics.jsonl").write_text(
        '{"stage": "plant", "step": 3, "time_s": 1.0, "train/loss": 0.5}\n'
    )
    assert call(["status", str(tmp_path)])[0] == [(0, [])]


def test_settings_and_run_files_import_nothing_large() -> None:
    assert imported([*LARGE, "numpy"], LIGHT_MODULES) == {}


def test_prediction_imports_nothing_that_only_fitting_needs() -> None:
    assert (
        imported(
            ["sklearn", "pandas"],
            ["xmtc.predict.predictor", "xmtc.desk.serve.server", "xmtc.score.local"],
        )
        == {}
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["train", "no-such-file.yaml"],
            1,
            "no-such-file.yaml: cannot be read: No such file",
        ),
        (["train", QUICKSTART, "finetune.batch_sice=16"], 1, "batch_sice"),
        (["train", QUICKSTART, "--print-config"], 0, ""),
    ],
    ids=["missing file", "misspelt key", "print-config"],
)
def test_reading_a_configuration_imports_nothing_large(
    arguments: list[str], code: int, words: str
) -> None:
    outcomes, errors = call(arguments)
    assert words in errors
    assert outcomes == [(code, [])]
