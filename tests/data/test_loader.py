import threading
import time

import pytest
from threadpoolctl import threadpool_info

from xmtc.data.loader import in_threads, prefetch


@pytest.mark.parametrize(("depth", "workers"), [(1, 1), (4, 1), (4, 3)])
def test_results_in_order(depth, workers):
    assert list(prefetch((lambda i=i: i * i for i in range(20)), depth, workers)) == [
        i * i for i in range(20)
    ]


def test_libraries_start_no_threads_in_threads_and_may_again_afterwards():
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info()]

    before = threads()
    assert before
    assert all(
        set(found) == {1} for found in in_threads((threads for _ in range(20)), 3)
    )
    assert threads() == before


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
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("xmtc-prefetch")
    ]


def test_error_comes_where_the_result_would():
    def fail() -> int:
        raise ValueError("third")

    results = prefetch([lambda: 1, lambda: 2, fail, lambda: 4], depth=2)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="third"):
        next(results)
