"""What the settings of a strategy say about it, so that nothing outside this family asks which strategy it is."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from xmtc.distributed.strategy import Strategy

Precision = Literal["fp32", "bf16"]


class Demand(StrEnum):
    """What a run may ask of a strategy that not every strategy can do."""

    LABEL_TEXTS = "label_texts"
    """Running the encoder over label texts as well as documents, in one step."""
    QUANTIZED_WEIGHTS = "quantized_weights"
    """Holding frozen weights in 4 or 8 bits."""
    WHOLE_PARAMETERS = "whole_parameters"
    """Reading all values of a parameter on a rank after each step."""
    WINDOW_GROUPS = "window_groups"
    """Running the encoder a different number of times on each rank."""


class Tool(StrEnum):
    """A program or library outside Python that a strategy needs on every node."""

    COMPILER = "compiler"
    NINJA = "ninja"
    LIBAIO = "libaio"


@dataclass(frozen=True, kw_only=True)
class Partitions:
    """What each worker holds only its share of."""

    parameters: bool = False
    gradients: bool = False
    optimizer_state: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingBytes:
    """Bytes that one worker holds in addition to the weights."""

    gradients: float
    optimizer_state: float
    exchange_buffers: float


class StrategySettings(Protocol):
    """The settings of a strategy. A package adds one by an entry point in the group `xmtc.strategies`."""

    @property
    def kind(self) -> str:
        """The strategy's name."""
        ...

    @property
    def most_workers(self) -> int | None:
        """How many workers it can train with; None: any number."""
        ...

    @property
    def partitions(self) -> Partitions:
        """What it divides among the workers."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What it needs on every node besides Python packages."""
        ...

    @property
    def offload_folder(self) -> str | None:
        """The folder, on a disk of every node, that it moves tensors to; None where it keeps them in memory."""
        ...

    def refusals(self) -> Mapping[Demand, str]:
        """What it cannot do: the key that rules it out, the reason and the fix.

        Each text completes a sentence that begins with the setting that demands it: `<setting> and <text>`.
        """
        ...

    def weight_bytes(self, size: float, workers: int) -> float:
        """What one worker keeps in memory of weights of this size, in bytes."""
        ...

    def training_bytes(self, trained: int, workers: int) -> TrainingBytes:
        """What one worker keeps in memory to train this many float32 numbers with AdamW."""
        ...

    def disk_bytes(self, trained: int, weights: float) -> float:
        """What all workers together write to `offload_folder`.

        Args:
            trained: numbers that train.
            weights: bytes of all weights.
        """
        ...

    def loading(self, precision: Precision) -> AbstractContextManager[object]:
        """Around the building of a model, after `build`: how pretrained weights arrive."""
        ...

    def build(self, precision: Precision, device: "torch.device") -> "Strategy":
        """The strategy of this process, which must be in a process group where there are several workers.

        Raises:
            ConfigError: this machine lacks something that the strategy needs.
        """
        ...


class Replicated:
    """What settings say of a strategy that gives every worker the whole model, its gradients and optimizer state."""

    @property
    def partitions(self) -> Partitions:
        """See `StrategySettings.partitions`."""
        return Partitions()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """See `StrategySettings.tools`."""
        return ()

    @property
    def offload_folder(self) -> str | None:
        """See `StrategySettings.offload_folder`."""
        return None

    def weight_bytes(self, size: float, workers: int) -> float:
        """See `StrategySettings.weight_bytes`."""
        return size

    def training_bytes(self, trained: int, workers: int) -> TrainingBytes:
        """See `StrategySettings.training_bytes`."""
        return replicated_bytes(trained, workers)

    def disk_bytes(self, trained: int, weights: float) -> float:
        """See `StrategySettings.disk_bytes`."""
        return 0.0

    def loading(self, precision: Precision) -> AbstractContextManager[object]:
        """See `StrategySettings.loading`: whole, on every worker."""
        return nullcontext()


def replicated_bytes(trained: int, workers: int) -> TrainingBytes:
    """Bytes of a strategy that partitions nothing: gradients, AdamW's two moments, and buckets for the exchange."""
    buffers = 4.0 * trained if workers > 1 else 0.0
    return TrainingBytes(gradients=4.0 * trained, optimizer_state=8.0 * trained, exchange_buffers=buffers)
