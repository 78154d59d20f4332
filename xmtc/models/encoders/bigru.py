"""Bidirectional GRU."""

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from xmtc.config.base import config
from xmtc.models.encoders.embedding import EmbeddingConfig
from xmtc.models.encoders.recurrent import Recurrent, RecurrentEncoder


@config
class BiGRUConfig:
    """Bidirectional GRU over embedded tokens; with the label-wise head, the BiGRU-LWAN of Chalkidis et al. (2019)."""

    kind: Literal["bigru"] = "bigru"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding."""
    window: Annotated[int, Field(ge=8)] = 1024
    """Most tokens of one window; a longer document is cut in overlapping ones."""
    hidden: Annotated[int, Field(ge=1)] = 128
    """Width of the state of one direction; hidden states are twice as wide."""
    layers: Annotated[int, Field(ge=1)] = 1
    """GRU layers."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout between layers and on the hidden states."""

    def build(self, vocab_size: int) -> RecurrentEncoder:
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window)
        shape = {"layers": self.layers, "dropout": self.dropout, "bidirectional": True}
        return RecurrentEncoder(embedding, Recurrent(nn.GRU, embedding.width, self.hidden, **shape), self.dropout)
