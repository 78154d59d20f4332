"""Label attention in blocks of (document, label chunk) with a hand-written backward pass: the fastest on a CPU.

It uses the identity z[b,l] = Σ_m Σ_t a[b,l,m,t]·G[b,l,m,t] + c[l] with G = W Vᵀ: two products, a softmax (or
sparsemax, or 1.5-entmax) and a weighted sum, without a context per label. A block's scores fit in the processor's
cache. Padding is removed first, so no time is spent on it.
Formulas: docs/explanation/kernels.md.

Suffixes: B documents, N tokens of one document, L labels, C labels of a chunk, D head width d, H heads, E = d/H.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xmtc.models.kernels.options import Normaliser, Options
from xmtc.models.kernels.reference import (
    at_least_fp32,
    attention_slopes,
    normalise_rows,
    normalise_rows_backward,
    split_heads,
    unpadded_attention,
)

# One (H, C, N) block of fp32 scores; a few of them fit in a processor's second-level cache.
BLOCK_BYTES = 2 * 2**20
MIN_LABELS = 32


class _Chunk(NamedTuple):
    """A chunk of labels, and their rows by head in the dtype of the keys."""

    labels: slice
    queries_HCE: Tensor
    weights_HCE: Tensor


def chunked_logits(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    options: Options,
) -> Tensor:
    """Compute logits (B, L) without bias, in fp32 (or fp64); see `xmtc.models.kernels.label_attention`."""
    tensors = (keys_BTD, values_BTD, queries_LD, weights_LD)
    return _Chunked.apply(options, mask_BT, *tensors)  # pyright: ignore[reportReturnType]


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, options: Options, mask: Tensor, *tensors: Tensor) -> Tensor:
        ctx.options = options
        ctx.save_for_backward(mask, *tensors)
        keys, values, queries, weights = tensors
        logits_BL = at_least_fp32(keys.new_zeros(len(keys), len(queries)))
        with torch.autocast(keys.device.type, enabled=False):
            documents = _by_document(keys, values, mask, options.heads)
            for chunk in _chunks(queries, weights, options, keys):
                for b, keys_HEN, values_HEN in documents:
                    attention_HCN, gains_HCN = _attend(
                        chunk, keys_HEN, values_HEN, options.normaliser
                    )
                    logits_BL[b, chunk.labels] = attention_HCN.mul_(gains_HCN).sum(
                        (0, 2)
                    )
        return logits_BL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BL: Tensor) -> tuple[Tensor | None, ...]:
        mask, keys, values, queries, weights = ctx.saved_tensors
        heads = ctx.options.heads
        d_keys = torch.zeros_like(at_least_fp32(keys))
        d_values = torch.zeros_like(at_least_fp32(values))
        d_queries = torch.empty_like(queries)
        d_weights = torch.empty_like(weights)
        wide = d_keys.dtype
        with torch.autocast(keys.device.type, enabled=False):
            documents = _by_document(keys, values, mask, heads)
            sums = [
                torch.zeros(2, *keys_HEN.shape, dtype=wide, device=keys.device)
                for _, keys_HEN, _ in documents
            ]
            for chunk in _chunks(queries, weights, ctx.options, keys):
                d_rows_2HCE = torch.zeros(
                    2, *chunk.queries_HCE.shape, dtype=wide, device=keys.device
                )
                for (b, keys_HEN, values_HEN), sums_2HEN in zip(
                    documents, sums, strict=True
                ):
                    targets = (*sums_2HEN, *d_rows_2HCE)
                    gradient_C = gradient_BL[b, chunk.labels]
                    _backward_block(
                        targets,
                        chunk,
                        keys_HEN,
                        values_HEN,
                        gradient_C,
                        ctx.options.normaliser,
                    )
                d_queries_CD, d_weights_CD = (
                    d_rows_HCE.transpose(0, 1).flatten(1) for d_rows_HCE in d_rows_2HCE
                )
                if ctx.options.normalise_queries:
                    d_queries_CD = normalise_rows_backward(
                        queries[chunk.labels], d_queries_CD, heads
                    )
                d_queries[chunk.labels] = d_queries_CD
                d_weights[chunk.labels] = d_weights_CD
        for (b, _, _), (d_keys_HEN, d_values_HEN) in zip(documents, sums, strict=True):
            scale = (
                d_keys_HEN.shape[1] ** -0.5
            )  # the keys were scaled before the products
            d_keys[b, mask[b]] = d_keys_HEN.flatten(0, 1).T * scale
            d_values[b, mask[b]] = d_values_HEN.flatten(0, 1).T
        return (
            None,
            None,
            d_keys.to(keys.dtype),
            d_values.to(values.dtype),
            d_queries,
            d_weights,
        )


def _by_document(
    keys: Tensor, values: Tensor, mask: Tensor, heads: int
) -> list[tuple[int, Tensor, Tensor]]:
    """Index, scaled keys (H, E, N) and values (H, E, N) of each document with tokens, without padding."""
    scaled = keys * (keys.shape[-1] // heads) ** -0.5

    def by_head(tensor_TD: Tensor, mask_T: Tensor) -> Tensor:
        return split_heads(tensor_TD[mask_T], heads).transpose(-1, -2).contiguous()

    documents = []
    for b in range(len(keys)):
        if mask[b].any():
            documents.append(
                (b, by_head(scaled[b], mask[b]), by_head(values[b], mask[b]))
            )
    return documents


def _chunks(
    queries: Tensor, weights: Tensor, options: Options, keys: Tensor
) -> Iterator[_Chunk]:
    heads = options.heads
    bytes_per_label = 4 * heads * max(1, keys.shape[1])
    labels_per_chunk = max(MIN_LABELS, BLOCK_BYTES // bytes_per_label)
    for start in range(0, len(queries), labels_per_chunk):
        labels = slice(start, start + labels_per_chunk)
        queries_CD = queries[labels]
        if options.normalise_queries:
            queries_CD = normalise_rows(queries_CD, heads)
        queries_HCE = split_heads(queries_CD.to(keys.dtype), heads)
        weights_HCE = split_heads(weights[labels].to(keys.dtype), heads)
        yield _Chunk(labels, queries_HCE, weights_HCE)


def _attend(
    chunk: _Chunk, keys_HEN: Tensor, values_HEN: Tensor, normaliser: Normaliser
) -> tuple[Tensor, Tensor]:
    """Compute the attention a (H, C, N) and G = W Vᵀ (H, C, N), both in fp32 at least."""
    scores_HCN = at_least_fp32(chunk.queries_HCE @ keys_HEN)
    attention_HCN = unpadded_attention(scores_HCN, normaliser)
    gains_HCN = at_least_fp32(chunk.weights_HCE @ values_HEN)
    return attention_HCN, gains_HCN


def _backward_block(
    targets: tuple[Tensor, ...],
    chunk: _Chunk,
    keys_HEN: Tensor,
    values_HEN: Tensor,
    gradient_C: Tensor,
    normaliser: Normaliser,
) -> None:
    """Add a block's gradients to `targets`: of keys and values (H, E, N), of queries and weights (H, C, E).

    dG = g·a, dS = g·u⊙(G − o) with o = Σ_n u⊙G / Σ_n u and u the attention's slopes, which are the attention itself for
    softmax; dE = dS·K, dK = dSᵀE, dW = dG·V, dV = dGᵀW (docs/explanation/kernels.md).
    """
    attention_HCN, gains_HCN = _attend(chunk, keys_HEN, values_HEN, normaliser)
    slopes_HCN = attention_slopes(attention_HCN, normaliser)
    centres_HC1 = (slopes_HCN * gains_HCN).sum(-1, keepdim=True)
    if normaliser != "softmax":
        centres_HC1 /= slopes_HCN.sum(-1, keepdim=True)
    centred_HCN = gains_HCN.sub_(centres_HC1)
    d_scores = centred_HCN.mul_(slopes_HCN).mul_(gradient_C[:, None]).to(keys_HEN.dtype)
    d_gains = attention_HCN.mul_(gradient_C[:, None]).to(keys_HEN.dtype)
    d_keys, d_values, d_queries, d_weights = targets
    _add_product(d_keys, chunk.queries_HCE.transpose(-1, -2), d_scores)
    _add_product(d_values, chunk.weights_HCE.transpose(-1, -2), d_gains)
    _add_product(d_queries, d_scores, keys_HEN.transpose(-1, -2))
    _add_product(d_weights, d_gains, values_HEN.transpose(-1, -2))


def _add_product(target: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a batch of matrix products. Sums stay in the dtype of `target`, which may be wider than the factors'."""
    if target.dtype == left.dtype:
        target.baddbmm_(left, right)
    else:
        target += left @ right
