"""LSTM, in one direction or both."""

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from xmtc.config.base import config
from xmtc.models.encoders.embedding import EmbeddingConfig
from xmtc.models.encoders.recurrent import Recurrent, RecurrentEncoder


@config
class LSTMConfig:
    """LSTM over embedded tokens."""

    kind: Literal["lstm"] = "lstm"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding."""
    window: Annotated[int, Field(ge=8)] = 1024
    """Most tokens of one window; a longer document is cut in overlapping ones."""
    hidden: Annotated[int, Field(ge=1)] = 128
    """Width of the state of one direction."""
    layers: Annotated[int, Field(ge=1)] = 1
    """LSTM layers."""
    bidirectional: bool = False
    """Read the text backwards too; hidden states are then twice as wide."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout between layers and on the hidden states."""

    def build(self, vocab_size: int) -> RecurrentEncoder:
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window)
        shape = {"layers": self.layers, "dropout": self.dropout, "bidirectional": self.bidirectional}
        return RecurrentEncoder(embedding, Recurrent(nn.LSTM, embedding.width, self.hidden, **shape), self.dropout)
