"""The settings of row-wise optimizers, and the size of their state."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config

if TYPE_CHECKING:
    from torch import Tensor

    from xmtc.distributed.rowwise_optim import (
        LazyAdam,
        RowAdamW,
        RowSGD,
        RowwiseAdagrad,
        RowwiseOptimizer,
    )


@config
class RowwiseSettings:
    """What all row-wise optimizers have."""

    learning_rate: float
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay of the rows that move."""

    @abstractmethod
    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Compute bytes of state per row.

        Args:
            elements: numbers in the row.
            bfloat16: whether the table is in bfloat16; float32 otherwise.
        """

    @abstractmethod
    def build(self, parameters: "Iterable[Tensor]") -> "RowwiseOptimizer":
        """Build the optimizer of these tables."""


@config
class RowwiseAdagradConfig(RowwiseSettings):
    """Adagrad with one accumulator per row (Duchi et al. 2011, as used for embedding tables): 4 bytes per label."""

    kind: Literal["rowwise_adagrad"] = "rowwise_adagrad"
    learning_rate: Annotated[float, Field(gt=0)] = 0.05
    """Learning rate of the label tables. A row's first step moves each element by about this much."""

    @override
    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        return 4

    @override
    def build(self, parameters: "Iterable[Tensor]") -> "RowwiseAdagrad":
        from xmtc.distributed.rowwise_optim import RowwiseAdagrad

        return RowwiseAdagrad(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay
        )


@config
class LazyAdamConfig(RowwiseSettings):
    """Adam that reads and writes only touched rows, and moves them as far as AdamW does: 8 bytes per element."""

    kind: Literal["lazy_adam"] = "lazy_adam"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the label tables."""

    @override
    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Two moments per element, and two step counts."""
        return 8 * elements + 8

    @override
    def build(self, parameters: "Iterable[Tensor]") -> "LazyAdam":
        from xmtc.distributed.rowwise_optim import LazyAdam

        return LazyAdam(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay
        )


@config
class SGDConfig(RowwiseSettings):
    """SGD with momentum, for the largest label sets: the momentum has the dtype of the rows."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate of the label tables."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the momentum; with momentum, every row moves at every step. 0: no momentum."""

    @override
    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        if self.momentum == 0:
            return 0
        bytes_per_element = 2 if bfloat16 else 4
        return bytes_per_element * elements

    @override
    def build(self, parameters: "Iterable[Tensor]") -> "RowSGD":
        from xmtc.distributed.rowwise_optim import RowSGD

        return RowSGD(
            parameters,
            momentum=self.momentum,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class AdamWConfig(RowwiseSettings):
    """AdamW on every row at every step, for label tables without a row-wise optimizer; no `kind` names it."""

    learning_rate: float = 1e-3

    @override
    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Two moments per element, and a step count."""
        return 8 * elements + 4

    @override
    def build(self, parameters: "Iterable[Tensor]") -> "RowAdamW":
        from xmtc.distributed.rowwise_optim import RowAdamW

        return RowAdamW(
            parameters, lr=self.learning_rate, weight_decay=self.weight_decay
        )


RowwiseOptimizerConfig = Annotated[
    RowwiseAdagradConfig | LazyAdamConfig | SGDConfig, Field(discriminator="kind")
]
