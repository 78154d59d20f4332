"""The Ray engine writes what the local one writes, and loses nothing when an actor is killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

sys.path.insert(
    0, str(Path(__file__).parents[1] / "score")
)  # the local engine's tests have the model and the rows

from score_jobs import FP32, contents, read_output, score, write_rows
from trial_model import TEXTS, export
from xmtc.cluster.score_job import cpus_of_actor, score_on_cluster, scored_records
from xmtc.errors import ConfigError
from xmtc.score.shell import make_job

TOOL = Path(__file__).parents[2] / "tools/check/kill_scoring.py"
EVIDENCE = replace(
    FP32, evidence=True
)  # the words, too, travel from tokenisers to actors
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


def score_on_ray(model, source, output):
    job = make_job(model, [str(source)], output, EVIDENCE)
    return score_on_cluster(job, device="cpu", workers=1)


def test_a_cluster_without_a_gpu_is_told(model, tmp_path, monkeypatch):
    write_rows(tmp_path / "in" / "a.jsonl", 6)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    job = make_job(model, [str(tmp_path / "in")], tmp_path / "out", FP32)
    for workers in (None, 2):
        with pytest.raises(ConfigError, match="--device cuda"):
            next(scored_records(job, frozenset(), "cuda", workers, may_grow=False))


@pytest.mark.parametrize(("actors", "cpus"), [(1, 1), (2, 2), (64, 2), (3, 4)])
def test_actors_leave_cpus_for_reading_and_tokenising(actors, cpus, capsys):
    own = cpus_of_actor(actors, cpus, may_grow=False)
    assert 0 < own <= 1
    assert actors * own + 0.75 <= cpus
    assert capsys.readouterr().err == ""


def test_too_many_workers_for_a_cluster_that_may_grow_are_announced(capsys):
    assert cpus_of_actor(2, 3, may_grow=True) == 1
    assert capsys.readouterr().err == ""
    assert cpus_of_actor(2, 2, may_grow=True) == 1
    said = capsys.readouterr().err
    assert "2.75 CPU needed for --workers 2, the cluster has 2: waiting" in said


def test_as_many_workers_as_cores_score(model, tmp_path):
    """Once the actors took every core, nothing was left for reading, and the job never ended."""
    write_rows(tmp_path / "in.jsonl", 12)
    job = make_job(model, [str(tmp_path / "in.jsonl")], tmp_path / "out", FP32)
    cores = psutil.cpu_count()
    assert cores is not None
    score_on_cluster(job, device="cpu", workers=cores)
    assert read_output(tmp_path / "out").num_rows == 12


def test_both_engines_write_the_same_bytes_even_when_an_actor_is_killed(
    model, tmp_path
):
    write_rows(tmp_path / "in" / "a.jsonl", 60)
    write_rows(tmp_path / "in" / "b.jsonl", 18)
    manifest = score(model, tmp_path / "in", tmp_path / "local", EVIDENCE)
    killer = threading.Thread(
        target=kill_an_actor, args=(tmp_path / "ray",), daemon=True
    )
    killer.start()
    assert score_on_ray(model, tmp_path / "in", tmp_path / "ray") == manifest
    killer.join(timeout=1)
    assert not killer.is_alive(), "no actor was killed"
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert read_output(tmp_path / "ray").num_rows == 78
    assert json.loads((tmp_path / "ray" / "_manifest.json").read_text()) == manifest
    assert pq.read_table(tmp_path / "ray" / "_rejected.parquet").num_rows == 0
    assert not ray.is_initialized()


def kill_an_actor(output):
    """Kill -9 this process's own scoring actor when it has published a few blocks."""
    while len(list(output.glob("part-*"))) < 3:
        time.sleep(0.01)
    for process in psutil.Process().children(recursive=True):
        if (
            "ScoringActor" in " ".join(process.cmdline())
            or "ScoringActor" in process.name()
        ):
            os.kill(process.pid, signal.SIGKILL)
            return
    raise AssertionError(
        [process.cmdline()[:1] for process in psutil.Process().children(recursive=True)]
    )


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_killed_eight_times_as_process_driver_actor_and_node(model, tmp_path):
    rows = {
        "id": [f"d{i}" for i in range(2000)],
        "text": [TEXTS[i % 4] for i in range(2000)],
    }
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    tool = [sys.executable, str(TOOL), str(model), str(tmp_path / "in.parquet")]
    options = [
        "--output",
        str(tmp_path / "out"),
        "--id",
        "id",
        "--block-rows",
        "2",
        "--seed",
        "20",
    ]
    kills = ["--kills", "local=2", "ray=1", "driver=2", "actor=2", "node=1"]
    done = subprocess.run(
        [*tool, *options, *kills], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum("kill" in line for line in said) == 8
    assert said[-1]["holds"] is True


def test_an_address_where_no_cluster_is_gets_named(model, tmp_path):
    write_rows(tmp_path / "in.jsonl", 3)
    job = make_job(model, [str(tmp_path / "in.jsonl")], tmp_path / "out", FP32)
    with pytest.raises(ConfigError, match=r"--address 127\.0\.0\.1:1"):
        score_on_cluster(job, device="cpu", workers=1, address="127.0.0.1:1")
    assert not (tmp_path / "out").exists()
