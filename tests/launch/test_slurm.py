"""`train.sbatch` with commands that stand for Slurm's, Ray's and Python's: what it does with signals."""

import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SRUN = """#!/usr/bin/env bash
# Runs the command here, and passes SIGTERM on to it, as Slurm does to every step.
while [[ $1 == -* ]]; do [[ $1 == -w ]] && shift; shift; done
"$@" &
command=$!
echo "$command" >> "$LOG/steps"
trap 'kill -TERM "$command"' TERM
while kill -0 "$command" 2>/dev/null; do wait "$command" || true; done
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in
    show) printf 'node1\\nnode2\\n' ;;
    *) echo "$@" >> "$LOG/scontrol" ;;
esac
"""
RAY = """#!/usr/bin/env bash
trap 'echo "ray ends" >> "$LOG/events"; exit 0' TERM
echo started >> "$LOG/ray"
while :; do /bin/sleep 0.05; done
"""
PYTHON = """#!/usr/bin/env bash
[[ $1 == -c ]] && { printf token; exit; }
notices=0
trap 'notices=$((notices + 1)); echo "notice $notices" >> "$LOG/events"' TERM
echo "$@" >> "$LOG/train"
for _ in $(seq 200); do
    [[ -e $LOG/done ]] && exit 0
    if ((notices > 0)); then
        /bin/sleep 0.5   # its step ends, and it writes a checkpoint
        echo "checkpoint" >> "$LOG/events"
        exit 143
    fi
    /bin/sleep 0.05
done
"""


class Job:
    """The script, as Slurm would run it on two nodes."""

    def __init__(self, folder: Path) -> None:
        commands = {
            "srun": SRUN,
            "scontrol": SCONTROL,
            "ray": RAY,
            "python": PYTHON,
            "hostname": "#!/bin/sh\necho 127.0.0.1\n",
            "sleep": "#!/bin/sh\nexec /bin/sleep 0.05\n",
        }
        (folder / "bin").mkdir()
        for name, text in commands.items():
            path = folder / "bin" / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.log = folder / "log"
        self.log.mkdir()
        self.folder = folder
        self.process = subprocess.Popen(
            ["bash", ROOT / "launch" / "slurm" / "train.sbatch", "a.yaml", "seed=1"],
            env=os.environ
            | {
                "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
                "LOG": str(self.log),
                "XMTC_BIN": str(folder / "bin"),
                "SLURM_SUBMIT_DIR": str(folder),
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "node[1-2]",
                "SLURM_JOB_NUM_NODES": "2",
            },
        )

    def said(self, name: str) -> list[str]:
        path = self.log / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> int:
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose run has begun."""
    made = Job(tmp_path)
    counts = {"train": 1, "ray": 2, "steps": 3}  # the first step asks for an address
    made.wait_for(lambda: all(len(made.said(n)) == counts[n] for n in counts))
    return made


def assert_stopped(job: Job) -> None:
    """One notice, then the checkpoint, and only then the end of Ray, and 143."""
    assert job.end() == 143
    assert job.said("events") == ["notice 1", "checkpoint", "ray ends", "ray ends"]
    assert not list(job.folder.glob(".ray-token-*"))


def test_slurms_warning_stops_the_run_and_asks_for_another_turn(job: Job) -> None:
    job.process.send_signal(signal.SIGTERM)
    job.wait_for(lambda: "notice 1" in job.said("events"))
    job.process.send_signal(signal.SIGTERM)
    assert_stopped(job)
    assert job.said("scontrol") == ["requeue 7"]


def test_a_signal_to_all_steps_stops_the_run_before_ray(job: Job) -> None:
    """As Slurm does when it preempts or cancels; it decides itself whether the job gets another turn."""
    steps = job.said("steps")
    for pid in steps[-2:]:
        os.kill(int(pid), signal.SIGTERM)
    assert_stopped(job)
    assert job.said("scontrol") == []


def test_a_run_that_ends_is_not_put_back_in_the_queue(job: Job) -> None:
    (job.log / "done").touch()
    assert job.end() == 0
    assert job.said("events") == ["ray ends", "ray ends"]
    assert job.said("scontrol") == []
    (command,) = job.said("train")
    assert (
        command == "launch/train.py a.yaml seed=1 distributed.address=127.0.0.1:20007"
    )
