"""Settings of the poolings. Only `build` imports PyTorch."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Discriminator, Field

from xmtc.config.base import config
from xmtc.errors import ConfigError
from xmtc.models.kernels.options import Normaliser

if TYPE_CHECKING:
    from xmtc.models.poolings.pooling import Pooling

FirstToken = Literal["alone", "as_others", "hardly"]
"""The role of the document's first token, such as [CLS], in a logit: it determines the logit, counts like any other
token, or has almost no effect."""


class _Pools:
    """The properties of a pooling that messages and checks need before it is built.

    Attributes:
        reads_fixed: whether it reads only a document's `FixedPoolings`.
    """

    reads_fixed: ClassVar[bool] = False

    @property
    def first_token(self) -> FirstToken:
        """The role of the first token in the pooled vector."""
        return "as_others"


@config
class PlainPoolingConfig(_Pools):
    """The first token, such as [CLS]; the last, which in a decoder sees all others; the mean over tokens; or the
    maximum of each dimension (Kim 2014).
    """

    kind: Literal["first", "last", "mean", "max"] = "mean"
    """Which pooling."""

    @property
    def first_token(self) -> FirstToken:
        """See `_Pools`."""
        if self.kind == "first":
            return "alone"
        return "as_others" if self.kind == "max" else "hardly"

    def build(self, width: int) -> "Pooling":
        """Build the pooling for hidden states of this width."""
        from xmtc.models.poolings.pooling import Max, Mean, OneToken

        if self.kind == "mean":
            return Mean(width)
        if self.kind == "max":
            return Max(width)
        return OneToken(width, last=self.kind == "last")


@config
class AttentionPoolingConfig(_Pools):
    """Attention of learned queries over tokens; `xmtc explain` shows its weights."""

    kind: Literal["attention"] = "attention"
    """Which pooling."""
    heads: Annotated[int, Field(ge=1)] = 1
    """Number of learned queries; must divide the encoder's width."""
    normaliser: Normaliser = "softmax"
    """Softmax, or sparsemax or 1.5-entmax, which give most tokens a weight of 0."""

    def build(self, width: int) -> "Pooling":
        """Build the pooling for hidden states of this width.

        Raises:
            ConfigError: the heads do not divide the width.
        """
        from xmtc.models.poolings.pooling import AttentionPooling

        if width % self.heads:
            raise ConfigError(
                f"model.head.pooling.heads: {self.heads} does not divide the encoder's width {width}; give a divisor"
            )
        return AttentionPooling(width, self.heads, self.normaliser)


@config
class SummaryPoolingConfig(_Pools):
    """A ReLU layer over mean, maximum, first token and the mean of the first 64 tokens."""

    kind: Literal["summary"] = "summary"
    """Which pooling."""
    width: Annotated[int, Field(ge=1)] = 1024
    """Units of the layer."""
    members: Annotated[int, Field(ge=1)] = 1
    """Number of layers whose logits are averaged. A document trains one of them, so n members need n times the epochs
    and the batch size."""
    reads_fixed: ClassVar[bool] = True

    def build(self, width: int) -> "Pooling":
        """Build the pooling for hidden states of this width."""
        from xmtc.models.poolings.pooling import Summary

        return Summary(width, self.width, self.members)


_OfTokens = PlainPoolingConfig | AttentionPoolingConfig

TokenPoolingConfig = Annotated[_OfTokens, Discriminator("kind")]
"""A pooling of the encoder's width."""
PoolingConfig = Annotated[_OfTokens | SummaryPoolingConfig, Discriminator("kind")]
"""Any pooling."""
