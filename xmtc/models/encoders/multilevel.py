"""Global and local self-attention in parallel, in every layer. Suffixes: W windows, U tokens, D width."""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.models.encoders.attention import MultilevelAttention
from xmtc.models.encoders.embedding import EmbeddingConfig
from xmtc.models.encoders.self_attention import Block, FeedForward, TransformerEncoder


@config
class MultilevelConfig:
    """Pre-LN layers that fuse global self-attention with one over a band of neighbours."""

    kind: Literal["multilevel"] = "multilevel"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding; projected where its width is not the encoder's."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """Position vectors."""
    window: Annotated[int, Field(ge=8)] = 512
    """Most tokens of one window; a longer document is cut in overlapping ones."""
    layers: Annotated[int, Field(ge=1)] = 2
    """Layers."""
    width: Annotated[int, Field(ge=1)] = 128
    """Width of the hidden states."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Heads of each of the two attentions; must divide the width."""
    local_radius: Annotated[int, Field(ge=1)] = 16
    """Local attention sees this many tokens to either side."""
    transform: Literal["feed_forward", "low_rank", "depthwise"] = "feed_forward"
    """What follows the attention. low_rank and depthwise have under a tenth of the default feed-forward's weights."""
    feed_forward: Annotated[int, Field(ge=1)] = 512
    """Width inside the feed-forward layer; only with `transform: feed_forward`. 192 makes a layer of width 128 as
    large as one of `self_attention` with 512."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on what attention and transform add."""

    def __post_init__(self) -> None:
        """Check that the heads divide the width."""
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} does not divide width {self.width}")

    def build(self, vocab_size: int) -> TransformerEncoder:
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window, self.positions)
        return TransformerEncoder(embedding, self.width, [self._block() for _ in range(self.layers)])

    def _block(self) -> Block:
        attention = MultilevelAttention(self.width, self.heads, min(self.local_radius, self.window))
        return Block(self.width, attention, self._transform(), self.dropout)

    def _transform(self) -> nn.Module:
        if self.transform == "low_rank":
            return LowRank(self.width, max(1, self.width // 4))
        if self.transform == "depthwise":
            return Depthwise(self.width)
        return FeedForward(self.width, self.feed_forward)


class LowRank(nn.Module):
    """W_2 GELU(W_1 x) through a quarter of the width: D²/2 weights against the 8 D² of a feed-forward layer."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, rank), nn.Linear(rank, width)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transformed states (W, U, D), token by token."""
        return self.up(F.gelu(self.down(hidden_WUD)))


class Depthwise(nn.Module):
    """scale ⊙ GELU(convolution of each dimension over 7 neighbouring tokens): 9 D weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel_size=7, padding=3, groups=width)
        self.scale = nn.Conv1d(width, width, kernel_size=1, groups=width, bias=False)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transformed states (W, U, D); padding enters as 0."""
        signal_WDU = (hidden_WUD * mask_WU.unsqueeze(2)).transpose(1, 2)
        return self.scale(F.gelu(self.convolution(signal_WDU))).transpose(1, 2)
