from xmtc.models.heads.config import FlatConfig
from xmtc.preflight import probe
from xmtc.preflight.probe import probe_head


def test_times_are_those_of_the_run_s_threads(monkeypatch):
    monkeypatch.setattr(probe, "cpu_count", lambda: 16)
    one, all_, more = (probe_head(FlatConfig(), 64, 500, 20.0, None, 5, threads=count) for count in (1, None, 99))
    assert one.train_s > 3 * all_.train_s, "16 cores are 10 times as fast as one"
    assert one.train_s > 3 * more.train_s, "no more threads than cores"
    assert all_.train_s > more.train_s / 3
