import json
import os
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
import torch
from ray.train.v2.api.exceptions import ControllerError

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


TIMEOUT_S = 10
"""Of an exchange, and of the start of a group, for which a busy machine takes seconds."""


def late_or_gone(gone: bool, traces: Path) -> str | None:
    """What rank 0 says when rank 1 sleeps through a collective, or is gone; it writes what it has recorded."""
    rank, _ = rank_and_world_size()
    all_reduce_sum_floats([1.0, 2.0])
    if rank == 1:
        time.sleep(0 if gone else 2 * TIMEOUT_S)
        os._exit(0)
    try:
        all_reduce_sum_floats([1.0])
    except RuntimeError as error:
        flight_recorder.write(traces, rank)
        return worker_errors.explain_failed_collective(error, TIMEOUT_S)
    return None


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (False, "more than distributed.timeout_s=10: a worker hangs"),
        (True, "connection to another worker is lost"),
    ],
)
def test_a_failed_collective_is_explained(tmp_path, gone, words):
    with pytest.raises(
        FileNotFoundError, match=r"rank1\.pt"
    ):  # rank 1 leaves no result
        run_gloo(
            late_or_gone, 2, tmp_path, gone, tmp_path / "traces", timeout_s=TIMEOUT_S
        )
    said = torch.load(tmp_path / "rank0.pt", weights_only=False)
    assert words in said
    recorded = json.loads((tmp_path / "traces" / "rank_0.json").read_bytes())
    assert [entry["input_sizes"] for entry in recorded["entries"]] == [[[2]], [[1]]]
    last = recorded["entries"][-1]
    assert last["profiling_name"] == "gloo:all_reduce"
    assert last["collective_seq_id"] == 2


def test_only_records_of_nccl_since_the_attempt_began_are_named(tmp_path):
    """Those of gloo are JSON, and named by the worker that wrote them."""
    for name in ("rank_0", "rank_1.json", "rank_2"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "rank_2", (1, 1))
    assert flight_recorder.since(tmp_path, 10) == [tmp_path / "rank_0"]
    command = shlex.split(flight_recorder.how_to_read(tmp_path / "a b"))
    assert command[0] == "torchfrtrace"
    assert command[-1] == str(tmp_path / "a b")


def test_workers_that_ray_kills_for_memory_are_explained(monkeypatch):
    monkeypatch.setattr("sys.argv", ["xmtc", "train", "a.yaml"])
    killed = ControllerError(
        RuntimeError(
            "5 worker(s) were killed due to the node running low on memory.\nObject store: 3 GB"
        )
    )
    said = str(worker_errors._explain(killed))
    assert "the memory of their node ran out. Lower distributed.workers" in said
    assert said.endswith("; continue with: xmtc train a.yaml")
    other = str(worker_errors._explain(ControllerError(RuntimeError("a bug"))))
    assert "see above: Training failed due to controller error:" in other


def test_other_errors_are_not_explained():
    assert (
        worker_errors.explain_failed_collective(RuntimeError("shape mismatch"), 1.0)
        is None
    )
