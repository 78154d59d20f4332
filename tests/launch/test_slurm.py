"""`train.sbatch` with commands that stand for Slurm's, Ray's and Python's: what it does with signals."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
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
case "$1 $2" in
    "show job") [[ -e $LOG/preempted ]] && time=2026-01-01T00:00:00; echo "JobId=$3 PreemptTime=${time:-None}" ;;
    *) echo "$@" >> "$LOG/scontrol" ;;
esac
"""
RAY = """#!/usr/bin/env bash
[[ -e $LOG/../no-ray ]] && exit 1
trap 'echo "ray ends" >> "$LOG/events"; kill $head 2>/dev/null; exit 0' TERM
head=
for option in "$@"; do
    [[ $option == --port=* ]] && { "$REAL_PYTHON" -m http.server --bind 127.0.0.1 "${option#*=}" >/dev/null & head=$!; }
done 2>/dev/null
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


FIRST_PORT = 20_000
"""The script's port for job 0."""


def free_port() -> int:
    """Return a port that the script can choose, below those that the system gives to connections."""
    for port in range(FIRST_PORT + os.getpid() % 10_000, FIRST_PORT + 12_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


class Job:
    """The script, as Slurm would run it on two nodes."""

    def __init__(self, folder: Path) -> None:
        self.number = free_port() - FIRST_PORT
        commands = {
            "srun": SRUN,
            "scontrol": SCONTROL,
            "ray": RAY,
            "python": PYTHON,
            "hostname": "#!/bin/sh\necho 127.0.0.1\n",
            "sleep": "#!/bin/sh\n[ $1 = infinity ] && exec /bin/sleep 30\nexec /bin/sleep 0.05\n",
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
                "SLURM_JOB_ID": str(self.number),
                "REAL_PYTHON": sys.executable,
                "SLURMD_NODENAME": "node1",
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
    counts = {"train": 1, "ray": 2, "steps": 2}
    made.wait_for(lambda: all(len(made.said(n)) == counts[n] for n in counts))
    return made


def assert_stopped(job: Job) -> None:
    """One notice, then the checkpoint, and only then the end of Ray on the first node, and 143."""
    assert job.end() == 143
    events = job.said("events")
    assert events.count("notice 1") == events.count("checkpoint") == 1
    assert events.count("ray ends") == 2
    assert events[-2:] in (["ray ends", "ray ends"], ["checkpoint", "ray ends"])
    assert not list(job.folder.glob(".ray-token-*"))


def test_slurms_warning_stops_the_run_and_asks_for_another_turn(job: Job) -> None:
    job.process.send_signal(signal.SIGTERM)
    job.wait_for(lambda: "notice 1" in job.said("events"))
    job.process.send_signal(signal.SIGTERM)
    assert_stopped(job)
    assert job.said("scontrol") == [f"requeue {job.number}"]


def signal_steps(job: Job) -> None:
    """Send SIGTERM to all steps but not to the script, as Slurm does when it preempts or cancels a job."""
    for pid in job.said("steps"):
        os.kill(int(pid), signal.SIGTERM)


def test_a_cancelled_job_stops_the_run_and_ends(job: Job) -> None:
    signal_steps(job)
    assert_stopped(job)
    assert job.said("scontrol") == []


def test_a_preempted_job_asks_for_another_turn(job: Job) -> None:
    """Slurm takes a job that ends by itself in its grace time for a failed one, and doesn't put it back."""
    (job.log / "preempted").touch()
    signal_steps(job)
    assert_stopped(job)
    assert job.said("scontrol") == [f"requeue {job.number}"]


def test_a_run_that_ends_is_not_put_back_in_the_queue(job: Job) -> None:
    (job.log / "done").touch()
    assert job.end() == 0
    assert job.said("events") == ["ray ends", "ray ends"]
    assert job.said("scontrol") == []
    (command,) = job.said("train")
    assert (
        command
        == f"launch/train.py a.yaml seed=1 distributed.address=127.0.0.1:{FIRST_PORT + job.number}"
    )


def test_a_head_that_does_not_start_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "no-ray").touch()
    job = Job(tmp_path)
    assert job.end() == 1
    assert job.said("train") == []
    assert not list(job.folder.glob(".ray-token-*"))
