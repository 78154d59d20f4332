"""SIGTERM and SIGHUP in every command: nothing that is not for others stays, and a second signal changes nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_runs

_STOPPED = """
import os, signal, sys, importlib
place, number = sys.argv.pop(1), int(sys.argv.pop(1))
module, name = place.rsplit(".", 1)
def stop(*_, **__):
    for _ in range(2):
        os.kill(os.getpid(), number)
    raise AssertionError("it went on")
setattr(importlib.import_module(module), name, stop)
from xmtc.cli import main
main()
"""


def stopped(place: str, number: int, *command: object) -> str:
    """Run a command that gets the signal, twice, when it calls the function at `place`; its last words."""
    arguments = [sys.executable, "-c", _STOPPED, place, str(number), *map(str, command)]
    found = subprocess.run(arguments, capture_output=True, text=True, timeout=200)
    assert found.returncode == 128 + number, found.stderr
    assert "Traceback" not in found.stderr
    return found.stderr


_AT_A_STEP = """
import os, sys
number = int(sys.argv.pop(1))
from xmtc.training.fine_tuning import FinetuneObjective
def before_step(self, step):
    if step == 4:
        os.kill(os.getpid(), number)
FinetuneObjective.before_step = before_step
from xmtc.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_training_in_one_process_ends_with_a_checkpoint_and_the_status_of_the_signal(
    tmp_path: Path, number
) -> None:
    config = tiny_runs.write_config(tmp_path)
    command = [
        sys.executable,
        "-c",
        _AT_A_STEP,
        str(int(number)),
        "train",
        str(config),
        "plant.parts=[]",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 128 + number, ended.stderr
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(
        "interrupted: finetune stopped after step 5, checkpoint written; continue with: xmtc train "
    )
    assert [path.name for path in tmp_path.glob("runs/tiny/checkpoints/step_*")] == [
        "step_00000005"
    ]


def unfinished(folder: Path) -> list[str]:
    return [
        str(path)
        for path in folder.rglob("*")
        if path.name.endswith((".tmp", ".unfinished", ".partial", "spool"))
    ]


@pytest.mark.parametrize(
    ("command", "number"), [("prepare", signal.SIGTERM), ("train", signal.SIGHUP)]
)
def test_preparation_leaves_no_text(tmp_path: Path, command: str, number: int) -> None:
    config = tiny_runs.write_config(tmp_path)
    said = stopped("xmtc.data.prepare.choose_words", number, command, config)
    assert f"interrupted: continue with: xmtc {command} {config}" in said
    assert unfinished(tmp_path) == []


def test_a_scoring_job_leaves_nothing_half_written(whole, tmp_path: Path) -> None:
    model, documents, output = (
        whole.run / "model",
        whole.folder / "dev.jsonl",
        tmp_path / "out",
    )
    stopped(
        "xmtc.score.local.publish",
        signal.SIGTERM,
        "score",
        model,
        documents,
        "--output",
        output,
    )
    assert unfinished(tmp_path) == []
