"""Training the runs of a sweep: one after the other here, or side by side on a cluster."""

import functools
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from xmtc.errors import XmtcError
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig
from xmtc.track.console import print_line

Train = Callable[[RunConfig], Path]
"""`train_run`."""
Outcome = tuple[str, str | None]
"""Name of a run, and why it failed; None if it did not."""


def train_all(
    runs: Sequence[RunConfig], base: RunConfig, train: Train
) -> dict[str, str]:
    """Train runs: side by side on the cluster that `base` joins, as many as it holds; otherwise one after the other.

    Returns:
        Name of each run that failed → why.
    """
    attempt = functools.partial(_attempt, train)
    outcomes = (
        _side_by_side(attempt, runs, base)
        if base.distributed.joins_cluster
        else map(attempt, runs)
    )
    failures = {}
    for name, reason in outcomes:
        if reason is None:
            print_line(f"sweep: {name} done")
        else:
            print_line(f"sweep: {name} failed: {reason}")
            failures[name] = reason
    return failures


def _attempt(train: Train, run: RunConfig) -> Outcome:
    """Train a run. Neither bad input nor a full memory or disk stops the other runs."""
    print_line(f"sweep: {run.name} begins")
    try:
        train(run)
    except XmtcError as error:
        return run.name, f"{type(error).__name__}: {error}"
    except (MemoryError, OSError, RuntimeError) as error:
        traceback.print_exc()
        return run.name, f"{type(error).__name__}: {error}"
    return run.name, None


def _side_by_side(
    attempt: Callable[[RunConfig], Outcome], runs: Sequence[RunConfig], base: RunConfig
) -> Iterator[Outcome]:
    """Run each run as a Ray task; Ray repeats the task of a lost machine, and the run continues from its checkpoint."""
    from xmtc.cluster.connection import join
    from xmtc.cluster.tasks import TaskResources, map_tasks

    join(base.distributed.address)
    first_run_by_corpus = {run.data.corpus: run for run in runs}
    for run in first_run_by_corpus.values():
        with suppress(XmtcError):  # its runs meet the error again, and are named then
            prepare_stage(run)
    cpus = []
    gpus = []
    for run in runs:  # the grid may change how many workers a run has
        processes = max(1, run.distributed.max_workers)
        cpus.append(processes * run.distributed.cpus_per_worker)
        gpus.append(processes * run.distributed.gpus_per_worker)
    in_one_process = all(run.distributed.max_workers == 0 for run in runs)
    needs = TaskResources(cpus=max(cpus), gpus=max(gpus), reserved=in_one_process)
    return map_tasks(
        attempt,
        runs,
        needs,
        lost=lambda run, error: (
            run.name,
            f"its process died: {error}".splitlines()[0],
        ),
    )
