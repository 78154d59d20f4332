"""The rate of a device, from what a token costs."""

from xmtc.track.throughput import Throughput, Work


def read_after(seconds: float, work: Work) -> dict[str, float]:
    times = iter([0.0, seconds])
    meter = Throughput(clock=lambda: next(times), work=work)
    meter.add(documents=10, tokens=1000)
    return meter.read()


def test_operations_become_a_rate_of_each_device_and_its_share():
    metrics = read_after(
        2.0, Work(operations_per_token=4e9, workers=2, tflop_per_s=10.0)
    )
    assert metrics["perf/tflop_per_s"] == 1.0
    assert metrics["perf/mfu"] == 0.1


def test_an_unknown_card_has_no_share_and_uncounted_operations_have_no_rate():
    assert "perf/mfu" not in read_after(2.0, Work(operations_per_token=4e9))
    assert "perf/tflop_per_s" not in read_after(2.0, Work())
