"""The parts of a training stage: objective, phases, settings and position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import nn

from xmtc.data.collate import Batch
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.strategy import ParameterGroup
from xmtc.losses.base import LossOutput
from xmtc.models.classifier import Classifier
from xmtc.track.config import TrackConfig
from xmtc.training.config import OptimizerConfig


class Objective(nn.Module):
    """Computes what a stage learns. It wraps the classifier in one module, whose forward pass strategies can wrap.

    Attributes:
        measured: what `evaluate` measures, for the console: not the whole model, if scorers join the head later.

    Args:
        classifier: the model to train.
        evaluate: computes dev metrics, the same on every rank; collective.
    """

    measured: ClassVar[str] = "head alone"

    def __init__(
        self, classifier: Classifier, evaluate: Callable[[], dict[str, float]]
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.evaluate = evaluate

    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Compute the summed loss of a micro-batch; `seed` determines every random choice in it."""
        raise NotImplementedError

    def before_step(self, step: int) -> None:
        """Prepare the next optimizer step of the stage, numbered from 0."""

    def read_metrics(self) -> dict[str, float]:
        """Return metrics to log in addition to the loss, over the steps since the last call."""
        return {}


@dataclass(frozen=True)
class Phase:
    """One phase of a stage.

    Attributes:
        epochs: passes over the training documents.
        groups: makes what the optimizer trains; the loop calls it when the phase begins.
        collate: makes a batch; the loop calls it with a seed.
        encodes: whether batches run through the encoder, and do not bring cached hidden states.
    """

    epochs: int
    groups: Callable[[], list[ParameterGroup]]
    collate: Callable[[MicroBatch, int], Batch]
    encodes: bool = True


@dataclass(frozen=True)
class StageSettings:
    """How a stage runs.

    Attributes:
        name: `plant` or `finetune`.
        optimizer: settings and schedule.
        metric: dev metric that picks the best epoch; higher is better.
        patience: epochs without improvement after which the stage stops; 0: never.
        seed: seed of every random choice.
        inputs: fingerprint of everything that the result depends on; the stage ignores checkpoints of others.
        track: how often to log and save.
    """

    name: str
    optimizer: OptimizerConfig
    metric: str
    patience: int
    seed: int
    inputs: str
    track: TrackConfig


Count = Annotated[int, Field(ge=0)]
"""Of steps, documents or epochs."""


@dataclass
class Position:
    """Progress of a stage. A checkpoint stores all of it, which makes a resume exact.

    Attributes:
        phase, epoch: current phase of the stage; current epoch of the phase.
        consumed: documents of the epoch that have been used.
        step, phase_step: optimizer steps done in the stage and in the phase.
        epochs_done: epochs done in the stage.
        best, best_epoch: best dev metric, and the number of epochs before it; None before the first evaluation.
        skipped: consecutive updates skipped because they were not finite.
        inputs: see `StageSettings`.
    """

    phase: Count = 0
    epoch: Count = 0
    consumed: Count = 0
    step: Count = 0
    phase_step: Count = 0
    epochs_done: Count = 0
    best: float | None = None
    best_epoch: Count = 0
    skipped: Count = 0
    inputs: str = ""
