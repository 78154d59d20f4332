"""Return the embedded tokens unchanged. With mean pooling and the flat head, this is fastText's bag of embeddings.

Suffixes: W windows, U tokens, D width.
"""

from torch import Tensor

from xmtc.models.encoders.embedding import LightEncoder


class BagEncoder(LightEncoder):
    """An embedding."""

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        return self.embedding(input_ids_WU, attention_mask_WU)
