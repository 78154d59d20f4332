"""The speed-up by threads, and which number of threads a measurement assumes."""

from itertools import pairwise

import pytest

import tiny_runs
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.estimate import measured, probe
from xmtc.estimate.probe import HeadSpeed, Speeds, gain, probe_head
from xmtc.models.heads.config import FlatConfig


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(probe, "cpu_count", lambda: 16)


@pytest.mark.usefixtures("cores")
def test_threads_gain_up_to_the_number_of_cores() -> None:
    gains = [gain(threads) for threads in range(1, 17)]
    assert gains[0] == 1
    assert all(less < more for less, more in pairwise(gains))
    assert gains[-1] < 16
    assert gain(99) == gain(None) == gains[-1], "no more threads than cores"


@pytest.mark.usefixtures("cores")
def test_times_of_a_head_are_those_of_the_run_s_threads(monkeypatch) -> None:
    monkeypatch.setattr(probe, "_best_of", lambda times, work: 1.0)
    one, four = (probe_head(FlatConfig(), 64, 500, 20.0, None, 5, threads=count) for count in (1, 4))
    for name in ("train_s", "step_s", "score_s"):
        assert getattr(one, name) == pytest.approx(getattr(four, name) * gain(4)), name


def test_measurements_get_the_threads_of_the_run(tmp_path, monkeypatch) -> None:
    given = {}
    speeds = Speeds(prepare_s=0.1, products=1e9, items=1e7, encode_s={}, cores=2)
    head = HeadSpeed(train_s=0.1, step_s=0.1, score_s=0.1)
    monkeypatch.setattr(measured, "probe", lambda *_, threads: given.update(probe=threads) or speeds)
    monkeypatch.setattr(measured, "probe_head", lambda *settings: given.update(head=settings[-1]) or head)
    measured._head.cache_clear()
    model = {"encoder": {"kind": "hugging_face", "name": DEFAULT_BACKBONE}}
    path = tiny_runs.write_config(tmp_path, model=model, distributed={"workers": 0, "threads": 3})
    found = measured.measure(tiny_runs.load(path), 384)
    measured._head.cache_clear()
    assert found is not None
    assert found.stages is not None
    assert given == {"probe": 3, "head": 3}
