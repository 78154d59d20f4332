"""Convolutions of several widths (Kim 2014). Suffixes: W windows, U tokens, D width, F filters."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.config.base import config
from xmtc.models.dropout import Dropout
from xmtc.models.encoders.embedding import EmbeddingConfig, LightEncoder, TokenEmbedding


@config
class CNNConfig:
    """Convolutions over embedded tokens; with max pooling and the flat head, the classifier of Kim (2014)."""

    kind: Literal["cnn"] = "cnn"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding."""
    window: Annotated[int, Field(ge=8)] = 1024
    """Most tokens of one window; a longer document is cut in overlapping ones."""
    filter_widths: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (3, 4, 5)
    """Tokens that a filter spans; Kim's by default."""
    filters: Annotated[int, Field(ge=1)] = 100
    """Filters of each width; hidden states have this many dimensions for each."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the hidden states."""

    def build(self, vocab_size: int) -> "CNNEncoder":
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window)
        return CNNEncoder(embedding, Convolutions(embedding.width, self.filters, self.filter_widths), self.dropout)


class Convolutions(nn.Module):
    """ReLU(convolution) for each filter width, side by side, as many states as tokens."""

    def __init__(self, width: int, filters: int, filter_widths: tuple[int, ...]) -> None:
        super().__init__()
        self.width, self.filter_widths = filters * len(filter_widths), filter_widths
        self.convolutions = nn.ModuleList(nn.Conv1d(width, filters, span) for span in filter_widths)

    def forward(self, hidden_WUD: Tensor) -> Tensor:
        """States (W, U, width)."""
        signal_WDU = hidden_WUD.transpose(1, 2)
        pairs = zip(self.convolutions, self.filter_widths, strict=True)
        states = [convolution(_around(signal_WDU, span)) for convolution, span in pairs]
        return torch.cat(states, 1).relu().transpose(1, 2)


class CNNEncoder(LightEncoder):
    """Embedding and convolutions."""

    def __init__(self, embedding: TokenEmbedding, convolutions: Convolutions, dropout: float) -> None:
        super().__init__(embedding, convolutions.width, [convolutions])
        self.dropout = Dropout(dropout)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D), 0 on padding."""
        states_WUD = self.blocks[0](self.embedding(input_ids_WU, attention_mask_WU))
        return self.dropout(states_WUD) * attention_mask_WU.unsqueeze(2)


def _around(signal_WDU: Tensor, span: int) -> Tensor:
    """Zeros at both ends, for as many states as tokens; `padding="same"` warns when the span is even."""
    return F.pad(signal_WDU, ((span - 1) // 2, span // 2))
