"""Settings of the lightweight encoders. Only `build` imports PyTorch."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.models.encoders.settings import (
    MOST_LAYERS,
    MOST_TOKENS,
    MOST_WIDTH,
    EncoderSettings,
)

if TYPE_CHECKING:
    from xmtc.models.encoders.cnn import CNNEncoder
    from xmtc.models.encoders.embedding import BagEncoder, TokenEmbedding
    from xmtc.models.encoders.recurrent import BiGRUEncoder
    from xmtc.models.encoders.self_attention import Block, TransformerEncoder


@config
class EmbeddingConfig:
    """Token embedding of a lightweight encoder."""

    width: Annotated[int, Field(ge=1)] = 128
    """Dimensions of a token's vector."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the embedded tokens."""
    token_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the tokens whose vector is set to 0 in training."""

    def build(
        self, vocab_size: int, window: int, *, positions: bool = False
    ) -> "TokenEmbedding":
        """Build the embedding with random weights."""
        from xmtc.models.encoders.embedding import TokenEmbedding

        return TokenEmbedding(self, vocab_size, window, positions=positions)


@config
class _Light(EncoderSettings):
    """An encoder over embedded tokens."""

    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding; transformers project it if its width is not theirs."""
    window: Annotated[int, Field(ge=8, le=MOST_TOKENS)] = 1024
    """Maximum number of tokens per window; longer documents are cut into overlapping windows."""


@config
class _Transformer(_Light):
    """Pre-LN layers over embedded tokens with learned positions."""

    window: Annotated[int, Field(ge=8, le=MOST_TOKENS)] = 512
    """Maximum number of tokens per window; longer documents are cut into overlapping windows."""
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 2
    """Transformer layers."""
    width: Annotated[int, Field(ge=1, le=MOST_WIDTH)] = 128
    """Width of the hidden states."""
    heads: Annotated[int, Field(ge=1, le=MOST_WIDTH)] = 4
    """Attention heads; must divide the width."""
    feed_forward: Annotated[int, Field(ge=1, le=MOST_WIDTH)] = 512
    """Width inside the feed-forward layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the outputs of attention and feed-forward layer."""

    def __post_init__(self) -> None:
        """Check that the heads divide the width."""
        if self.width % self.heads:
            raise ValueError(
                f"heads: {self.heads} does not divide width {self.width}; give a divisor of the width"
            )

    @abstractmethod
    def block(self) -> "Block":
        """Build one layer."""

    @override
    def build(self, vocab_size: int) -> "TransformerEncoder":
        from xmtc.models.encoders.self_attention import TransformerEncoder

        embedding = self.embedding.build(vocab_size, self.window, positions=True)
        blocks = [self.block() for _ in range(self.layers)]
        return TransformerEncoder(embedding, self.width, blocks)


@config
class SelfAttentionConfig(_Transformer):
    """Pre-LN transformer layers over embedded tokens."""

    kind: Literal["self_attention"] = "self_attention"
    """Which encoder."""

    @override
    def block(self) -> "Block":
        from xmtc.models.encoders.self_attention import (
            Block,
            FeedForward,
            SelfAttention,
        )

        attention = SelfAttention(self.width, self.heads)
        transform = FeedForward(self.width, self.feed_forward)
        return Block(self.width, attention, transform, self.dropout)


@config
class MultilevelConfig(_Transformer):
    """Pre-LN layers that fuse global self-attention with local attention over a band of neighbours."""

    kind: Literal["multilevel"] = "multilevel"
    """Which encoder."""
    local_radius: Annotated[int, Field(ge=1)] = 16
    """Number of tokens on either side that local attention sees."""
    transform: Literal["feed_forward", "low_rank", "depthwise"] = "feed_forward"
    """Layer after the attention. low_rank and depthwise have under a tenth of the default feed-forward's weights."""

    @override
    def block(self) -> "Block":
        from xmtc.models.encoders.self_attention import (
            Block,
            Depthwise,
            FeedForward,
            MultilevelAttention,
        )

        radius = min(self.local_radius, self.window)
        attention = MultilevelAttention(self.width, self.heads, radius)
        if self.transform == "depthwise":
            transform = Depthwise(self.width)
        elif self.transform == "low_rank":
            transform = FeedForward(self.width, max(1, self.width // 4))
        else:
            transform = FeedForward(self.width, self.feed_forward)
        return Block(self.width, attention, transform, self.dropout)


@config
class BiGRUConfig(_Light):
    """Bidirectional GRU over embedded tokens; with the label-wise head, the BiGRU-LWAN of Chalkidis et al. (2019)."""

    kind: Literal["bigru"] = "bigru"
    """Which encoder."""
    hidden: Annotated[int, Field(ge=1, le=MOST_WIDTH)] = 128
    """Width of the state per direction; hidden states are twice as wide."""
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = 1
    """GRU layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout between layers and on the hidden states."""

    @override
    def build(self, vocab_size: int) -> "BiGRUEncoder":
        from xmtc.models.encoders.recurrent import BiGRUEncoder

        return BiGRUEncoder(self, vocab_size)


@config
class CNNConfig(_Light):
    """Convolutions over embedded tokens; with max pooling and the flat head, the classifier of Kim (2014)."""

    kind: Literal["cnn"] = "cnn"
    """Which encoder."""
    filter_widths: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)
    ] = (3, 4, 5)
    """Widths of the filters in tokens. Default: Kim's."""
    filters: Annotated[int, Field(ge=1)] = 100
    """Number of filters per width; hidden states have this many dimensions per width."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the hidden states."""

    @override
    def build(self, vocab_size: int) -> "CNNEncoder":
        from xmtc.models.encoders.cnn import CNNEncoder, Convolutions

        embedding = self.embedding.build(vocab_size, self.window)
        convolutions = Convolutions(embedding.width, self.filters, self.filter_widths)
        return CNNEncoder(embedding, convolutions, self.dropout)


@config
class BagConfig(_Light):
    """Token embeddings without order: the baseline that any encoder must beat."""

    kind: Literal["bag"] = "bag"
    """Which encoder."""

    @override
    def build(self, vocab_size: int) -> "BagEncoder":
        from xmtc.models.encoders.embedding import BagEncoder

        embedding = self.embedding.build(vocab_size, self.window)
        return BagEncoder(embedding, embedding.width, [])
