"""Batches are made in the background while the device computes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(thunks: Iterable[Callable[[], T]], depth: int) -> Iterator[T]:
    """Yield the results of the thunks in order; a background thread computes up to `depth` ahead.

    An error in a thunk is raised where its result would have come; the thunks after it, and those not yet asked for
    when the iterator is closed, are not run.

    Args:
        thunks: what to compute.
        depth: most results ahead; 0: compute in this thread, when asked.
    """
    if depth <= 0:
        for thunk in thunks:
            yield thunk()
        return
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="xmtc-prefetch")
    pending: deque[Future[T]] = deque()
    try:
        for thunk in thunks:
            pending.append(pool.submit(thunk))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
