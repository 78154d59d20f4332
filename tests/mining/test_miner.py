"""The miner: what it keeps and drops, when an index takes over, and that no step waits for one."""

import threading
import time

import numpy as np
import pytest
import torch

from xmtc.errors import XmtcError
from xmtc.mining import miner as module
from xmtc.mining.config import MiningConfig
from xmtc.mining.index import LabelIndex
from xmtc.mining.miner import Miner

CPU = torch.device("cpu")
NOTHING = np.zeros(0, np.int64)


def one_hot(labels: int = 6) -> np.ndarray:
    return np.eye(labels, dtype=np.float32)


def mine(
    miner: Miner,
    queries: list[list[float]],
    positives: list[tuple[int, int]] | None = None,
) -> list[int]:
    rows, labels = (np.array([p[i] for p in positives or []], np.int64) for i in (0, 1))
    return miner.mine(np.array(queries, np.float32), rows, labels).tolist()


def wait(miner: Miner) -> None:
    assert miner._pending is not None
    miner._pending[1].result(timeout=30)


def test_candidates_that_are_own_or_found_twice_are_dropped_and_counted():
    miner = Miner(MiningConfig(candidates=3), one_hot, CPU)
    miner.before_step(0)
    queries = [[9, 8, 7, 0, 0, 0], [0, 9, 8, 7, 0, 0]]
    assert mine(miner, queries, [(0, 0), (0, 5), (1, 3)]) == [1, 2]
    metrics = miner.read_metrics()
    assert metrics["mine/recall"] == pytest.approx(2 / 3)
    assert metrics["mine/dropped_positive"] == 1.0
    assert metrics["mine/dropped_duplicate"] == 1.0
    assert metrics["mine/dropped_missing"] == 0.0
    assert metrics["mine/labels"] == 2.0
    assert metrics["mine/query_ms"] > 0
    assert metrics["mine/build_s"] > 0
    assert miner.read_metrics() == {}


def test_the_head_chooses_among_more_than_are_kept():
    miner = Miner(MiningConfig(candidates=1), one_hot, CPU)
    miner.before_step(0)
    asked = []

    def rank(found_BK: np.ndarray) -> np.ndarray:
        asked.append(found_BK.tolist())
        return np.where(found_BK == 2, 1.0, 0.0).astype(np.float32)

    nobody = NOTHING, NOTHING
    assert miner.mine(
        np.array([[9, 8, 7, 6, 0, 0]], np.float32), *nobody, rank
    ).tolist() == [2]
    assert asked == [[[0, 1, 2, 3]]]
    assert miner.mine(np.array([[9, 8, 7, 0, 0, 0]], np.float32), *nobody).tolist() == [
        0
    ]


def test_a_positive_of_another_document_is_a_negative_here():
    miner = Miner(MiningConfig(candidates=1), one_hot, CPU)
    miner.before_step(0)
    assert mine(miner, [[9, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0]], [(0, 0)]) == [0]


def test_an_index_takes_over_half_a_refresh_after_it_was_begun():
    now = {"step": 0}
    miner = Miner(
        MiningConfig(candidates=1, refresh_steps=4),
        lambda: np.roll(one_hot(), now["step"], axis=0),
        CPU,
    )
    served = []
    for step in range(9):
        now["step"] = step
        miner.before_step(step)
        served += mine(miner, [[1, 0, 0, 0, 0, 0]])
        if miner._pending:
            wait(miner)
    # built before step 0; begun at 2, 4 and 6
    assert served == [0, 0, 0, 0, 2, 2, 4, 4, 0]


def test_training_does_not_wait_for_a_slow_build_and_says_so(monkeypatch, capfd):
    miner = Miner(MiningConfig(candidates=1, refresh_steps=2), one_hot, CPU)
    miner.before_step(0)
    release = threading.Event()
    build = module._build
    monkeypatch.setattr(
        module, "_build", lambda *arguments: (release.wait(30), build(*arguments))[1]
    )
    start = time.perf_counter()
    for step in range(1, 6):
        miner.before_step(step)
        assert mine(miner, [[0, 0, 1, 0, 0, 0]]) == [2]
    assert time.perf_counter() - start < 5
    printed = " ".join(capfd.readouterr().err.split())
    assert "the index is 3 steps old at step 3" in printed
    assert "refresh_steps (2)" in printed
    assert printed.count("steps old") == 2  # at 3 and 5
    release.set()
    wait(miner)
    miner.before_step(6)
    assert miner._age == 5  # begun at step 1


def test_an_error_of_the_background_reaches_training():
    tables = iter([one_hot(), np.full((6, 6), np.nan, np.float32)])
    miner = Miner(MiningConfig(refresh_steps=2), lambda: next(tables), CPU)
    miner.before_step(0)
    miner.before_step(1)
    assert miner._pending is not None
    assert isinstance(miner._pending[1].exception(timeout=30), XmtcError)
    with pytest.raises(XmtcError, match="not finite"):
        miner.before_step(2)


def test_candidates_that_an_index_did_not_find_are_counted(monkeypatch):
    miner = Miner(MiningConfig(candidates=3), one_hot, CPU)
    miner.before_step(0)
    monkeypatch.setattr(LabelIndex, "search", lambda *_: np.array([[4, -1, -1]]))
    assert mine(miner, [[0] * 6]) == [4]
    assert miner.read_metrics()["mine/dropped_missing"] == 2.0
