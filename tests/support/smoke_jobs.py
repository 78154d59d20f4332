"""`xmtc train` of the smoke configuration on two Ray workers, in a process of its own that tests can hurt."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

import tiny_runs

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "smoke_llama.yaml"
SHORT = ("plant.parts=[]",)  # one stage is enough to be hurt in
STEPS = 24  # of fine-tuning
FIRST_STEP_BEYOND_A_CHECKPOINT = 6  # checkpoints are made every 4 steps


def overrides(folder: Path, *more: str) -> list[str]:
    return [
        f"data.corpus={folder / 'corpus'}",
        f"track.directory={folder / 'runs'}",
        *more,
    ]


class Job:
    """A training process and everything below it.

    Args:
        folder: of corpus, runs and log; jobs share it.
        name: of the run; a job of the same name goes on with it.
        more: overrides.
        prefix: a command before the command, such as `ip netns exec NAME`.
    """

    def __init__(
        self, folder: Path, name: str, *more: str, prefix: Sequence[str] = ()
    ) -> None:
        self.run, self.log = (
            folder / "runs" / name,
            folder / f"{name}-{time.time_ns()}.log",
        )
        arguments = ["train", str(CONFIG), *overrides(folder, f"name={name}", *more)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *prefix,
                    sys.executable,
                    "-c",
                    "from xmtc.cli import main; main()",
                    *arguments,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_COLOR_PREFIX": "0"},
            )

    def steps(self, stage: str) -> int:
        """Training steps of a stage that have been logged."""
        path = self.run / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith("}")]
        return max((e["step"] for e in entries if e["stage"] == stage), default=0)

    def wait_for_a_checkpoint(self, stage: str) -> None:
        """Until the stage has got beyond its first checkpoint."""
        while (
            self.process.poll() is None
            and self.steps(stage) < FIRST_STEP_BEYOND_A_CHECKPOINT
        ):
            time.sleep(0.005)
        assert self.process.poll() is None, self.log.read_text()[-5000:]

    def workers(self) -> list[psutil.Process]:
        """The training workers of a job whose Ray is its own."""
        return training_workers(self.process.pid)

    def kill_a_worker_in(self, stage: str) -> None:
        """kill -9 of one training worker once the stage has got beyond its first checkpoint."""
        self.wait_for_a_checkpoint(stage)
        workers = self.workers()
        assert len(workers) == 2, workers
        workers[1].send_signal(signal.SIGKILL)

    def finish(self, timeout_s: float = 1100) -> tuple[int, str]:
        """Exit code and log; whatever is left of the job's processes is killed."""
        try:
            code = self.process.wait(timeout_s)
        finally:
            family = (
                psutil.Process(self.process.pid).children(recursive=True)
                if self.process.poll() is None
                else []
            )
            for process in (self.process, *family):
                process.kill()
        return code, self.log.read_text()


def assert_same(run: Path, undisturbed: Path) -> None:
    """The same loss at every step, and the same metrics in the end."""
    assert tiny_runs.losses(run, "finetune") == pytest.approx(
        tiny_runs.losses(undisturbed, "finetune"), rel=1e-5
    )
    assert len(tiny_runs.losses(run, "finetune")) >= STEPS
    ours, theirs = (
        json.loads((r / "eval" / "test" / "metrics.json").read_text())
        for r in (run, undisturbed)
    )
    for name in ("ndcg@5", "map", "micro_f1", "macro_f1"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-5)


def training_workers(pid: int) -> list[psutil.Process]:
    """Ray's training workers below a process."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "RayTrainWorker" in _title(child)]


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
