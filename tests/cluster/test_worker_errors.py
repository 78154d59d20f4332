import os
import pickle
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
import torch

from gloo import run_gloo
from xmtc.cluster import flight_recorder
from xmtc.cluster import training as cluster
from xmtc.cluster import training as worker_errors
from xmtc.cluster.attempt import Attempt
from xmtc.distributed.collectives import all_reduce_sum_floats, rank_and_world_size
from xmtc.errors import DataError, TrainingError


@pytest.fixture(scope="module")
def on_ray():
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_an_error_of_all_workers_ends_them_normally(on_ray):
    errors = Attempt()
    assert errors.first_error() is None
    with ThreadPoolExecutor(2) as pool:
        ended = list(
            pool.map(
                lambda rank: errors.report(TrainingError(f"rank {rank}: NaN"), rank, 2),
                (0, 1),
            )
        )
    assert ended == [True, True]
    found = errors.first_error()
    assert isinstance(found, TrainingError)
    assert str(found) == "rank 0: NaN"


def test_an_error_of_one_worker_is_raised_there_and_its_group_is_not_tried_again(
    on_ray, monkeypatch
):
    monkeypatch.setattr("xmtc.cluster.attempt._TIMEOUT_S", 0.2)
    errors = Attempt()
    assert not errors.report(DataError("shard 3: damaged"), 1, 2)
    monkeypatch.setattr(
        "xmtc.stages.run_stage.run_stage", lambda *_: pytest.fail("tries again")
    )
    cluster._train_on_worker({"attempt": errors, "stage": "plant", "copies": None})
    found = errors.first_error()
    assert isinstance(found, DataError)


def late_or_gone(gone: bool, traces: Path) -> str | None:
    """What rank 0 says when rank 1 sleeps through a collective, or is gone; it writes what it has recorded."""
    rank, _ = rank_and_world_size()
    all_reduce_sum_floats([1.0, 2.0])
    if rank == 1:
        time.sleep(0 if gone else 6)
        os._exit(0)
    try:
        all_reduce_sum_floats([1.0])
    except RuntimeError as error:
        flight_recorder.write(traces, rank)
        return worker_errors.explain_failed_collective(error, 2.0)
    return None


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (False, "more than distributed.timeout_s=2: a worker hangs"),
        (True, "connection to another worker is lost"),
    ],
)
def test_a_failed_collective_is_explained(tmp_path, gone, words):
    with pytest.raises(
        FileNotFoundError, match=r"rank1\.pt"
    ):  # rank 1 leaves no result
        run_gloo(late_or_gone, 2, tmp_path, gone, tmp_path / "traces", timeout_s=2)
    said = torch.load(tmp_path / "rank0.pt", weights_only=False)
    assert words in said
    (record,) = flight_recorder.since(tmp_path / "traces", 0)
    recorded = pickle.loads(record.read_bytes())
    assert [entry["input_sizes"] for entry in recorded["entries"]] == [[[2]], [[1]]]
    (status,) = recorded["pg_status"].values()
    assert status["last_enqueued_collective"] == 2
    # gloo counts an exchange whose peer is gone as completed, with an error
    assert status["last_completed_collective"] == (2 if gone else 1)


def test_the_records_of_all_ranks_are_read_with_pytorchs_command(tmp_path):
    run_gloo(exchange_and_write, 2, tmp_path, tmp_path / "traces of a run")
    command = shlex.split(flight_recorder.how_to_read(tmp_path / "traces of a run"))
    command[0] = str(Path(sys.executable).with_name(command[0]))
    read = subprocess.run(
        [*command, "--just_print_entries"], capture_output=True, text=True, timeout=200
    )
    assert read.returncode == 0, read.stderr
    assert "allreduce" in (read.stdout + read.stderr).lower()


def exchange_and_write(traces: Path) -> None:
    """One exchange, and each rank writes what it has recorded."""
    rank, _ = rank_and_world_size()
    all_reduce_sum_floats([1.0])
    flight_recorder.write(traces, rank)


def test_other_errors_are_not_explained():
    assert (
        worker_errors.explain_failed_collective(RuntimeError("shape mismatch"), 1.0)
        is None
    )
