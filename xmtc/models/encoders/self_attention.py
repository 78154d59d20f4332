"""A small pre-LN transformer, trained from scratch. Suffixes: W windows, U tokens, D width."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.attention import MultilevelAttention, SelfAttention
from xmtc.models.encoders.embedding import LightEncoder, TokenEmbedding
from xmtc.models.encoders.light_config import SelfAttentionConfig


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
        """Compute hidden states (W, U, D), 0 on padding."""
        hidden_WUD = self.widen(self.embedding(input_ids_WU, attention_mask_WU))
        for block in self.blocks:
            hidden_WUD = block(hidden_WUD, attention_mask_WU)
        return self.norm(hidden_WUD) * attention_mask_WU.unsqueeze(2)

    def attention_received(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        """Compute the share (W, U) of the top layer's attention that tokens receive: "global", and "local" if any."""
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
        """Compute hidden states (W, U, D)."""
        hidden_WUD = hidden_WUD + self.dropout(self.attention(self.norm_attention(hidden_WUD), mask_WU))
        return hidden_WUD + self.dropout(self.transform(self.norm_transform(hidden_WUD), mask_WU))

    def received(self, hidden_WUD: Tensor, mask_WU: Tensor) -> dict[str, Tensor]:
        """Compute attention (W, U) that each token receives, by kind."""
        return self.attention.received(self.norm_attention(hidden_WUD), mask_WU)


class FeedForward(nn.Module):
    """W_2 GELU(W_1 x), without inner dropout, whose mask would take a tenth of a training step on a CPU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.activation = nn.GELU()

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transform states (W, U, D) token by token; the mask is for transforms that use neighbours."""
        return self.down(self.activation(self.up(hidden_WUD)))


def build_self_attention(settings: SelfAttentionConfig, vocab_size: int) -> TransformerEncoder:
    """Build a small Transformer."""

    def block() -> Block:
        attention = SelfAttention(settings.width, settings.heads)
        return Block(settings.width, attention, FeedForward(settings.width, settings.feed_forward), settings.dropout)

    embedding = settings.embedding.build(vocab_size, settings.window, positions=True)
    return TransformerEncoder(embedding, settings.width, [block() for _ in range(settings.layers)])
