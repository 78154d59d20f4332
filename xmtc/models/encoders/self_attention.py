"""A small pre-LN transformer, trained from scratch. Suffixes: W windows, U tokens, D width."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from xmtc.config.base import config
from xmtc.models.dropout import Dropout
from xmtc.models.encoders.attention import MultilevelAttention, SelfAttention
from xmtc.models.encoders.embedding import EmbeddingConfig, LightEncoder, TokenEmbedding


@config
class SelfAttentionConfig:
    """Pre-LN transformer layers over embedded tokens."""

    kind: Literal["self_attention"] = "self_attention"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding; projected where its width is not the encoder's."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """Position vectors."""
    window: Annotated[int, Field(ge=8)] = 512
    """Most tokens of one window; a longer document is cut in overlapping ones."""
    layers: Annotated[int, Field(ge=1)] = 2
    """Transformer layers."""
    width: Annotated[int, Field(ge=1)] = 128
    """Width of the hidden states."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads; must divide the width."""
    feed_forward: Annotated[int, Field(ge=1)] = 512
    """Width inside the feed-forward layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on what attention and feed-forward layer add."""

    def __post_init__(self) -> None:
        """Check that the heads divide the width."""
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")

    def build(self, vocab_size: int) -> "TransformerEncoder":
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window, self.positions)
        return TransformerEncoder(embedding, self.width, [self._block() for _ in range(self.layers)])

    def _block(self) -> "Block":
        attention = SelfAttention(self.width, self.heads)
        return Block(self.width, attention, FeedForward(self.width, self.feed_forward), self.dropout)


class TransformerEncoder(LightEncoder):
    """Embedding, pre-LN blocks and a final norm."""

    def __init__(self, embedding: TokenEmbedding, width: int, blocks: "Sequence[Block]") -> None:
        super().__init__(embedding, width, blocks)
        same = embedding.width == width
        self.widen: Callable[[Tensor], Tensor] = (
            nn.Identity() if same else nn.Linear(embedding.width, width, bias=False)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D), 0 on padding."""
        hidden_WUD = self.widen(self.embedding(input_ids_WU, attention_mask_WU))
        for block in self.blocks:
            hidden_WUD = block(hidden_WUD, attention_mask_WU)
        return self.norm(hidden_WUD) * attention_mask_WU.unsqueeze(2)

    def hidden_states(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> list[Tensor]:
        """States (W, U, D) of the embedding and of every block, each through the final norm; the last as `forward`."""
        states = [self.widen(self.embedding(input_ids_WU, attention_mask_WU))]
        for block in self.blocks:
            states.append(block(states[-1], attention_mask_WU))
        return [self.norm(hidden_WUD) * attention_mask_WU.unsqueeze(2) for hidden_WUD in states]

    def attention_received(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        """Share (W, U) of the top layer's attention that each token gets, by kind: "global", and "local" if any."""
        hidden_WUD = self.widen(self.embedding(input_ids_WU, attention_mask_WU))
        *below, top = self.blocks
        for block in below:
            hidden_WUD = block(hidden_WUD, attention_mask_WU)
        return top.received(hidden_WUD, attention_mask_WU)  # pyright: ignore[reportCallIssue]


class Block(nn.Module):
    """x + attention(LN x), then x + transform(LN x) (pre-LN: Xiong et al., 2020)."""

    def __init__(
        self, width: int, attention: SelfAttention | MultilevelAttention, transform: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.attention, self.transform = attention, transform
        self.norm_attention, self.norm_transform = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D)."""
        hidden_WUD = hidden_WUD + self.dropout(self.attention(self.norm_attention(hidden_WUD), mask_WU))
        return hidden_WUD + self.dropout(self.transform(self.norm_transform(hidden_WUD), mask_WU))

    def received(self, hidden_WUD: Tensor, mask_WU: Tensor) -> dict[str, Tensor]:
        """Attention (W, U) that each token gets, by kind."""
        return self.attention.received(self.norm_attention(hidden_WUD), mask_WU)


class FeedForward(nn.Module):
    """W_2 GELU(W_1 x); no dropout inside, where drawing the mask would cost a tenth of a training step on a CPU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = nn.GELU()

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transformed states (W, U, D), token by token; the mask is for transforms that look at neighbours."""
        return self.down(self.activation(self.up(hidden_WUD)))
