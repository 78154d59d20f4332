"""Parallel maps over all machines of a cluster, as Ray tasks, for `prepare` and for sweeps."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from xmtc.cluster.connection import join
from xmtc.data.parallel import MapUnordered
from xmtc.run.config import RunConfig

T = TypeVar("T")
R = TypeVar("R")
Lost = Callable[[Any, RayError], Any] | None

_WAITING = 2  # submitted tasks per running task, so that a machine that finishes a task has the next one


@dataclass(frozen=True, kw_only=True)
class TaskResources:
    """The resources that a task needs.

    Attributes:
        cpus: number of cores.
        gpus: number of GPUs, or a share of one.
        reserved: whether Ray reserves them for the task. Otherwise its child processes reserve them, and only as many
            tasks run as the cluster has room for.
    """

    cpus: float = 1
    gpus: float = 0
    reserved: bool = True

    def room(self) -> int:
        """Return how many of these tasks the cluster can run at the same time, at least one."""
        have, wanted = ray.cluster_resources(), {"CPU": self.cpus, "GPU": self.gpus}
        return max(
            1,
            min(
                int(have.get(name, 0) // amount)
                for name, amount in wanted.items()
                if amount
            ),
        )


def cluster_mapper(config: RunConfig) -> MapUnordered | None:
    """Make a map over the cluster that the run joins; None if the run starts Ray here, which adds no cores.

    It connects when it gets the first item, so not at all if the corpus is up to date.
    """
    return (
        functools.partial(_map_on_cluster, config)
        if config.distributed.joins_cluster
        else None
    )


def _map_on_cluster(
    config: RunConfig, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[R]:
    join(config.distributed.address)
    yield from map_tasks(function, items)


def map_tasks(
    function: Callable[[T], R],
    items: Iterable[T],
    resources: TaskResources = TaskResources(),
    lost: Lost = None,
) -> Iterator[R]:
    """Yield the results of `function(item)`, one Ray task each, in any order. Ray repeats the tasks of a lost machine.

    Tasks run in this process's working directory. Every machine must have this directory and all paths in `items`.
    `lost` makes the result of a task whose process dies again and again, as without memory; without it, that raises.
    """
    reserved = resources if resources.reserved else TaskResources(cpus=0)
    task: Any = ray.remote(num_cpus=reserved.cpus, num_gpus=reserved.gpus)(_run_in)
    shared, directory = ray.put(function), os.getcwd()
    most = resources.room() * (_WAITING if resources.reserved else 1)
    running: dict[Any, T] = {}
    for item in items:
        running[task.remote(directory, shared, item)] = item
        if len(running) >= most:
            yield _next(running, lost)
    while running:
        yield _next(running, lost)


def _run_in(directory: str, function: Callable[[T], R], item: T) -> R:
    os.chdir(directory)
    os.environ["TOKENIZERS_PARALLELISM"] = (
        "false"  # Ray already gives every core a task
    )
    return function(item)


def _next(running: dict[Any, Any], lost: Lost) -> Any:
    """Wait for the first result, and remove its task from `running`.

    Raises:
        Exception: the task's exception; the other tasks are cancelled.
    """
    (ready,), _ = ray.wait(list(running), num_returns=1)
    item = running.pop(ready)
    try:
        return ray.get(ready)
    except RayError as error:
        if lost is not None and not isinstance(error, RayTaskError):
            return lost(item, error)
        for other in running:
            ray.cancel(other)
        raise getattr(error, "cause", error) from None
