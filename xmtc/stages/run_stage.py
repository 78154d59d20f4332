"""Run one stage that needs the model on this rank."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from xmtc.distributed.memory import release_freed_memory
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.stages.evaluate import evaluate
from xmtc.stages.finetune import finetune
from xmtc.stages.plant import plant
from xmtc.stages.scorers import refit, scorers
from xmtc.stages.worker import build_worker
from xmtc.track.console import print_line

_WORK = {
    Stage.SCORERS: scorers,
    Stage.PLANT: plant,
    Stage.FINETUNE: finetune,
    Stage.REFIT: refit,
    Stage.EVALUATE: evaluate,
}


def run_stage(stage: Stage, config: RunConfig, paths: RunPaths) -> None:
    """Run one stage on this rank."""
    try:
        _run(stage, config, paths)
    finally:
        gc.collect()  # the label tables, which reference cycles keep
        release_freed_memory()


def _run(stage: Stage, config: RunConfig, paths: RunPaths) -> None:
    worker = build_worker(config, paths, split=stage in (Stage.PLANT, Stage.FINETUNE))
    begins = stage == (Stage.PLANT if worker.planting.parts else Stage.FINETUNE)
    if begins and worker.is_first and worker.initial_model is not None:
        print_line(worker.initial_model.describe(worker.corpus.manifest.vocabulary))
    with denormals_as_zero():
        _WORK[stage](worker)


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
