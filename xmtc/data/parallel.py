"""Work on all cores of this machine; a cluster passes another mapper (Ray tasks) with the same signature."""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, cast

from joblib import Parallel, cpu_count, delayed

_WATCH_S = 0.5

T = TypeVar("T")
R = TypeVar("R")

# joblib's advice after an error or Ctrl-C, which has already told the user everything
warnings.filterwarnings(
    "ignore", message=".*tasks which were still being processed", category=UserWarning
)
# a worker's idle time ended just as new work came: loky starts another, and nothing is lost
warnings.filterwarnings(
    "ignore",
    message="A worker stopped while some jobs were given",
    category=UserWarning,
)


class MapUnordered(Protocol):
    """Applies a picklable function to every item, in parallel; results come as they become ready."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the results of `function(item)`, in any order; an error in one ends the iteration."""
        ...


def map_processes(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Map with one process per core, without forking; workers import only what `function` needs.

    joblib's loky starts workers afresh (a fork would copy locks that tokenizer or torch threads hold) and, unlike
    multiprocessing's spawn, doesn't import the main script again.
    """
    item_list = list(items)
    if len(item_list) <= 1 or cpu_count() == 1:
        yield from map(function, item_list)
        return
    pool: Any = Parallel(
        n_jobs=min(cpu_count(), len(item_list)),
        backend="loky",
        return_as="generator_unordered",
        batch_size=cast(str, 1),  # joblib annotates it as text alone
        max_nbytes=None,
        initializer=_begin_worker,
        initargs=(os.getpid(),),
        idle_worker_timeout=5,
    )
    yield from pool(delayed(function)(item) for item in item_list)


def _begin_worker(parent: int) -> None:
    # The processes already take every core; the tokenizers library reads this switch and nothing else.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()


def end_with(parent: int) -> None:
    """End this process soon after its parent ends, even by SIGKILL."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)
