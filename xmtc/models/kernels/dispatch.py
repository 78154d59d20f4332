"""Label-wise attention over all labels: one function with several implementations.

For a few labels per document, see `xmtc.models.kernels.shortlist`.

Suffixes: B documents, T tokens, L labels, D head width d.
"""

import importlib.util

from torch import Tensor

from xmtc.errors import ConfigError
from xmtc.models.kernels.chunked import chunked_logits
from xmtc.models.kernels.options import Implementation, Options
from xmtc.models.kernels.reference import at_least_fp32, normalise_rows, reference_logits
from xmtc.models.kernels.sdpa import sdpa_logits


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
    if implementation == "reference":
        return at_least_fp32(_reference(*tensors, options)) + bias_L
    if implementation == "sdpa":
        return sdpa_logits(*tensors, options) + bias_L
    if implementation == "chunked":
        return chunked_logits(*tensors, options) + bias_L
    if problem := triton_problem(keys_BTD, options):
        raise ConfigError(f"kernel 'triton': {problem}; use kernel 'auto'")
    from xmtc.models.kernels.fused import fused_logits  # only where Triton is installed

    return fused_logits(*tensors, options) + bias_L


def choose_implementation(keys_BTD: Tensor, options: Options) -> Implementation:
    """Choose the implementation for "auto"; measured in docs/benchmarks/label_attention.md."""
    if keys_BTD.device.type == "cpu":
        return "chunked"
    return "sdpa" if keys_BTD.device.type != "cuda" or triton_problem(keys_BTD, options) else "triton"


def triton_problem(keys_BTD: Tensor, options: Options) -> str | None:
    """Say why the Triton kernel does not support these keys; None if it does."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (pip install 'xmtc[gpu]')"
    from xmtc.models.kernels.fused import DTYPES, MAX_HEAD_WIDTH

    if options.normaliser != "softmax":
        return f"it supports only softmax, not {options.normaliser}"
    width = keys_BTD.shape[-1] // options.heads
    if width > MAX_HEAD_WIDTH:
        return f"a head of width {width} is wider than {MAX_HEAD_WIDTH}: give more heads"
    if keys_BTD.dtype not in DTYPES:
        return f"keys are {keys_BTD.dtype}, but it supports only fp32, fp16 and bf16"
    return None


def _reference(
    keys_BTD: Tensor, values_BTD: Tensor, mask_BT: Tensor, queries_LD: Tensor, weights_LD: Tensor, options: Options
) -> Tensor:
    queries = normalise_rows(queries_LD, options.heads) if options.normalise_queries else queries_LD
    tables = (queries.to(keys_BTD.dtype), weights_LD.to(keys_BTD.dtype))
    return reference_logits(keys_BTD, values_BTD, mask_BT, *tables, heads=options.heads, normaliser=options.normaliser)
