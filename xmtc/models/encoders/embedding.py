"""Token embedding with positions, which the lightweight encoders share.

Suffixes: W windows, U window tokens, V vocabulary, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.base import Encoder
from xmtc.models.encoders.light_config import EmbeddingConfig


class TokenEmbedding(nn.Module):
    """Embedded tokens (W, U, D), 0 on padding.

    Attributes:
        width: D.
        window: longest sequence that the positions allow.
        tokens: the table (V, D).
    """

    def __init__(
        self, config: EmbeddingConfig, vocab_size: int, window: int, *, positions: bool
    ) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        self.window = window
        self.tokens = nn.Embedding(vocab_size, config.width)
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        self.dropout = Dropout(config.dropout)
        self.positions_UD: nn.Parameter | None = None
        if positions:
            self.positions_UD = nn.Parameter(torch.randn(window, config.width) * 0.02)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute embedded tokens (W, U, D)."""
        embedded_WUD = self.tokens(input_ids_WU)
        if self.training and self.config.token_dropout:
            ones_WU1 = torch.ones_like(embedded_WUD[..., :1])
            retained_WU1 = F.dropout(
                ones_WU1, self.config.token_dropout
            ).sign()  # 0 or 1, without dropout's scale
            embedded_WUD = embedded_WUD * retained_WU1
        if self.positions_UD is not None:
            embedded_WUD = embedded_WUD + self.positions_UD[: input_ids_WU.shape[1]]
        return self.dropout(embedded_WUD) * attention_mask_WU.unsqueeze(2)


class LightEncoder(Encoder):
    """Base of the lightweight encoders: an embedding, then blocks.

    Attributes:
        embedding: the lowest layer.
        blocks: the other layers, bottom to top.
    """

    def __init__(
        self, embedding: TokenEmbedding, width: int, blocks: Sequence[nn.Module]
    ) -> None:
        super().__init__(width, embedding.window)
        self.embedding = embedding
        self.blocks = nn.ModuleList(blocks)

    @override
    def layers(self) -> Sequence[nn.Module]:
        """Embedding and blocks."""
        return [self.embedding, *self.blocks]


class BagEncoder(LightEncoder):
    """The embedded tokens, unchanged. With mean pooling and the flat head, this is fastText's bag of embeddings."""

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        return self.embedding(input_ids_WU, attention_mask_WU)
