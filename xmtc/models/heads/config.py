"""Settings of the heads. Only `build` imports PyTorch.

A package adds a head by an entry point of the group `xmtc.heads`. Its settings class is a `@config` dataclass that
inherits from `HeadSettings` and has a `kind` and a `build`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members
from xmtc.models.kernels.options import Normaliser, Options
from xmtc.models.poolings.config import (
    FirstToken,
    PlainPoolingConfig,
    PoolingConfig,
    TokenPoolingConfig,
)

if TYPE_CHECKING:
    from xmtc.models.heads.base import Head
    from xmtc.models.heads.flat import FlatHead
    from xmtc.models.heads.label_attention import LabelAttentionHead
    from xmtc.models.heads.none import NoHead
    from xmtc.models.heads.two_tower import TwoTowerHead

RowDtype = Literal["float32", "bfloat16"]
PlantedPart = Literal["attention", "values", "rows"]
"""A part of a head that can be planted before stage 2."""


@dataclass(frozen=True, kw_only=True)
class HeadUse:
    """The features that a run needs of its head.

    Attributes:
        label_text: rows start from the labels' names (`model.label_text`).
        draws_labels: a micro-batch scores some labels only (`finetune.sampled_labels` or `finetune.mining`).
        row_optimizer: a row-wise optimizer updates the label tables (`finetune.label_optimizer`).
    """

    label_text: bool = False
    draws_labels: bool = False
    row_optimizer: bool = False


class HeadSettings(Protocol):
    """The interface of a head's settings, with the defaults of most heads.

    Attributes:
        attends_by_label: whether every label has its attention.
        plantable: the parts that can be planted.
        trains_rows: whether an optimizer updates the label rows.
        scores: whether the head scores at all; false only for `none`.
        label_tokens: tokens of a label's text that the head makes the row from; None if it reads no label texts.
    """

    kind: str
    attends_by_label: ClassVar[bool] = False
    plantable: ClassVar[frozenset[PlantedPart]] = frozenset()
    trains_rows: ClassVar[bool] = True
    scores: ClassVar[bool] = True
    label_tokens: ClassVar[int | None] = None

    @property
    def row_dtype(self) -> RowDtype:
        """Storage of the label rows."""
        return "float32"

    @property
    def first_token(self) -> FirstToken:
        """The role of the document's first token in the logits."""
        return "as_others"

    @property
    def reads_fixed(self) -> bool:
        """Whether the head reads only a document's `FixedPoolings`, and is initialised from those of a sample."""
        return False

    def refusals(self, use: HeadUse) -> Iterator[str]:
        """Say why the head does not support this use, in sentences that name the keys and the fix."""
        del use
        yield from ()

    def build(self, hidden_width: int, labels: int) -> "Head":
        """Build the head for an encoder of width `hidden_width` and this many labels."""
        ...


class _Pooled(HeadSettings):
    """A head that pools the tokens of a document into one vector."""

    pooling: PoolingConfig

    @property
    def first_token(self) -> FirstToken:
        """That of the pooling."""
        return self.pooling.first_token

    @property
    def reads_fixed(self) -> bool:
        """That of the pooling."""
        return self.pooling.reads_fixed


@config
class LabelAttentionConfig(HeadSettings):
    """Label-wise multi-head attention head (docs/explanation/kernels.md)."""

    kind: Literal["label_attention"] = "label_attention"
    width: Annotated[int, Field(ge=1)] = 256
    """Width d of keys, values, label queries and classifier rows; divisible by `heads`."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads per label."""
    normalize: bool = True
    """RMS-normalise queries and keys per head, so that scores cannot overflow."""
    normaliser: Normaliser = "softmax"
    """Converts scores to attention weights. sparsemax and entmax15 give weak tokens a weight of 0, in two to four times
    the time."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the hidden states that become keys and values."""
    row_dtype: RowDtype = "float32"
    """Type of the label queries and classifier rows. bfloat16 halves their memory; use it with a row-wise optimizer
    and stochastic rounding."""
    attends_by_label: ClassVar[bool] = True
    plantable: ClassVar[frozenset[PlantedPart]] = frozenset(
        {"attention", "values", "rows"}
    )

    def __post_init__(self) -> None:
        """Raise ValueError if the heads do not divide the width."""
        if self.width % self.heads:
            raise ValueError(
                f"heads: {self.heads} does not divide width {self.width}; give a divisor of the width"
            )

    def options(self) -> Options:
        """Return the options of the kernels."""
        return Options(
            heads=self.heads,
            normaliser=self.normaliser,
            normalise_queries=self.normalize,
        )

    @override
    def build(self, hidden_width: int, labels: int) -> "LabelAttentionHead":
        from xmtc.models.heads.label_attention import LabelAttentionHead

        return LabelAttentionHead(self, hidden_width, labels)


