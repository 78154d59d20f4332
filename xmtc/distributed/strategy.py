"""What a distribution strategy does for the training loop. Nothing outside this package asks which one it is.

One optimizer step of the loop::

    strategy.set_learning_rates(rates)
    for i, micro_batch in enumerate(micro_batches):          # equally many on every rank
        with strategy.micro_batch(last=i == len(micro_batches) - 1):
            with strategy.autocast():
                loss = loss_of(module(micro_batch)) / global_count
            strategy.backward(loss)
    norm = strategy.step(max_grad_norm)                      # not finite: nothing was applied, on any rank
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig


@dataclass(frozen=True, eq=False)
class ParameterGroup:
    """Parameters that share a learning rate and a weight decay.

    Attributes:
        name: for messages and logs.
        parameters: of the model, at least one.
        learning_rate: until `Strategy.set_learning_rates` sets another.
        weight_decay: decoupled, as in AdamW.
        optimizer: of tables with one row per label, of which it updates only the rows that have a gradient; the group's
            learning rate and decay replace its own. None: AdamW.
    """

    name: str
    parameters: Sequence[nn.Parameter]
    learning_rate: float
    weight_decay: float
    optimizer: RowwiseOptimizerConfig | None = None


class Strategy(Protocol):
    """How the ranks share a model, its gradients and its optimizer state.

    Every method is collective: all ranks call it, in the same order. The gradient of a step is
    the SUM over ranks and micro-batches of the gradients of their losses, whatever the strategy; a loss is therefore
    this rank's share of the global mean.

    Attributes:
        rank: of this process, from 0.
        world_size: processes.
        device: where the model and the batches belong.
        loss_scale: by what `backward` multiplies a loss, and so the gradients of what the strategy does not train.
    """

    rank: int
    world_size: int
    device: torch.device
    loss_scale: float

    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """Move `model` to the device, train the parameters in `groups` with a new optimizer, freeze all others.

        May be called again, for the same model, with another choice of parameters (a phase of gradual unfreezing);
        the module that an earlier call returned is then dead. Parameters keep their identity and their values.

        Returns:
            The callable that the loop must run the model through: gradients flow through its output only.

        Raises:
            ConfigError: the strategy cannot train this model.
        """
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one micro-batch: gradients are exchanged with the last one only."""
        ...

    def autocast(self) -> AbstractContextManager[object]:
        """Around forward and loss: computes in bfloat16 where the precision says so. Parameters stay as they are."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`, a scalar: this rank's and micro-batch's share of the global mean."""
        ...

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """For the next step: one learning rate for each group, in the order of `prepare`."""
        ...

    def step(self, max_grad_norm: float, beside: float = 0.0) -> float:
        """Scale the gradients down to `max_grad_norm`, update the parameters, forget the gradients.

        Args:
            max_grad_norm: most that the global norm may be.
            beside: norm of gradients that are applied elsewhere, the same on all ranks; the global norm counts it in.

        Returns:
            The global L2 norm before clipping. If it is not finite, no rank has changed anything but forgotten its
            gradients; the caller decides what follows.
        """
        ...

    def save(self, directory: Path) -> None:
        """Write trained parameters and optimizer state to `directory`, which exists and is shared by all ranks.

        The files do not depend on strategy and world size: any strategy loads what any other saved.

        Raises:
            OSError: this rank could not write its part; raised after the last collective, so that no rank hangs.
            CheckpointError: a parameter came out empty.
        """
        ...

    def load(self, directory: Path) -> None:
        """Read what `save` wrote, after `prepare` with the same groups.

        Raises:
            CheckpointError: other parameters, other shapes, missing or damaged files.
        """
        ...

    def gather_trainable(self) -> dict[str, Tensor]:
        """Name → full CPU copy of every trained parameter, on every rank; label rows, which stay split, are left out.

        Raises:
            CheckpointError: a parameter came out empty.
        """
        ...

    def checkpoint_bytes(self) -> int:
        """What `save` will write, about, summed over ranks."""
        ...

    def whole(self) -> AbstractContextManager[None]:
        """Around evaluation: within, every rank holds the whole model and may call any part of it, without gradient.

        Outside, under ZeRO 3, parameters are partitioned, and only the module that `prepare` returned can be called;
        the context needs the memory for all of them. Within it no method of the strategy but `autocast` may be called.
        """
        ...

    def close(self) -> None:
        """Let go of the model: an ordinary one again, whole on every rank, without hooks. Needs its memory."""
        ...
