"""The interface of distribution strategies. Code outside this package never asks which strategy it has.

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
        name: name for messages and logs.
        parameters: parameters of the model, at least one.
        learning_rate: initial learning rate; `Strategy.set_learning_rates` changes it.
        weight_decay: decoupled weight decay, as in AdamW.
        optimizer: row-wise optimizer, for tables with one row per label; the group's learning rate and decay replace
            its settings. None: AdamW.
    """

    name: str
    parameters: Sequence[nn.Parameter]
    learning_rate: float
    weight_decay: float
    optimizer: RowwiseOptimizerConfig | None = None


class Strategy(Protocol):
    """How the ranks share a model, its gradients and its optimizer state.

    Every method is collective: all ranks call it, in the same order. With every strategy, the gradient of a step is
    the SUM over ranks and micro-batches of the gradients of their losses. A loss is therefore this rank's share of the
    global mean.

    Attributes:
        rank: rank of this process, from 0.
        world_size: number of processes.
        device: device of the model and the batches.
        loss_scale: factor that `backward` applies to a loss, and so to gradients that the strategy does not manage.
        keeps_freed_memory: whether training should call `xmtc.distributed.memory.keep_freed_memory`.
    """

    rank: int
    world_size: int
    device: torch.device
    loss_scale: float
    keeps_freed_memory: bool

    def prepare(self, model: nn.Module, groups: Sequence[ParameterGroup]) -> nn.Module:
        """Move `model` to the device, train the parameters in `groups` with a new optimizer, freeze all others.

        May be called again for the same model with other parameters (a phase of gradual unfreezing). The module
        from the earlier call must then no longer be used. Parameters stay the same objects and keep their values.

        Returns:
            The module that the loop must call instead of the model. Gradients flow only through its output.

        Raises:
            ConfigError: the strategy cannot train this model.
        """
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Wrap forward and backward of one micro-batch. Ranks exchange gradients only with the last one."""
        ...

    def autocast(self) -> AbstractContextManager[object]:
        """Wrap forward and loss to compute in bfloat16, if the precision is `bf16`. Parameters do not change."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of `loss`, a scalar: this rank's and micro-batch's share of the global mean."""
        ...

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """Set the next step's learning rates: one per group, in the order of `prepare`."""
        ...

    def step(self, max_grad_norm: float, outside_norm: float = 0.0) -> float:
        """Scale the gradients down to `max_grad_norm`, update the parameters, and clear the gradients.

        Args:
            max_grad_norm: upper bound of the global norm.
            outside_norm: norm of gradients that are applied elsewhere, the same on all ranks. The global norm
                includes it.

        Returns:
            The global L2 norm before clipping. If it is not finite, every rank only cleared its gradients; the caller
            decides how to continue.
        """
        ...

    def save(self, directory: Path) -> None:
        """Write trained parameters and optimizer state to `directory`, which exists and is shared by all ranks.

        The files do not depend on strategy and world size: any strategy can load the files of any other.

        Raises:
            OSError: this rank could not write its part; raised after the last collective, so that no rank hangs.
            CheckpointError: a gathered parameter is empty.
        """
        ...

    def load(self, directory: Path) -> None:
        """Read what `save` wrote, after `prepare` with the same groups.

        Raises:
            CheckpointError: parameters or shapes differ, or files are missing or damaged.
        """
        ...

    def gather_trainable(self) -> dict[str, Tensor]:
        """Gather whole CPU copies of the trained parameters, by name, on every rank. Label rows are left out.

        Raises:
            CheckpointError: a gathered parameter is empty.
        """
        ...

    def checkpoint_bytes(self) -> int:
        """Estimate the bytes that `save` will write, summed over ranks."""
        ...

    def whole(self) -> AbstractContextManager[None]:
        """Wrap evaluation: inside, every rank holds the whole model and may call any part of it without gradient.

        Outside, under ZeRO 3, parameters are partitioned, and only the module that `prepare` returned can be called.
        The context needs memory for all parameters. Inside it, `autocast` is the only method that may be called.
        """
        ...

    def close(self) -> None:
        """Make the model an ordinary one again: whole on every rank, without hooks. This needs memory for all of it."""
        ...
