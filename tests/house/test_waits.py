"""Nobody waits: what cannot be had is refused before anything starts, and children end with their parent."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

import tiny_runs
from xmtc.config.load import load_config
from xmtc.errors import ConfigError
from xmtc.preflight.doctor import check_machine
from xmtc.run.config import RunConfig


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["distributed.workers=4000"], "4000 needed"),
        (
            ["distributed.workers=1", "distributed.gpus_per_worker=1"],
            "gpus_per_worker=0",
        ),
        (
            ["distributed.workers=1", "distributed.resources_per_worker={tpu: 1}"],
            "no 'tpu'",
        ),
        (
            ["distributed.workers=2", "distributed.address=127.0.0.1:PORT"],
            "no Ray cluster answers",
        ),
        (
            ["distributed.workers=2", "distributed.address=ray://127.0.0.1:PORT"],
            "no Ray cluster answers",
        ),
        (
            ["distributed.workers=2", "distributed.address=nowhere.invalid:6379"],
            "no Ray cluster answers",
        ),
        (
            ["distributed.workers=2", "distributed.address=nonsense"],
            "no Ray cluster answers",
        ),
        (["track.sinks=[{kind: wandb}]"], "wandb: not installed"),
    ],
)
def test_train_refuses_impossible_requirements_within_seconds(
    tmp_path, xmtc, monkeypatch, overrides, words
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    if "wandb" in words:
        monkeypatch.setattr(
            "xmtc.preflight.machine.find_spec",
            lambda name: None if name == "wandb" else name,
        )
    config = tiny_runs.write_config(tmp_path)
    start = time.monotonic()
    outcome = xmtc(
        "train",
        config,
        *(each.replace("PORT", str(closed_port())) for each in overrides),
    )
    assert outcome.code == 1
    assert words in outcome.err
    assert time.monotonic() - start < 10
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "corpus").exists()


def test_everything_that_is_missing_is_reported_together(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    overrides = ["distributed.workers=4000", "distributed.gpus_per_worker=1"]
    with pytest.raises(
        ConfigError, match=r"(?s)cpu: .*4000 needed.*\n  gpus: 1, and 4000 needed"
    ):
        check_machine(tiny_runs.load(tiny_runs.write_config(tmp_path), *overrides))
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    check_machine(
        tiny_runs.load(tiny_runs.write_config(tmp_path), *overrides)
    )  # a job's cluster may have them


WORK = """
import os, sys, time
from xmtc.data.parallel import map_processes

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(300)

sys.modules["__main__"].work = work
list(map_processes(work, [sys.argv[1]] * 2))
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core: no workers")
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], env=paths)
    try:
        deadline = time.monotonic() + 120
        while len(pids := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10
    )
    assert alive == []


HOSTAGES = {
    "aliases": "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "deep lists": "name: " + "[" * 1_500 + "]" * 1_500,
    "deep sections": "".join(f"{'  ' * i}a:\n" for i in range(400)),
    "long": "name: x\n" * 200_000,
    "digits": "seed: " + "9" * 5_000,
    "itself": "a: &a [*a]",
}


@pytest.mark.parametrize("kind", HOSTAGES)
def test_a_configuration_takes_neither_processor_nor_stack_hostage(
    tmp_path: Path, kind: str
):
    path = tmp_path / "hostage.yaml"
    path.write_text(HOSTAGES[kind])
    start = time.monotonic()
    with pytest.raises(ConfigError) as refusal:
        load_config(RunConfig, path, [])
    assert time.monotonic() - start < 10
    assert len(str(refusal.value)) < 2_000


def test_an_override_takes_neither_hostage(tmp_path):
    config = tiny_runs.write_config(tmp_path)
    for override in (
        "name=" + "[" * 1_500,
        "a." * 5_000 + "b=1",
        "seed=" + "9" * 5_000,
        "model=" + "{a: " * 1_500,
    ):
        with pytest.raises(ConfigError):
            tiny_runs.load(config, override)
