"""What the training loop tells its callbacks."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from xmtc.training.stage import Position


@dataclass(frozen=True)
class StageContext:
    """Where a callback runs.

    Attributes:
        stage: `plant` or `finetune`.
        directory: the run directory; files in it travel with the run's checkpoints.
        rank: of this process.
        device: on which the model trains.
    """

    stage: str
    directory: Path
    rank: int
    device: torch.device


class Callback:
    """Follows one stage of training; override what you need.

    The loop calls every method on every rank, at the same point, so that methods may exchange data between ranks. The
    order is: for each phase `begin_phase`, and `load` where the stage resumes; for each step `before_step` and
    `after_step`; after each epoch `evaluating`; `save` with each checkpoint; `end`. A resume must be exact, so all
    state goes into the checkpoint.
    """

    def begin_phase(self, trained: Mapping[str, nn.Parameter]) -> None:
        """A phase begins: these parameters, by name, train in it, and keep their identity."""

    def before_step(self, position: Position) -> None:
        """An optimizer step follows `position`."""

    def after_step(self, position: Position) -> None:
        """The step that led to `position` is done. Where `position.skipped` is not 0, it changed no parameter."""

    def evaluating(self) -> AbstractContextManager[None]:
        """Around the evaluation on dev and the copy of the best weights, with the parameters as it leaves them."""
        return nullcontext()

    def checkpoint_bytes(self) -> int:
        """What `save` will write, summed over ranks; about."""
        return 0

    def save(self, directory: Path) -> None:
        """Write the state into a checkpoint, which all ranks share; file names begin with the callback's kind.

        Raises:
            OSError: this rank could not write; raised after the last exchange between ranks.
        """

    def load(self, directory: Path) -> None:
        """Read what `save` wrote, after `begin_phase`.

        Raises:
            CheckpointError: the checkpoint has no such state, or another model's.
        """

    def end(self) -> None:
        """The last step of the stage is done."""
