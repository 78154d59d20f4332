"""The embedded tokens themselves: with mean pooling and the flat head, a bag of embeddings (as fastText).

Suffixes: W windows, U tokens, D width.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from xmtc.config.base import config
from xmtc.models.encoders.embedding import EmbeddingConfig, LightEncoder


@config
class BagConfig:
    """Token embeddings without order: the baseline that any encoder must beat."""

    kind: Literal["bag"] = "bag"
    """Which encoder."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Token embedding."""
    window: Annotated[int, Field(ge=8)] = 1024
    """Most tokens of one window; a longer document is cut in overlapping ones."""

    def build(self, vocab_size: int) -> "BagEncoder":
        """The encoder, started at random."""
        embedding = self.embedding.build(vocab_size, self.window)
        return BagEncoder(embedding, embedding.width, [])


class BagEncoder(LightEncoder):
    """An embedding."""

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D), 0 on padding."""
        return self.embedding(input_ids_WU, attention_mask_WU)
