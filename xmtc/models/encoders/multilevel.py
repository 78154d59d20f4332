"""Global and local self-attention in parallel, in every layer. Suffixes: W windows, U tokens, D width."""

from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.models.encoders.attention import MultilevelAttention
from xmtc.models.encoders.light_config import MultilevelConfig
from xmtc.models.encoders.self_attention import Block, FeedForward, TransformerEncoder


class LowRank(nn.Module):
    """W_2 GELU(W_1 x) through a quarter of the width: D²/2 weights against the 8 D² of a feed-forward layer."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(width, rank), nn.Linear(rank, width)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transform states (W, U, D), token by token."""
        return self.up(F.gelu(self.down(hidden_WUD)))


class Depthwise(nn.Module):
    """scale ⊙ GELU(convolution of each dimension over 7 neighbouring tokens): 9 D weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel_size=7, padding=3, groups=width)
        self.scale = nn.Conv1d(width, width, kernel_size=1, groups=width, bias=False)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transform states (W, U, D); padding enters as 0."""
        signal_WDU = (hidden_WUD * mask_WU.unsqueeze(2)).transpose(1, 2)
        return self.scale(F.gelu(self.convolution(signal_WDU))).transpose(1, 2)


def build_multilevel(settings: MultilevelConfig, vocab_size: int) -> TransformerEncoder:
    """Build an encoder of blocks with global and local attention."""

    def block() -> Block:
        radius = min(settings.local_radius, settings.window)
        attention = MultilevelAttention(settings.width, settings.heads, radius)
        return Block(settings.width, attention, _transform(settings), settings.dropout)

    embedding = settings.embedding.build(vocab_size, settings.window, positions=True)
    return TransformerEncoder(embedding, settings.width, [block() for _ in range(settings.layers)])


def _transform(settings: MultilevelConfig) -> nn.Module:
    if settings.transform == "low_rank":
        return LowRank(settings.width, max(1, settings.width // 4))
    if settings.transform == "depthwise":
        return Depthwise(settings.width)
    return FeedForward(settings.width, settings.feed_forward)
