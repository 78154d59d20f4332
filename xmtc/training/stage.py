"""What the training loop runs: an objective, phases, the stage's settings, and where it stands."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from xmtc.data.collate import Batch
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.strategy import ParameterGroup
from xmtc.losses.base import LossOutput
from xmtc.models.classifier import Classifier
from xmtc.track.config import TrackConfig
from xmtc.training.config import OptimizerConfig


class Objective(nn.Module):
    """What a stage learns: a module around the classifier, so that strategies wrap one forward.

    Args:
        classifier: what is trained.
        evaluate: dev metrics, the same on every rank; all ranks call it together.
    """

    def __init__(self, classifier: Classifier, evaluate: Callable[[], dict[str, float]]) -> None:
        super().__init__()
        self.classifier = classifier
        self.evaluate = evaluate

    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Summed loss of a micro-batch; `seed` fixes every random choice in it."""
        raise NotImplementedError

    def before_step(self, step: int) -> None:
        """Called before each optimizer step of the stage, from 0, with the parameters as the last one left them."""

    def read_metrics(self) -> dict[str, float]:
        """What to log in addition to the loss, over the steps since the last call."""
        return {}


@dataclass(frozen=True)
class Phase:
    """One phase of a stage; the loop calls `groups` when the phase begins."""

    epochs: int
    groups: Callable[[], list[ParameterGroup]]
    collate: Callable[[MicroBatch], Batch]


@dataclass(frozen=True)
class StageSettings:
    """How a stage runs.

    Attributes:
        name: `plant` or `finetune`.
        optimizer: settings and schedule.
        metric: dev metric that picks the best epoch, higher is better.
        patience: epochs without a better one after which the stage stops; 0 never.
        seed: of every random choice.
        corpus: its fingerprint; the stage ignores a checkpoint that was made from another corpus.
        track: how often to log and save.
    """

    name: str
    optimizer: OptimizerConfig
    metric: str
    patience: int
    seed: int
    corpus: str
    track: TrackConfig


@dataclass
class Position:
    """Where a stage stands. All of it goes into a checkpoint, and from it a resume is exact.

    Attributes:
        phase, epoch: of the stage; of the phase.
        consumed: documents of the epoch.
        step, phase_step: optimizer steps of the stage and of the phase.
        epochs_done: of the stage.
        best, best_epoch: the best dev metric, and after how many epochs; None before the first.
        skipped: updates in a row that were not finite.
        corpus: fingerprint of the corpus.
    """

    phase: int = 0
    epoch: int = 0
    consumed: int = 0
    step: int = 0
    phase_step: int = 0
    epochs_done: int = 0
    best: float | None = None
    best_epoch: int = 0
    skipped: int = 0
    corpus: str = ""
