"""Label attention over chunks of labels, recomputed in the backward pass to save memory.

Only the (B, L) logits and the gradients of the inputs are as large as the label set. Scores, attention and per-label
contexts exist for one chunk of labels at a time. This is the default on a GPU without Triton.

Suffixes: B documents, T tokens, L labels, C labels of a chunk, D head width d, H heads, E width of a head (d/H).
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from xmtc.models.kernels.options import Options
from xmtc.models.kernels.reference import (
    at_least_fp32,
    normalise_rows,
    reference_logits,
    split_heads,
)

# Memory for the temporaries of a chunk. On a CPU, larger is not faster (docs/benchmarks/label_attention.md). On a GPU,
# chunks of 32 MiB took 11 times as long as all labels at once (docs/benchmarks/gpu.md).
CHUNK_BYTES = 32 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
MIN_LABELS = 64


def attend(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    *,
    heads: int,
) -> Tensor:
    """Compute logits (B, L) without bias through PyTorch's scaled-dot-product attention, all labels at once.

    Queries and weights may also be (B, L, D): then each document has its own labels, as with a shortlist.
    """
    # A row without tokens would give NaN. It attends to padding instead, and the result is dropped.
    # The mask is given even if it is True everywhere: to look would make the host wait for the device.
    has_tokens_B1 = mask_BT.any(-1, keepdim=True)
    attended_BT = mask_BT | ~has_tokens_B1
    queries = split_heads(queries_LD, heads)
    contexts_BHLE = F.scaled_dot_product_attention(
        queries.expand(len(keys_BTD), *queries.shape[-3:]),
        split_heads(keys_BTD, heads),
        split_heads(values_BTD, heads),
        attn_mask=attended_BT[:, None, None, :],
    )
    logits_BL = (contexts_BHLE * split_heads(weights_LD, heads)).sum((-3, -1))
    return logits_BL * has_tokens_B1


def automatic_chunk(
    budget: int,
    documents: int,
    tokens: int,
    width: int,
    heads: int,
    *,
    stores_scores: bool,
) -> int:
    """Choose the labels per chunk so that temporaries of forward and backward stay near a budget in bytes."""
    numbers_per_document = 6 * width
    if stores_scores:
        numbers_per_document += 4 * heads * tokens
    bytes_per_label = 4 * documents * numbers_per_document
    return max(MIN_LABELS, budget // bytes_per_label)


def sdpa_logits(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    options: Options,
) -> Tensor:
    """Compute logits (B, L) without bias, in fp32 (or fp64), chunk by chunk; see `xmtc.models.kernels.label_attention`.

    Softmax goes through scaled-dot-product attention; the sparse normalisers go through the plain formula, whose
    scores then exist for one chunk only.
    """
    documents, tokens, width = keys_BTD.shape
    stores_scores = options.normaliser != "softmax"
    budget = CHUNK_BYTES if keys_BTD.device.type == "cpu" else GPU_CHUNK_BYTES
    chunk = automatic_chunk(
        budget, documents, tokens, width, options.heads, stores_scores=stores_scores
    )
    wide_keys_BTD = at_least_fp32(
        keys_BTD
    )  # so that the chunks' gradients are added in fp32
    wide_values_BTD = at_least_fp32(values_BTD)
    logits_of_chunk = partial(
        _of_chunk, options, keys_BTD.dtype, wide_keys_BTD, wide_values_BTD, mask_BT
    )
    logits = []
    for queries_CD, weights_CD in zip(
        queries_LD.split(chunk), weights_LD.split(chunk), strict=True
    ):
        logits.append(
            checkpoint(logits_of_chunk, queries_CD, weights_CD, use_reentrant=False)
        )
    return torch.cat(logits, 1)


def _of_chunk(
    options: Options,
    dtype: torch.dtype,
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_CD: Tensor,
    weights_CD: Tensor,
) -> Tensor:
    """Compute a chunk's logits (B, C); products are computed in `dtype`, to which only the chunk's rows are cast."""
    with torch.autocast(keys_BTD.device.type, enabled=False):
        if options.normalise_queries:
            queries_CD = normalise_rows(queries_CD, options.heads)
        keys, values, queries, weights = (
            x.to(dtype) for x in (keys_BTD, values_BTD, queries_CD, weights_CD)
        )
        if options.normaliser == "softmax":
            return at_least_fp32(
                attend(keys, values, mask_BT, queries, weights, heads=options.heads)
            )
        logits_BC = reference_logits(
            keys,
            values,
            mask_BT,
            queries,
            weights,
            heads=options.heads,
            normaliser=options.normaliser,
        )
        return at_least_fp32(logits_BC)
