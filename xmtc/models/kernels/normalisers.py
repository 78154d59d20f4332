"""From attention scores to attention weights: softmax, and two sparse alternatives that set weak tokens to exactly 0.

Suffixes: B documents, H heads, L labels, T tokens.
"""

from typing import Literal

import torch
from entmax import entmax15, sparsemax
from torch import Tensor

Normaliser = Literal["softmax", "sparsemax", "entmax15"]

# Finite, so that a document of only padding gives 0 and not NaN; entmax squares and sums its inputs, so it needs a
# value that stays finite there, and scores of normalised queries and keys never come near it.
_PADDING_SCORE = -1e4


def attention_weights(scores_BHLT: Tensor, mask_BT: Tensor, normaliser: Normaliser) -> Tensor:
    """Attention (B, H, L, T) that sums to 1 over unpadded tokens, or is all 0 for a document of only padding.

    Computed in fp32 at least, and returned so, because softmax overflow is the known failure of label-wise heads.

    Args:
        scores_BHLT: scaled scores before normalisation.
        mask_BT: bool, False on padding.
        normaliser: "softmax"; "sparsemax" (Martins and Astudillo, 2016); "entmax15" (Peters et al., 2019).
    """
    mask = mask_BT[:, None, None, :]
    scores = scores_BHLT.to(torch.promote_types(scores_BHLT.dtype, torch.float32))
    if normaliser == "softmax":
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~mask, lowest).softmax(-1) * mask
    sparse = sparsemax if normaliser == "sparsemax" else entmax15
    return sparse(scores.masked_fill(~mask, _PADDING_SCORE), dim=-1) * mask
