"""The plain formula (docs/explanation/kernels.md), which stores scores: for sparse normalisers and few labels.

Suffixes: B documents, T tokens, L labels, D head width d, H heads, E width of a head (d/H).
"""

import torch
import torch.nn.functional as F
from entmax import entmax15, sparsemax
from torch import Tensor

from xmtc.models.kernels.options import Normaliser

NORM_EPS = 1e-6


def split_heads(rows_ND: Tensor, heads: int) -> Tensor:
    """Reshape (…, N, D) to (…, H, N, E)."""
    return _parts(rows_ND, heads).transpose(-2, -3)


def normalise_rows(rows_ND: Tensor, heads: int) -> Tensor:
    """Divide each head's part of each row by its root mean square (RMSNorm without gain), in at least fp32."""
    parts = _parts(at_least_fp32(rows_ND), heads)
    return F.rms_norm(parts, parts.shape[-1:], eps=NORM_EPS).flatten(-2)


def normalise_rows_backward(rows_ND: Tensor, gradient_ND: Tensor, heads: int) -> Tensor:
    """Gradient of the rows from the gradient g of `normalise_rows`: r·(g − x̂·mean(x̂·g)), r = 1/rms(x), x̂ = r·x."""
    rows_NHE = _parts(at_least_fp32(rows_ND), heads)
    gradient_NHE = _parts(gradient_ND, heads)
    mean_square_NH1 = rows_NHE.square().mean(-1, keepdim=True)
    inverse_NH1 = (mean_square_NH1 + NORM_EPS).rsqrt()
    normalised_NHE = rows_NHE * inverse_NH1
    along_NH1 = (normalised_NHE * gradient_NHE).mean(-1, keepdim=True)
    d_rows_NHE = inverse_NH1 * (gradient_NHE - normalised_NHE * along_NH1)
    return d_rows_NHE.flatten(-2)


def _parts(rows_ND: Tensor, heads: int) -> Tensor:
    """Reshape (…, N, D) to (…, N, H, E)."""
    return rows_ND.unflatten(-1, (heads, -1))


def at_least_fp32(tensor: Tensor) -> Tensor:
    """Convert the tensor to fp32, unless it is fp64."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def attention_scores(keys_BTD: Tensor, queries_LD: Tensor, heads: int) -> Tensor:
    """Compute ⟨E[l,m], K[b,t,m]⟩ / √E, shape (B, H, L, T); queries may also be (B, L, D), one set per document."""
    keys_BHTE = split_heads(keys_BTD, heads)
    queries_HLE = split_heads(queries_LD, heads)
    products_BHLT = queries_HLE @ keys_BHTE.transpose(-1, -2)
    return products_BHLT * keys_BHTE.shape[-1] ** -0.5


def reference_logits(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    *,
    heads: int,
    normaliser: Normaliser = "softmax",
) -> Tensor:
    """Compute logits (B, L) without bias by the formula of `xmtc.models.kernels.label_attention`, in the keys' dtype.

    Queries and weights may also be (B, L, D), with different labels for each document, as with a shortlist.
    """
    scores_BHLT = attention_scores(keys_BTD, queries_LD, heads)
    attention_BHLT = attention_weights(scores_BHLT, mask_BT, normaliser).to(
        values_BTD.dtype
    )
    contexts_BHLE = attention_BHLT @ split_heads(values_BTD, heads)
    return (contexts_BHLE * split_heads(weights_LD, heads)).sum((-3, -1))


# Finite, so that a document with only padding gives 0 instead of NaN. entmax squares and sums its inputs, which must
# stay finite too. Scores of normalised queries and keys never come near this value.
_PADDING_SCORE = -1e4
_MIN_SORTED = 16


def attention_weights(
    scores_BHLT: Tensor, mask_BT: Tensor, normaliser: Normaliser
) -> Tensor:
    """Compute attention (B, H, L, T) that sums to 1 over unpadded tokens, or is 0 for a document with only padding.

    It is computed and returned in at least fp32, because softmax overflow is a known failure of label-wise heads.

    Args:
        scores_BHLT: scaled scores before normalisation.
        mask_BT: bool, False on padding.
        normaliser: "softmax"; "sparsemax" (Martins and Astudillo, 2016); "entmax15" (Peters et al., 2019).
    """
    mask = mask_BT[:, None, None, :]
    scores = at_least_fp32(scores_BHLT)
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
    if normaliser == "entmax15":
        return attention_HCN.sqrt()
    return attention_HCN.sign()
