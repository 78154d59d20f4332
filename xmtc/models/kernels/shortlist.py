"""Label attention over a few labels per document, at a cost that depends on their number and not on L.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, D head width d.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from xmtc.models.kernels.options import Options
from xmtc.models.kernels.reference import at_least_fp32, normalise_rows, reference_logits
from xmtc.models.kernels.sdpa import attend

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
        return torch.sparse_coo_tensor(labels.reshape(1, -1), rows, ctx.shape, check_invariants=False), None


def gather_rows(table: Tensor, labels: Tensor, *, sparse: bool) -> Tensor:
    """Gather rows of a label table (L, …). With `sparse`, the gradient is a sparse tensor with only these rows.

    Padding (-1) reads the row of a label in the shortlist, so it touches no additional row.
    """
    if labels.numel():
        labels = torch.where(labels < 0, labels.max().clamp(min=0), labels)
    if sparse and table.requires_grad and torch.is_grad_enabled():
        return _SparseRows.apply(table, labels)  # pyright: ignore[reportReturnType]
    return table[labels]


def label_attention_shortlist(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    bias_L: Tensor,
    shortlist_BS: Tensor,
    options: Options,
    *,
    sparse: bool = False,
) -> Tensor:
    """Compute logits (B, S) of the labels in `shortlist_BS` (int64, -1 is padding and gets `PADDED_LOGIT`).

    Like `label_attention`. With `sparse`, the gradients of the three label tables are sparse tensors, for
    `xmtc.distributed.rowwise_optim`. The option `implementation` is ignored, because PyTorch's attention suffices for a
    shortlist.
    """
    queries_BSD = gather_rows(queries_LD, shortlist_BS, sparse=sparse)
    weights_BSD = gather_rows(weights_LD, shortlist_BS, sparse=sparse).to(keys_BTD.dtype)
    bias_BS = gather_rows(bias_L, shortlist_BS, sparse=sparse)
    if options.normalise_queries:
        queries_BSD = normalise_rows(queries_BSD, options.heads)
    tensors = (keys_BTD, values_BTD, mask_BT, queries_BSD.to(keys_BTD.dtype), weights_BSD)
    if options.normaliser == "softmax":
        logits_BS = attend(*tensors, heads=options.heads)
    else:
        logits_BS = reference_logits(*tensors, heads=options.heads, normaliser=options.normaliser)
    logits_BS = at_least_fp32(logits_BS) + bias_BS
    return logits_BS.masked_fill(shortlist_BS < 0, PADDED_LOGIT)
