"""Logits that are products of document vectors and label rows, and the rows of shortlisted labels.

Suffixes: B documents, L labels, C labels of a chunk, S shortlisted labels, P width, K best labels.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 8192  # label rows that are cast to another dtype at a time

# The logit of a shortlist's padding (label id -1): a constant whose probability and binary losses are exactly 0.
PADDED_LOGIT = -1e4


class _SparseRows(torch.autograd.Function):
    """`table[labels]` with a sparse gradient; F.embedding does not support tables of one dimension."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(labels)
        ctx.shape = table.shape
        return table[labels]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (labels,) = ctx.saved_tensors
        rows = gradient.reshape(labels.numel(), *ctx.shape[1:])
        return torch.sparse_coo_tensor(
            labels.reshape(1, -1), rows, ctx.shape, check_invariants=False
        ), None


def gather_rows(table: Tensor, labels: Tensor, *, sparse: bool) -> Tensor:
    """Gather rows of a label table (L, …). With `sparse`, the gradient is a sparse tensor with only these rows.

    Padding (-1) reads the row of a label in the shortlist, so it touches no additional row.
    """
    if labels.numel():
        labels = torch.where(labels < 0, labels.max().clamp(min=0), labels)
    if sparse and table.requires_grad and torch.is_grad_enabled():
        return _SparseRows.apply(table, labels)  # pyright: ignore[reportReturnType]
    return table[labels]


def product_logits(
    vectors_BP: Tensor,
    weights_LP: Tensor,
    bias_L: Tensor,
    shortlist: Tensor | None = None,
    *,
    sparse: bool = False,
) -> Tensor:
    """Compute ⟨weights, vectors⟩ + bias in float32: (B, L), or (B, S) for a shortlist; see `Head.score`.

    Args:
        vectors_BP: document vectors, whose dtype is that of the products.
        weights_LP: rows; without gradient, rows of another dtype are cast chunk by chunk.
        bias_L: biases.
        shortlist: int64 label ids (S,) or (B, S), or None.
        sparse: give rows and biases of a shortlist sparse gradients.
    """
    if shortlist is None:
        return _of_all(vectors_BP, weights_LP, bias_L)
    rows = gather_rows(weights_LP, shortlist, sparse=sparse).to(vectors_BP.dtype)
    bias = gather_rows(bias_L, shortlist, sparse=sparse)
    if shortlist.ndim == 1:
        return F.linear(vectors_BP, rows).float() + bias
    products_BS1 = rows @ vectors_BP[..., None]
    logits_BS = products_BS1[..., 0].float() + bias
    return logits_BS.masked_fill(shortlist < 0, PADDED_LOGIT)


def _of_all(vectors_BP: Tensor, weights_LP: Tensor, bias_L: Tensor) -> Tensor:
    needs_gradient = torch.is_grad_enabled() and weights_LP.requires_grad
    if weights_LP.dtype == vectors_BP.dtype or needs_gradient:
        return F.linear(vectors_BP, weights_LP.to(vectors_BP.dtype)).float() + bias_L
    logits_BL = torch.empty(
        len(vectors_BP), len(bias_L), dtype=torch.float32, device=vectors_BP.device
    )
    for start in range(0, len(bias_L), CHUNK):
        chunk = slice(start, start + CHUNK)
        products_BC = F.linear(vectors_BP, weights_LP[chunk].to(vectors_BP.dtype))
        logits_BL[:, chunk] = products_BC.float() + bias_L[chunk]
    return logits_BL


@torch.no_grad()
def best_products(
    vectors_BP: Tensor,
    weights_LP: Tensor,
    bias_L: Tensor,
    count: int,
    adjust: Callable[[Tensor, Tensor], Tensor] = lambda logits, labels: logits,
) -> tuple[Tensor, Tensor]:
    """Find each document's best labels int64 (B, K) and their logits (B, K), best first, without a table of all logits.

    Args:
        vectors_BP: document vectors.
        weights_LP: rows.
        bias_L: added to the products.
        count: K.
        adjust: changes the logits (B, C) of labels (C,), for example by calibration.
    """
    ids_BK = torch.zeros(
        len(vectors_BP), 0, dtype=torch.int64, device=vectors_BP.device
    )
    logits_BK = torch.zeros(
        len(vectors_BP), 0, dtype=torch.float32, device=vectors_BP.device
    )
    for start in range(0, len(bias_L), CHUNK):
        chunk = slice(start, start + CHUNK)
        products_BC = F.linear(vectors_BP, weights_LP[chunk].to(vectors_BP.dtype))
        logits_BC = products_BC.float() + bias_L[chunk]
        labels_C = torch.arange(
            start, start + logits_BC.shape[1], device=vectors_BP.device
        )
        best_of_chunk = adjust(logits_BC, labels_C).topk(min(count, len(labels_C)))
        candidate_logits = torch.cat([logits_BK, best_of_chunk.values], 1)
        candidate_ids = torch.cat([ids_BK, best_of_chunk.indices + start], 1)
        best = candidate_logits.topk(min(count, start + len(labels_C)))
        ids_BK = candidate_ids.gather(1, best.indices)
        logits_BK = best.values
    return ids_BK, logits_BK
