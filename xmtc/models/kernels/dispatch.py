"""Label-wise attention over all labels, by one of several implementations, or over a few labels per document.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, D head width d.
"""

import importlib.util

from torch import Tensor

from xmtc.errors import ConfigError
from xmtc.models.kernels.chunked import chunked_logits
from xmtc.models.kernels.options import Implementation, Options
from xmtc.models.kernels.products import PADDED_LOGIT, gather_rows
from xmtc.models.kernels.reference import (
    at_least_fp32,
    normalise_rows,
    reference_logits,
)
from xmtc.models.kernels.sdpa import attend, sdpa_logits


def label_attention(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    bias_L: Tensor,
    options: Options,
) -> Tensor:
    """Logits (B, L): z[b,l] = ⟨w[l], concat_m Σ_t softmax_t(⟨E[l,m], K[b,t,m]⟩/√(d/H)) V[b,t,m]⟩ + c[l].

    Formula: docs/explanation/kernels.md. Products are computed in the dtype of the keys; the logits are always fp32
    (fp64 for fp64 keys). A document with only padding gets the bias.

    Args:
        keys_BTD: projected (and normalised) keys.
        values_BTD: projected values.
        mask_BT: bool, False on padding.
        queries_LD: one query row per label; cast to the dtype of the keys chunk by chunk.
        weights_LD: one classifier row per label; cast likewise.
        bias_L: one bias per label.
        options: heads, normaliser, implementation.

    Raises:
        ConfigError: the implementation is not available, or does not support this normaliser, dtype or head width.
    """
    implementation = options.implementation
    if implementation == "auto":
        implementation = choose_implementation(keys_BTD, options)
    tensors = (keys_BTD, values_BTD, mask_BT, queries_LD, weights_LD)
    if implementation == "sdpa":
        return sdpa_logits(*tensors, options) + bias_L
    if implementation == "chunked":
        return chunked_logits(*tensors, options) + bias_L
    problem = triton_problem(keys_BTD, options)
    if problem is not None:
        raise ConfigError(f"kernel 'triton': {problem}; use kernel 'auto'")
    from xmtc.models.kernels.fused_attention import (
        fused_logits,
    )  # only where Triton is installed

    return fused_logits(*tensors, options) + bias_L


def choose_implementation(keys_BTD: Tensor, options: Options) -> Implementation:
    """Choose the implementation for "auto"; measured in docs/benchmarks/label_attention.md."""
    if keys_BTD.device.type == "cpu":
        return "chunked"
    if keys_BTD.device.type == "cuda" and triton_problem(keys_BTD, options) is None:
        return "triton"
    return "sdpa"


def triton_problem(keys_BTD: Tensor, options: Options) -> str | None:
    """Say why the Triton kernel does not support these keys; None if it does."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install 'xmtc[gpu]')"
    from xmtc.models.kernels.fused_attention import DTYPES, MAX_HEAD_WIDTH

    if options.normaliser != "softmax":
        return f"it supports only softmax, not {options.normaliser}"
    width = keys_BTD.shape[-1] // options.heads
    if width > MAX_HEAD_WIDTH:
        return (
            f"a head of width {width} is wider than {MAX_HEAD_WIDTH}: give more heads"
        )
    if keys_BTD.dtype not in DTYPES:
        return f"keys are {keys_BTD.dtype}, but it supports only fp32, fp16 and bf16"
    return None


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
    `xmtc.distributed.rowwise_optim`. The cost depends on S and not on L. The option `implementation` is ignored,
    because PyTorch's attention suffices for a shortlist.
    """
    queries_BSD = gather_rows(queries_LD, shortlist_BS, sparse=sparse)
    weights_BSD = gather_rows(weights_LD, shortlist_BS, sparse=sparse).to(
        keys_BTD.dtype
    )
    bias_BS = gather_rows(bias_L, shortlist_BS, sparse=sparse)
    if options.normalise_queries:
        queries_BSD = normalise_rows(queries_BSD, options.heads)
    tensors = (
        keys_BTD,
        values_BTD,
        mask_BT,
        queries_BSD.to(keys_BTD.dtype),
        weights_BSD,
    )
    if options.normaliser == "softmax":
        logits_BS = attend(*tensors, heads=options.heads)
    else:
        logits_BS = reference_logits(
            *tensors, heads=options.heads, normaliser=options.normaliser
        )
    logits_BS = at_least_fp32(logits_BS) + bias_BS
    return logits_BS.masked_fill(shortlist_BS < 0, PADDED_LOGIT)
