"""Training workers on Ray. Ray starts and restarts processes; xmtc handles checkpoints, metrics and resume."""

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import FailureConfig, ScalingConfig, get_context
from ray.train import RunConfig as RayRunConfig
from ray.train.torch import TorchTrainer
from ray.train.v2.api.exceptions import TrainingFailedError

from xmtc.cluster import flight_recorder
from xmtc.cluster.attempt import Attempt
from xmtc.cluster.connection import join
from xmtc.cluster.stopping import WorkerConfig, run_until_stopped, stopping_with
from xmtc.distributed.collectives import run_collectively
from xmtc.errors import Interrupted, TrainingError, XmtcError
from xmtc.run.copies import RunCopies
from xmtc.run.directory import Stage
from xmtc.stages.table import entry_of
from xmtc.track.again import how_to_continue
from xmtc.track.console import print_line
from xmtc.training.interruption import STOP

_RESIZE_INTERVAL_S = 600.0
"""Seconds between checks for room for more workers. Adding workers repeats the steps since the newest checkpoint."""
_OUT_OF_MEMORY = "running low on memory"
"""What Ray says of workers that it kills before the kernel would."""
_PATIENCE_S = 5.0
"""How long a stage that begins again anyway may take to keep what it has, such as hidden states."""


def train_on_cluster(stage: Stage, copies: RunCopies) -> int | None:
    """Run a stage on `distributed.workers` Ray workers. If a worker dies, all restart from the newest checkpoint.

    Ray stays up for the next stage; see `disconnect`.

    Args:
        stage: name of the stage.
        copies: run and corpus, at URIs or at paths that every worker can reach. Afterwards, the files of the run are
            here too.

    Returns:
        The signal because of which the run shall stop, if it came too late for the stage, which has ended; else None.

    Raises:
        TrainingError: training failed more often than `distributed.max_failures` allows.
        XmtcError: a worker's error.
        Interrupted: a signal or the cluster has asked the run to stop, and the workers have, after a checkpoint, or
            with a stage that has none.
    """
    config = copies.config
    settings = config.distributed
    join(settings.address)
    each = {
        "CPU": settings.cpus_per_worker,
        "GPU": settings.gpus_per_worker,
    } | settings.resources_per_worker
    _warn_if_cluster_is_small(settings.min_workers, each)
    # Each attempt has a unique name: for a name that has finished before, Ray silently does nothing.
    name = f"{stage}-{time.time_ns()}"
    storage = copies.paths.root / ".ray"
    attempt = Attempt()
    began = time.time()
    traces = copies.paths.flight_recorder
    trainer = TorchTrainer(
        _train_on_worker,
        train_loop_config={
            "stage": stage,
            "copies": copies,
            "attempt": attempt,
            "began": began,
        },
        torch_config=WorkerConfig(
            backend="nccl" if settings.gpus_per_worker else "gloo",
            timeout_s=int(settings.timeout_s),
            traces=traces,
        ),
        scaling_config=ScalingConfig(
            num_workers=settings.workers,
            elastic_resize_monitor_interval_s=_RESIZE_INTERVAL_S,
            use_gpu=settings.gpus_per_worker > 0,
            resources_per_worker=each,
        ),
        run_config=RayRunConfig(
            name=name,
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=settings.max_failures),
        ),
    )
    try:
        patience_s = None if entry_of(stage).keeps_its_place else _PATIENCE_S
        run_until_stopped(trainer.fit, attempt, patience_s=patience_s)
    except Interrupted as interruption:
        raise Interrupted(f"{stage} {interruption}", interruption.number) from None
    except TrainingFailedError as failure:
        with suppress(RayError):  # the cluster may be gone
            error = attempt.stopped() or attempt.first_error()
            if error is not None:
                raise error from failure
        _name_traces(traces, began)
        raise _explain(failure) from failure
    else:
        error = attempt.stopped() or attempt.first_error()
        if error is not None:
            raise error
        copies.fetch_run()  # rank 0 may have been on another node
        return attempt.requested_stop()
    finally:
        shutil.rmtree(
            storage, ignore_errors=True
        )  # Ray's internal files, which another attempt cannot use


def _warn_if_cluster_is_small(workers: int, each: Mapping[str, float]) -> None:
    """Warn if the cluster is too small now for workers with these resources. It may grow, so this is not an error."""
    have = ray.cluster_resources()
    for name, amount in each.items():
        if workers * amount > have.get(name, 0):
            wanted = f"{workers * amount:g} {name} needed, the cluster has {have.get(name, 0):g}"
            print_line(
                f"warning: {wanted}: waiting until it has more; press Ctrl-C to stop"
            )


def _train_on_worker(settings: dict[str, Any]) -> None:
    from xmtc.stages.run_stage import run_stage

    stage, copies, attempt = settings["stage"], settings["copies"], settings["attempt"]
    if attempt.first_error() is not None:
        return
    context = get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    traces = copies.paths.flight_recorder
    if rank == 0:
        _name_traces(traces, settings["began"])
    STOP.clear()
    try:
        with stopping_with(attempt):
            run_collectively(copies.fetch_for_worker)
            run_stage(stage, copies.config, copies.paths)
            run_collectively(copies.publish_run, here=rank == 0)
    except Interrupted as interruption:
        if rank == 0:
            attempt.report_stopped(interruption)
    except XmtcError as error:
        if not attempt.report(error, rank, world_size):
            raise
    except RuntimeError as error:
        message = explain_failed_collective(error, copies.config.distributed.timeout_s)
        if message is not None:
            print_line(
                f"{stage}: {message}. What this worker waited for: {flight_recorder.write(traces, rank)}"
            )
        raise  # Ray starts the workers again


def _name_traces(folder: Path, began: float) -> None:
    """Name the records that NCCL wrote, of exchanges that have failed since the attempt began."""
    if flight_recorder.since(folder, began):
        print_line(
            f"which exchange between workers failed: {flight_recorder.how_to_read(folder)}"
        )


def _explain(failure: TrainingFailedError) -> TrainingError:
    """Convert an error that no worker has reported: it died too often, or a bug, whose traceback Ray has printed."""
    if _OUT_OF_MEMORY in str(failure):
        return TrainingError(
            "Ray killed workers of this run because the memory of their node ran out. Lower distributed.workers, so "
            "that fewer workers share the node, or finetune.tokens_per_micro_batch and data.max_length, so that each "
            f"needs less, as xmtc train --dry-run estimates; {how_to_continue()}"
        )
    causes = [
        str(cause).strip().splitlines()[-1:]
        for cause in getattr(failure, "worker_failures", {}).values()
    ]
    message = "; ".join(sorted({line for lines in causes for line in lines})) or str(
        failure
    )
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
