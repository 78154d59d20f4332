"""The settings of row-wise optimizers, and the size of their state."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from xmtc.config.base import config

if TYPE_CHECKING:
    from torch import Tensor

    from xmtc.distributed.rowwise_optim import LazyAdam, RowAdamW, RowSGD, RowwiseAdagrad

Rounding = Literal["stochastic", "kahan"]


@config
class RowwiseAdagradConfig:
    """Adagrad with one accumulator per row (Duchi et al. 2011, as used for embedding tables): 4 bytes per label."""

    kind: Literal["rowwise_adagrad"] = "rowwise_adagrad"
    learning_rate: Annotated[float, Field(gt=0)] = 0.05
    """Learning rate of the label tables. A row's first step moves each element by about this much."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay, applied to touched rows only."""
    rounding: Rounding = "stochastic"
    """How tables in bfloat16 round. `stochastic` keeps small updates on average. `kahan` keeps them to 16 bits of
    mantissa, without randomness, and takes 2 more bytes per element."""

    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Compute bytes of state per row: an accumulator.

        Args:
            elements: numbers in the row.
            bfloat16: whether the table is in bfloat16; float32 otherwise.
        """
        return 4 + _lacking_bytes(self.rounding, elements, bfloat16=bfloat16)

    def build(self, parameters: "Iterable[Tensor]") -> "RowwiseAdagrad":
        """Build the optimizer of these tables."""
        from xmtc.distributed.rowwise_optim import RowwiseAdagrad

        return RowwiseAdagrad(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, rounding=self.rounding)


class _TwoMoments:
    """State size of both kinds of Adam."""

    rounding: Rounding
    counts: ClassVar[int] = 1

    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Compute bytes of state per row: two moments per element, and step counts.

        Args:
            elements: numbers in the row.
            bfloat16: whether the table is in bfloat16; float32 otherwise.
        """
        return 8 * elements + 4 * self.counts + _lacking_bytes(self.rounding, elements, bfloat16=bfloat16)


@config
class LazyAdamConfig(_TwoMoments):
    """Adam that reads and writes only touched rows, and moves them as far as AdamW does: 8 bytes per element."""

    counts: ClassVar[int] = 2
    kind: Literal["lazy_adam"] = "lazy_adam"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the label tables."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay, applied to touched rows only."""
    rounding: Rounding = "stochastic"
    """How tables in bfloat16 round. `stochastic` keeps small updates on average. `kahan` keeps them to 16 bits of
    mantissa, without randomness, and takes 2 more bytes per element."""

    def build(self, parameters: "Iterable[Tensor]") -> "LazyAdam":
        """Build the optimizer of these tables."""
        from xmtc.distributed.rowwise_optim import LazyAdam

        return LazyAdam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, rounding=self.rounding)


@config
class AdamWConfig(_TwoMoments):
    """AdamW on every row at every step, for label tables in bfloat16 or with a separate learning rate."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Learning rate of the label tables."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled decay of every row."""
    rounding: Rounding = "stochastic"
    """How tables in bfloat16 round. `stochastic` keeps small updates on average. `kahan` keeps them to 16 bits of
    mantissa, without randomness, and takes 2 more bytes per element."""

    def build(self, parameters: "Iterable[Tensor]") -> "RowAdamW":
        """Build the optimizer of these tables."""
        from xmtc.distributed.rowwise_optim import RowAdamW

        return RowAdamW(parameters, lr=self.learning_rate, weight_decay=self.weight_decay, rounding=self.rounding)


@config
class SGDConfig:
    """SGD with momentum, for the largest label sets: the momentum has the dtype of the rows."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate of the label tables."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the momentum; with momentum, every row moves at every step. 0: no momentum."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled decay, applied to the rows that move."""
    rounding: Rounding = "stochastic"
    """How tables in bfloat16 round. `stochastic` keeps small updates on average. `kahan` keeps them to 16 bits of
    mantissa and takes 2 more bytes per element; the momentum is rounded stochastically."""

    def row_state_bytes(self, elements: int, *, bfloat16: bool) -> int:
        """Compute bytes of state per row: the momentum.

        Args:
            elements: numbers in the row.
            bfloat16: whether the table is in bfloat16; float32 otherwise.
        """
        momentum = (2 if bfloat16 else 4) * elements if self.momentum else 0
        return momentum + _lacking_bytes(self.rounding, elements, bfloat16=bfloat16)

    def build(self, parameters: "Iterable[Tensor]") -> "RowSGD":
        """Build the optimizer of these tables."""
        from xmtc.distributed.rowwise_optim import RowSGD

        return RowSGD(
            parameters,
            momentum=self.momentum,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            rounding=self.rounding,
        )


def _lacking_bytes(rounding: Rounding, elements: int, *, bfloat16: bool) -> int:
    """Compute bytes that compensated sums take per row, for the rounding errors of bfloat16."""
    return 2 * elements if rounding == "kahan" and bfloat16 else 0


RowwiseOptimizerConfig = Annotated[
    RowwiseAdagradConfig | LazyAdamConfig | AdamWConfig | SGDConfig, Field(discriminator="kind")
]
