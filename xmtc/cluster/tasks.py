"""Work on all machines of a cluster: the parallel map that `prepare` takes, and that of sweeps, as Ray tasks."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.exceptions import RayTaskError

from xmtc.cluster.connection import connect
from xmtc.data.parallel import MapUnordered
from xmtc.run.config import RunConfig

T = TypeVar("T")
R = TypeVar("R")

_WAITING = 2  # tasks submitted for each that can run, so that a machine has its next one when it ends one


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a task takes of a cluster.

    Attributes:
        cpus: cores.
        gpus: GPUs, or a share of one.
        held: by the task itself; otherwise by what it starts, and only as many tasks run as the cluster has room for.
    """

    cpus: float = 1
    gpus: float = 0
    held: bool = True

    def room(self) -> int:
        """Tasks that the cluster can run at once, at least one."""
        have, wanted = ray.cluster_resources(), {"CPU": self.cpus, "GPU": self.gpus}
        return max(1, min(int(have.get(name, 0) // amount) for name, amount in wanted.items() if amount))


def cluster_mapper(config: RunConfig) -> MapUnordered | None:
    """Works on the cluster that the run joins; None for a run with a Ray of its own, whose machine has no more cores.

    Connects when the first item comes, which it does not for a corpus that is up to date.
    """
    return functools.partial(_map_on_cluster, config) if config.distributed.joins_cluster else None


def _map_on_cluster(config: RunConfig, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    connect(config)
    yield from map_tasks(function, items)


def map_tasks(function: Callable[[T], R], items: Iterable[T], needs: Needs = Needs()) -> Iterator[R]:
    """Results of `function(item)`, each a Ray task, in any order; Ray repeats the tasks of a machine that is lost.

    Tasks run in this process's working directory, which, like all paths in `items`, every machine must have.
    """
    task: Any = ray.remote(num_cpus=needs.cpus * needs.held, num_gpus=needs.gpus * needs.held)(_run_in)
    shared, directory = ray.put(function), os.getcwd()
    most = needs.room() * (_WAITING if needs.held else 1)
    running: list[Any] = []
    for item in items:
        running.append(task.remote(directory, shared, item))
        if len(running) >= most:
            yield _next(running)
    while running:
        yield _next(running)


def _run_in(directory: str, function: Callable[[T], R], item: T) -> R:
    os.chdir(directory)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # Ray already gives every core a task
    return function(item)


def _next(running: list[Any]) -> Any:
    """The first result that is ready; its task leaves `running`.

    Raises:
        Exception: what the task raised, as it raised it; the others are cancelled.
    """
    (ready,), running[:] = ray.wait(running, num_returns=1)
    try:
        return ray.get(ready)
    except RayTaskError as error:
        for other in running:
            ray.cancel(other)
        raise error.cause from None
