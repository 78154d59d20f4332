"""Run one stage that needs the model on this rank."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xmtc.distributed.memory import release_freed_memory
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.stages.table import entry_of
from xmtc.stages.worker import Worker, build_worker
from xmtc.track.console import print_line


def run_stage(stage: Stage, config: RunConfig, paths: RunPaths) -> None:
    """Run one stage on this rank."""
    try:
        _run(stage, config, paths)
    finally:
        gc.collect()  # the label tables, which reference cycles keep
        release_freed_memory()


def _run(stage: Stage, config: RunConfig, paths: RunPaths) -> None:
    load_work = entry_of(stage).load_work
    assert load_work is not None, f"{stage} needs no worker"
    work = load_work()
    worker = build_worker(config, paths, split=stage in (Stage.PLANT, Stage.FINETUNE))
    if (
        worker.is_first
        and worker.initial_model is not None
        and stage == _first_to_train(worker)
    ):
        print_line(worker.initial_model.describe(worker.corpus.manifest.vocabulary))
    with denormals_as_zero():
        work(worker)


def _first_to_train(worker: Worker) -> Stage:
    return Stage.PLANT if worker.planting.parts else Stage.FINETUNE


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Compute with zeros for denormal numbers, on a CPU and in this thread.

    Vanishing gradients of a recurrent encoder become denormal numbers, which slow down a CPU by a factor of 4.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
