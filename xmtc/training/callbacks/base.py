"""The interface between the training loop and its callbacks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from xmtc.training.objective import Position


@dataclass(frozen=True)
class StageContext:
    """The stage, process and directory that a callback runs in.

    Attributes:
        stage: `plant` or `finetune`.
        directory: the run directory; its files are copied together with the run's checkpoints.
        rank: rank of this process.
        device: device that the model trains on.
    """

    stage: str
    directory: Path
    rank: int
    device: torch.device


class Callback:
    """Base class of callbacks. Override the methods that you need.

    The loop calls every method on every rank at the same point, so methods may exchange data between ranks. The order
    is: `begin_phase` for each phase, and `load` if the stage resumes; `before_step` and `after_step` for each step;
    `save` with each checkpoint; `end`. A resume must be exact, so save all state.
    """

    def begin_phase(self, trained: Mapping[str, nn.Parameter]) -> None:
        """Start a phase that trains these named parameters. The tensors stay the same objects throughout the phase."""

    def before_step(self, position: Position) -> None:
        """Run before the optimizer step that follows `position`."""

    def after_step(self, position: Position) -> None:
        """Run after the step that led to `position`. If `position.skipped` is not 0, it changed no parameter."""

    def save(self, directory: Path) -> None:
        """Write the state into a checkpoint that all ranks share. File names begin with the callback's kind.

        Raises:
            OSError: this rank could not write; raised after the last exchange between ranks.
        """

    def load(self, directory: Path) -> None:
        """Read what `save` wrote, after `begin_phase`.

        Raises:
            CheckpointError: the checkpoint has no such state, or the state of another model.
        """

    def end(self) -> None:
        """Run after the last step of the stage."""
