import threading
import time

import pytest

from xmtc.data.loader import prefetch


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_results_in_order(depth):
    assert list(prefetch((lambda i=i: i * i for i in range(20)), depth)) == [i * i for i in range(20)]


def test_runs_ahead_but_not_too_far():
    done: list[int] = []
    results = prefetch((lambda i=i: done.append(i) for i in range(100)), depth=3)
    next(results)
    deadline = time.monotonic() + 5
    while len(done) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert done == [0, 1, 2, 3]
    results.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("xmtc-prefetch")]


def test_error_comes_where_the_result_would():
    def fail() -> int:
        raise ValueError("third")

    results = prefetch([lambda: 1, lambda: 2, fail, lambda: 4], depth=2)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(results)
