"""Make batches in the background while the device computes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(thunks: Iterable[Callable[[], T]], depth: int) -> Iterator[T]:
    """Yield the results of the thunks in order; a background thread computes up to `depth` ahead.

    An error in a thunk is raised instead of returning its result. Later thunks do not run, nor do pending ones when the
    iterator is closed.

    Args:
        thunks: computations.
        depth: maximum number of results ahead; 0 computes in this thread, on request.
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
