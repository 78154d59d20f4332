"""`pip install xmtc` without extras predicts, and trains in one process; what it lacks names the extra.

The environment holds the built wheel, and links to what the dependencies without extras bring. `make test-wheel` sets
XMTC_SMALL_PYTHON to the Python of an environment that pip filled.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from installed import PROJECT, ROOT, closure, link
from tiny_runs import write_config

TRAIN_ONLY = ("ray", "deepspeed", "ninja")
# One process for all of it: importing PyTorch takes longer than what is tested.
_RUN = """
import importlib.util, io, json, sys
from contextlib import redirect_stderr, redirect_stdout
sys.path[:0] = sys.argv[1].split()
assert not any(map(importlib.util.find_spec, ("ray", "deepspeed", "ninja", "pytest")))
import xmtc
from xmtc.cli import main
outcomes = []
for command in json.loads(sys.argv[2]):
    sys.argv, out = ["xmtc", *command], io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    outcomes.append((code, out.getvalue()))
model = xmtc.Model.from_pretrained("runs/tiny/model")
print(json.dumps({"outcomes": outcomes, "predicted": [len(one) for one in model.predict(["lawery lawing"], top_k=2)]}))
"""
COMMANDS = {
    "train": ("train", "tiny.yaml"),
    "doctor": ("doctor", "--config", "tiny.yaml"),
    "workers": ("train", "tiny.yaml", "name=two", "distributed.workers=2"),
    "score": (
        "score",
        "runs/tiny/model",
        "test.jsonl",
        "-o",
        "scored",
        "--engine",
        "ray",
    ),
}


def installed(folder: Path) -> Path:
    """A folder with the wheel of xmtc, built from the sources, and links to what its installation brings."""
    sources = folder.with_name("sources")
    sources.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(
        ROOT / "xmtc", sources / "xmtc", ignore=shutil.ignore_patterns("__pycache__")
    )
    link(folder, closure(PROJECT["dependencies"]))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [
            *pip,
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            sources / "dist",
            sources,
        ],
        check=True,
    )
    (wheel,) = (sources / "dist").glob("xmtc-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", folder, wheel],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("run")
    write_config(
        folder,
        plant={"parts": ["rows"]},
        finetune={
            "phases": [
                {"epochs": 1, "encoder_layers": 1, "encoder_learning_rate": 1e-3}
            ]
        },
    )
    if python := os.environ.get("XMTC_SMALL_PYTHON"):
        start = [python, "-I", "-c", _RUN, ""]
    else:
        start = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _RUN,
            str(installed(folder / "site-packages")),
        ]
    done = subprocess.run(
        [*start, json.dumps(list(COMMANDS.values()))],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(COMMANDS, answer["outcomes"], strict=True)) | {
        "predicted": answer["predicted"]
    }


def test_training_and_prediction_need_no_extra(found: dict[str, Any]) -> None:
    code, said = found["train"]
    assert code == 0, said
    assert found["predicted"] == [2]
    code, said = found["doctor"]
    assert code == 0, said


@pytest.mark.parametrize("command", ["workers", "score"])
def test_what_needs_ray_names_the_extra(found: dict[str, Any], command: str) -> None:
    code, said = found[command]
    assert code == 1
    assert "pip install 'xmtc[train]'" in said
    assert "Traceback" not in said


def test_the_small_set_leaves_out_what_only_clusters_need() -> None:
    brought = closure(PROJECT["dependencies"])
    assert brought.isdisjoint(TRAIN_ONLY)
    assert brought >= {
        "torch",
        "transformers",
        "peft",
        "pyarrow",
        "faiss-cpu",
        "safetensors",
    }
    assert set(TRAIN_ONLY) <= closure(PROJECT["optional-dependencies"]["train"])
