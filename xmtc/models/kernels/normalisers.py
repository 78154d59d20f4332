"""Convert attention scores to weights: softmax, and two sparse alternatives that give weak tokens exactly 0.

Suffixes: B documents, H heads, L labels, C labels of a chunk, T tokens, N tokens without padding.
"""

import torch
from entmax import entmax15, sparsemax
from torch import Tensor

from xmtc.models.kernels.options import Normaliser

# Finite, so that a document with only padding gives 0 instead of NaN. entmax squares and sums its inputs, which must
# stay finite too. Scores of normalised queries and keys never come near this value.
_PADDING_SCORE = -1e4
_MIN_SORTED = 16


def attention_weights(scores_BHLT: Tensor, mask_BT: Tensor, normaliser: Normaliser) -> Tensor:
    """Compute attention (B, H, L, T) that sums to 1 over unpadded tokens, or is 0 for a document with only padding.

    It is computed and returned in at least fp32, because softmax overflow is a known failure of label-wise heads.

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


def unpadded_attention(scores_HCN: Tensor, normaliser: Normaliser) -> Tensor:
    """Compute attention (H, C, N) over the last dimension, without a backward pass; see `attention_slopes`.

    The sparse normalisers sort only as many scores as they are likely to need, in a third of the time of sorting all.
    """
    if normaliser == "softmax":
        return scores_HCN.softmax(-1)
    sparse = sparsemax if normaliser == "sparsemax" else entmax15
    return sparse(scores_HCN, dim=-1, k=max(_MIN_SORTED, scores_HCN.shape[-1] // 8))


def attention_slopes(attention_HCN: Tensor, normaliser: Normaliser) -> Tensor:
    """Compute slopes u = a^(2 − α): a gradient g of the attention gives u ⊙ (g − Σ u⊙g / Σ u) for the scores.

    α is 1 for softmax, where Σ u = 1; 1.5 for entmax15; and 2 for sparsemax, where u is 1 or 0 (Peters et al., 2019,
    proposition 2). For softmax, this returns its argument.
    """
    if normaliser == "softmax":
        return attention_HCN
    return attention_HCN.sqrt() if normaliser == "entmax15" else attention_HCN.sign()
