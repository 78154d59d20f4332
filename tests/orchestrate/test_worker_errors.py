from concurrent.futures import ThreadPoolExecutor

import pytest

from xmtc.errors import DataError, TrainingError
from xmtc.orchestrate import cluster, worker_errors
from xmtc.orchestrate.worker_errors import WorkerErrors


def test_an_error_that_all_workers_meet_ends_them_without_one(tmp_path):
    errors = WorkerErrors(tmp_path / "errors")
    assert errors.first() is None
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda rank: errors.leave(TrainingError(f"rank {rank}: NaN"), rank, 2), (0, 1)))
    assert ended == [True, True]
    found = errors.first()
    assert isinstance(found, TrainingError)
    assert str(found) == "rank 0: NaN"


def test_an_error_of_one_worker_is_raised_there_and_its_group_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_errors, "_PATIENCE_S", 0.2)
    errors = WorkerErrors(tmp_path / "errors")
    assert not errors.leave(DataError("shard 3: damaged"), 1, 2)
    monkeypatch.setattr("xmtc.orchestrate.stages.run_stage", lambda *_: pytest.fail("tries again"))
    cluster._train_on_worker({"errors": errors, "stage": "plant", "config": None, "paths": None})
    found = errors.first()
    assert isinstance(found, DataError)
