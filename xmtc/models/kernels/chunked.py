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
    keys_BTD: Tensor, values_BTD: Tensor, mask_BT: Tensor, queries_LD: Tensor, weights_LD: Tensor, options: Options
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
                    attention_HCN, gains_HCN = _attend(chunk, keys_HEN, values_HEN, options.normaliser)
                    logits_BL[b, chunk.labels] = attention_HCN.mul_(gains_HCN).sum((0, 2))
        return logits_BL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BL: Tensor) -> tuple[Tensor | None, ...]:
        mask, keys, values, queries, weights = ctx.saved_tensors
        heads = ctx.options.heads
        sums = [torch.zeros_like(at_least_fp32(x)) for x in (keys, values)]
        rows = [torch.empty_like(x) for x in (queries, weights)]
        with torch.autocast(keys.device.type, enabled=False):
            documents = _by_document(keys, values, mask, heads)
            totals = [torch.zeros(2, *k.shape, dtype=sums[0].dtype, device=k.device) for _, k, _ in documents]
            for chunk in _chunks(queries, weights, ctx.options, keys):
                d_rows_2HCE = torch.zeros(2, *chunk.queries_HCE.shape, dtype=sums[0].dtype, device=keys.device)
                for (b, keys_HEN, values_HEN), total in zip(documents, totals, strict=True):
                    targets = (*total, *d_rows_2HCE)
                    gradient_C = gradient_BL[b, chunk.labels]
                    _backward_block(targets, chunk, keys_HEN, values_HEN, gradient_C, ctx.options.normaliser)
                d_queries, d_weights = (x.transpose(0, 1).flatten(1) for x in d_rows_2HCE)
                if ctx.options.normalise_queries:
                    d_queries = normalise_rows_backward(queries[chunk.labels], d_queries, heads)
                rows[0][chunk.labels], rows[1][chunk.labels] = d_queries, d_weights
        for (b, _, _), total in zip(documents, totals, strict=True):
            scale = total.shape[2] ** -0.5
            sums[0][b, mask[b]] = total[0].flatten(0, 1).T * scale
            sums[1][b, mask[b]] = total[1].flatten(0, 1).T
        return None, None, sums[0].to(keys.dtype), sums[1].to(values.dtype), *rows


def _by_document(keys: Tensor, values: Tensor, mask: Tensor, heads: int) -> list[tuple[int, Tensor, Tensor]]:
    """Index, scaled keys (H, E, N) and values (H, E, N) of each document with tokens, without padding."""
    scaled = keys * (keys.shape[-1] // heads) ** -0.5

    def by_head(tensor_TD: Tensor, mask_T: Tensor) -> Tensor:
        return split_heads(tensor_TD[mask_T], heads).transpose(-1, -2).contiguous()

    present = [b for b in range(len(keys)) if mask[b].any()]
    return [(b, by_head(scaled[b], mask[b]), by_head(values[b], mask[b])) for b in present]


def _chunks(queries: Tensor, weights: Tensor, options: Options, keys: Tensor) -> Iterator[_Chunk]:
    heads = options.heads
    chunk = max(MIN_LABELS, BLOCK_BYTES // (4 * heads * max(1, keys.shape[1])))
    for start in range(0, len(queries), chunk):
        part = slice(start, start + chunk)
        rows = normalise_rows(queries[part], heads) if options.normalise_queries else queries[part]
        yield _Chunk(part, *(split_heads(x.to(keys.dtype), heads) for x in (rows, weights[part])))


def _attend(chunk: _Chunk, keys_HEN: Tensor, values_HEN: Tensor, normaliser: Normaliser) -> tuple[Tensor, Tensor]:
    """Compute the attention a (H, C, N) and G = W Vᵀ (H, C, N), both in fp32 at least."""
    attention_HCN = unpadded_attention(at_least_fp32(chunk.queries_HCE @ keys_HEN), normaliser)
    return attention_HCN, at_least_fp32(chunk.weights_HCE @ values_HEN)


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
    d_scores = gains_HCN.sub_(centres_HC1).mul_(slopes_HCN).mul_(gradient_C[:, None]).to(keys_HEN.dtype)
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