@config
class FlatConfig(_Pooled):
    """Flat one-vs-all head: a pooled document vector times one row per label."""

    kind: Literal["flat"] = "flat"
    pooling: PoolingConfig = PlainPoolingConfig()
    """Pooling of a document's hidden states into one vector."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the pooled vector."""
    row_dtype: RowDtype = "float32"
    """Type of the classifier rows. bfloat16 halves their memory; use it with a row-wise optimizer and stochastic
    rounding."""
    plantable: ClassVar[frozenset[PlantedPart]] = frozenset({"rows"})

    @override
    def build(self, hidden_width: int, labels: int) -> "FlatHead":
        from xmtc.models.heads.flat import FlatHead, SummaryHead
        from xmtc.models.poolings.pooling import Summary

        pooling = self.pooling.build(hidden_width)
        if isinstance(pooling, Summary):
            return SummaryHead(self, pooling, labels)
        return FlatHead(self, pooling, labels)


@config
class TwoTowerConfig(_Pooled):
    """A flat head whose rows are embedded label texts, trained end to end (a dual encoder, Karpukhin et al. 2020)."""

    kind: Literal["two_tower"] = "two_tower"
    width: Annotated[int, Field(ge=1)] = 256
    """Width of document and label vectors."""
    pooling: TokenPoolingConfig = PlainPoolingConfig()
    """Pooling of a document's hidden states into one vector. Label texts are mean-pooled."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the document vector."""
    scale: Annotated[float, Field(gt=0)] = 20.0
    """Initial value of the learned factor s of the cosine."""
    row_dtype: RowDtype = "float32"
    """Type of the label vectors, which no optimizer updates."""
    trains_rows: ClassVar[bool] = False
    label_tokens: ClassVar[int | None] = 32

    def refusals(self, use: HeadUse) -> Iterator[str]:
        """Refuse features that need trained rows, or the texts of all labels at every step."""
        head = "model.head.kind: two_tower"
        if not use.draws_labels:
            yield (
                f"{head} embeds the texts of a micro-batch's labels, not those of all; give finetune.sampled_labels or "
                "finetune.mining"
            )
        if use.label_text:
            yield (
                f"{head} and model.label_text (this head always reads names) exclude each other; leave one of them out"
            )
        if use.row_optimizer:
            yield (
                f"{head} and finetune.label_optimizer (its rows are not trained) exclude each other; leave one of them "
                "out"
            )

    @override
    def build(self, hidden_width: int, labels: int) -> "TwoTowerHead":
        from xmtc.models.heads.two_tower import TwoTowerHead

        return TwoTowerHead(self, hidden_width, labels)


@config
class NoHeadConfig(HeadSettings):
    """No head: only `model.scorers` score, and nothing is trained."""

    kind: Literal["none"] = "none"
    scores: ClassVar[bool] = False
    trains_rows: ClassVar[bool] = False

    @override
    def build(self, hidden_width: int, labels: int) -> "NoHead":
        from xmtc.models.heads.none import NoHead

        del hidden_width
        return NoHead(self, labels)


HeadConfig = Annotated[
    HeadSettings,
    Members(
        "xmtc.heads", LabelAttentionConfig, FlatConfig, TwoTowerConfig, NoHeadConfig
    ),
]
"""Turns a document's hidden states into one logit per label."""
