"""The capabilities that a strategy's settings declare. Code outside this family never asks which strategy it has."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    import torch

    from xmtc.distributed.strategy import Strategy

Precision = Literal["auto", "bf16", "fp32"]


class Demand(StrEnum):
    """Features that a run may need and that not every strategy supports."""

    LABEL_TEXTS = "label_texts"
    """Running the encoder over label texts as well as documents, in one step."""
    QUANTIZED_WEIGHTS = "quantized_weights"
    """Holding frozen weights in 4 or 8 bits."""


@dataclass(frozen=True, kw_only=True)
class TrainingBytes:
    """Bytes that training takes on one worker in addition to the weights."""

    gradients: float
    optimizer_state: float
    exchange_buffers: float


class StrategySettings(Protocol):
    """The settings of a strategy. A package adds one by an entry point in the group `xmtc.strategies`.

    Those that override nothing but `build` give every worker the whole model, its gradients and optimizer state.
    """

    compiles: ClassVar[bool] = False
    """Whether every node needs a C++ compiler and ninja."""

    @property
    def kind(self) -> str:
        """The strategy's name."""
        ...

    @property
    def max_workers(self) -> int | None:
        """Maximum number of workers; None: any number."""
        return None

    @property
    def partitions_parameters(self) -> bool:
        """Whether the workers share the parameters, frozen ones too."""
        return False

    def refusals(self) -> Mapping[Demand, str]:
        """List the features that the strategy does not support, each with the conflicting key, the reason and the fix.

        Each text completes a sentence that begins with the setting that needs the feature: `<setting> and <text>`.
        """
        return {}

    def weight_bytes(self, size: float, workers: int) -> float:
        """Compute bytes of memory that weights of this size take on one worker."""
        return size / workers if self.partitions_parameters else size

    def training_bytes(self, trained: int, workers: int) -> TrainingBytes:
        """Compute bytes of memory that one worker needs to train this many float32 numbers with AdamW."""
        buffers = 4.0 * trained if workers > 1 else 0.0
        return TrainingBytes(
            gradients=4.0 * trained,
            optimizer_state=8.0 * trained,
            exchange_buffers=buffers,
        )

    def loading(self, precision: Precision) -> AbstractContextManager[object]:
        """Wrap the construction of a model, after `build`; by default, every worker loads all weights."""
        return nullcontext()

    def build(self, precision: Precision, device: "torch.device") -> "Strategy":
        """Build the strategy of this process. With several workers, the process must be in a process group.

        Raises:
            ConfigError: this machine lacks something that the strategy needs.
        """
        ...
