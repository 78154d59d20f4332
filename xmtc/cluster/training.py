"""Training workers on Ray. Ray starts and restarts processes; xmtc handles checkpoints, metrics and resume."""

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import FailureConfig, ScalingConfig, get_context
from ray.train import RunConfig as RayRunConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2.api.exceptions import TrainingFailedError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from xmtc.cluster.connection import join
from xmtc.distributed.collectives import run_collectively
from xmtc.errors import TrainingError, XmtcError
from xmtc.run.copies import RunCopies
from xmtc.run.directory import Stage
from xmtc.track.console import print_line

_TIMEOUT_S, _POLL_S = 10.0, 0.1  # of waiting until every worker has reported its error
_RESIZE_INTERVAL_S = 600.0
"""Seconds between checks for room for more workers. Adding workers repeats the steps since the newest checkpoint."""


class _ErrorStore:
    """The actor: errors by rank."""

    def __init__(self) -> None:
        self.errors: dict[int, XmtcError] = {}

    def report(self, error: XmtcError, rank: int) -> int:
        self.errors[rank] = error
        return len(self.errors)

    def first(self) -> XmtcError | None:
        return self.errors[min(self.errors)] if self.errors else None


class WorkerErrors:
    """The errors of one attempt at a stage, kept in an actor on the node and for the lifetime of the creating process.

    Needs a connection to Ray. Workers get a copy that uses the same actor.
    """

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._store = ray.remote(_ErrorStore).options(num_cpus=0, scheduling_strategy=here).remote()

    def report(self, error: XmtcError, rank: int, world_size: int) -> bool:
        """Report this rank's error, and wait briefly for errors of the others.

        Returns:
            Whether every rank has reported one. If so, no rank waits for this one in a collective.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while int(ray.get(self._store.report.remote(error, rank))) < world_size:  # pyright: ignore[reportArgumentType]
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def first(self) -> XmtcError | None:
        """Return the error of the lowest rank that reported one.

        Raises:
            RayError: the actor can no longer be reached.
        """
        return ray.get(self._store.first.remote())


def train_on_cluster(stage: Stage, copies: RunCopies) -> None:
    """Run a stage on `distributed.workers` Ray workers. If a worker dies, all restart from the newest checkpoint.

    Ray stays up for the next stage; see `disconnect`.

    Args:
        stage: name of the stage.
        copies: run and corpus, at URIs or at paths that every worker can reach. Afterwards, the files of the run are
            here too.

    Raises:
        TrainingError: training failed more often than `distributed.max_failures` allows.
        XmtcError: a worker's error.
        KeyboardInterrupt: on Ctrl-C, after the workers have ended.
    """
    config = copies.config
    settings = config.distributed
    join(settings.address)
    each = {"CPU": settings.cpus_per_worker, "GPU": settings.gpus_per_worker} | settings.resources_per_worker
    _warn_if_cluster_is_small(settings.min_workers, each)
    # Each attempt has a unique name: for a name that has finished before, Ray silently does nothing.
    name = f"{stage}-{time.time_ns()}"
    storage = copies.paths.root / ".ray"
    errors = WorkerErrors()
    trainer = TorchTrainer(
        _train_on_worker,
        train_loop_config={"stage": stage, "copies": copies, "errors": errors},
        torch_config=TorchConfig(
            backend="nccl" if settings.gpus_per_worker else "gloo", timeout_s=int(settings.timeout_s)
        ),
        scaling_config=ScalingConfig(
            num_workers=settings.workers,
            elastic_resize_monitor_interval_s=_RESIZE_INTERVAL_S,
            use_gpu=settings.gpus_per_worker > 0,
            resources_per_worker=each,
        ),
        run_config=RayRunConfig(
            name=name, storage_path=str(storage), failure_config=FailureConfig(max_failures=settings.max_failures)
        ),
    )
    try:
        with _interruptible(stage):
            trainer.fit()
    except TrainingFailedError as failure:
        with suppress(RayError):  # the cluster may be gone
            if (found := errors.first()) is not None:
                raise found from failure
        raise _explain(failure) from failure
    else:
        if (found := errors.first()) is not None:
            raise found
        copies.fetch_run()  # rank 0 may have been on another node
    finally:
        shutil.rmtree(storage, ignore_errors=True)  # Ray's internal files, which another attempt cannot use


def _warn_if_cluster_is_small(workers: int, each: Mapping[str, float]) -> None:
    """Warn if the cluster is too small now for workers with these resources. It may grow, so this is not an error."""
    have = ray.cluster_resources()
    for name, amount in each.items():
        if workers * amount > have.get(name, 0):
            wanted = f"{workers * amount:g} {name} needed, the cluster has {have.get(name, 0):g}"
            print_line(f"warning: {wanted}: waiting until it has more; press Ctrl-C to stop")


@contextmanager
def _interruptible(stage: str) -> Iterator[None]:
    """Turn Ctrl-C inside the context into KeyboardInterrupt; Ray's handler would end this process with success."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as end:
        raise KeyboardInterrupt(f"{stage} stopped; the same command continues from the newest checkpoint") from end
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray sets its handler only there
            signal.signal(signal.SIGINT, handler)


def _train_on_worker(settings: dict[str, Any]) -> None:
    from xmtc.stages.run_stage import run_stage

    stage, copies, errors = settings["stage"], settings["copies"], settings["errors"]
    if errors.first() is not None:
        return
    try:
        run_collectively(copies.fetch_for_worker)
        run_stage(stage, copies.config, copies.paths)
        run_collectively(copies.publish_run, here=get_context().get_world_rank() == 0)
    except XmtcError as error:
        context = get_context()
        if not errors.report(error, context.get_world_rank(), context.get_world_size()):
            raise
    except RuntimeError as error:
        message = explain_failed_collective(error, copies.config.distributed.timeout_s)
        if message is not None:
            print_line(f"{stage}: {message}")
        raise  # Ray starts the workers again


def _explain(failure: TrainingFailedError) -> TrainingError:
    """Convert an error that the user cannot fix: a worker died too often, or a bug, whose traceback Ray has printed."""
    causes = [str(cause).strip().splitlines()[-1:] for cause in getattr(failure, "worker_failures", {}).values()]
    message = "; ".join(sorted({line for lines in causes for line in lines})) or str(failure)
    return TrainingError(
        f"training on Ray failed, see above: {message}. The same command continues from the newest checkpoint"
    )


def explain_failed_collective(error: RuntimeError, timeout_s: float) -> str | None:
    """Explain a failed collective operation of the ranks; None for any other error.

    Only the text identifies it: gloo raises a plain RuntimeError.
    """
    message = str(error).lower()
    if "timed out" in message:
        return (
            f"an exchange between workers took more than distributed.timeout_s={timeout_s:g}: a worker hangs, or the "
            "network is down. The workers restart from the newest checkpoint"
        )
    if "connection closed by peer" in message or "connection reset by peer" in message:
        return "the connection to another worker is lost. The workers restart from the newest checkpoint"
    return None
