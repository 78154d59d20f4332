"""Compute in the background: batches while the device computes, and on several cores."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")


def prefetch(
    thunks: Iterable[Callable[[], T]],
    depth: int,
    workers: int = 1,
    initializer: Callable[[], object] | None = None,
) -> Iterator[T]:
    """Yield the results of the thunks in order; background threads compute up to `depth` ahead.

    An error in a thunk is raised instead of returning its result. Later thunks do not run, nor do pending ones when the
    iterator is closed.

    Args:
        thunks: computations.
        depth: maximum number of results ahead.
        workers: number of threads.
        initializer: called in each thread before its first thunk.
    """
    pool = ThreadPoolExecutor(workers, "xmtc-prefetch", initializer)
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


def in_threads(thunks: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Yield the results of the thunks in order; each is computed by one thread, several at the same time.

    Libraries start no threads of their own meanwhile: those would wait for each other.
    """
    with threadpool_limits(
        1, "blas"
    ):  # of all threads; of OpenMP, each has its own limit
        yield from prefetch(
            thunks, threads, threads, partial(threadpool_limits, 1, "openmp")
        )
