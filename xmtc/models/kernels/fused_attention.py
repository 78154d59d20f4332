"""Fused label attention for GPUs, which never writes scores or per-label contexts to memory.

It uses z[b,l] = Σ_m Σ_n a[b,l,m,n]·G[b,l,m,n] with G = W Vᵀ. The online softmax over tokens therefore carries one
number per label and head instead of a context. Documents are packed, padding behind them, so no time is spent on it.
Products use the dtype of the keys (fp32: no TF32), everything else is fp32. Label tables may have another dtype and are
cast as they are read. The backward pass has two kernels: one over (label block, head) for the label tables, one over
(token block, head) for keys and values. Both recompute scores and G from the log-sum-exp and the output of every
(document, head, label), which the forward pass stores. Formulas: docs/explanation/kernels.md.

Suffixes: B documents, N tokens of all documents, T tokens of a block, L labels, C labels of a block, D width d,
H heads, E = d/H. Scores are in units of log 2, because the hardware implements exp2.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor
from torch.autograd.function import once_differentiable

from xmtc.models.kernels.options import Options
from xmtc.models.kernels.reference import NORM_EPS

Kernel = Literal["forward", "label_gradient", "token_gradient"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_HEAD_WIDTH = 128

# With fewer programs, the pass over tokens splits the labels and adds partial sums atomically.
_WANTED_PROGRAMS = 512


class _Documents(NamedTuple):
    """Positions of each document's tokens: offsets, int32 (B+1), and the most tokens that a document may have."""

    offsets: Tensor
    longest: int


def fused_logits(
    keys_BTD: Tensor,
    values_BTD: Tensor,
    mask_BT: Tensor,
    queries_LD: Tensor,
    weights_LD: Tensor,
    options: Options,
) -> Tensor:
    """Compute logits (B, L) without bias, in fp32; see `xmtc.models.kernels.label_attention`. Softmax only."""
    ends_B = mask_BT.sum(-1).cumsum(0)
    offsets = torch.nn.functional.pad(ends_B, (1, 0)).to(torch.int32)
    documents = _Documents(offsets, mask_BT.shape[1])
    # Padding comes last and no document has it: `nonzero` would leave it out, but the host would wait for its length.
    tokens_N = mask_BT.logical_not().flatten().argsort(stable=True)
    keys_ND = keys_BTD.flatten(0, 1).index_select(0, tokens_N)
    values_ND = values_BTD.flatten(0, 1).index_select(0, tokens_N)
    tables = (queries_LD.contiguous(), weights_LD.contiguous())
    return _Fused.apply(options, documents, keys_ND, values_ND, *tables)  # pyright: ignore[reportReturnType]


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, options: Options, documents: _Documents, *tensors: Tensor
    ) -> Tensor:
        keys, _, queries, _ = tensors
        n_documents, n_labels = len(documents.offsets) - 1, len(queries)
        logits_BL = keys.new_empty(n_documents, n_labels, dtype=torch.float32)
        lse_BHL = keys.new_empty(
            n_documents, options.heads, n_labels, dtype=torch.float32
        )
        outputs_BHL = torch.empty_like(lse_BHL)
        settings = settings_of("forward", keys, options, _capability(keys))
        grid = (triton.cdiv(n_labels, settings["BLOCK_C"]), n_documents)
        results = (logits_BL, lse_BHL, outputs_BHL)
        _launch(
            _forward_kernel,
            grid,
            *tensors,
            documents.offsets,
            *results,
            n_labels,
            **settings,
        )
        ctx.options = options
        ctx.longest = documents.longest
        ctx.save_for_backward(documents.offsets, *tensors, lse_BHL, outputs_BHL)
        return logits_BL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BL: Tensor) -> tuple[Tensor | None, ...]:
        offsets, keys, values, queries, weights, lse, outputs = ctx.saved_tensors
        n_documents, n_labels = gradient_BL.shape
        inputs = (
            keys,
            values,
            queries,
            weights,
            offsets,
            lse,
            outputs,
            gradient_BL.contiguous(),
        )
        settings = settings_of("label_gradient", keys, ctx.options, _capability(keys))
        d_tables = [torch.empty_like(x) for x in (queries, weights)]
        grid = (triton.cdiv(n_labels, settings["BLOCK_C"]), ctx.options.heads)
        _launch(
            _label_gradient_kernel,
            grid,
            *inputs,
            *d_tables,
            n_documents,
            n_labels,
            **settings,
        )

        settings = settings_of("token_gradient", keys, ctx.options, _capability(keys))
        blocks = triton.cdiv(ctx.longest, settings["BLOCK_T"])
        splits = _splits(
            n_documents * blocks * ctx.options.heads, n_labels, settings["BLOCK_C"]
        )
        d_tokens = [
            torch.zeros_like(x, dtype=torch.float32 if splits > 1 else None)
            for x in (keys, values)
        ]
        if blocks:
            grid = (n_documents * blocks, ctx.options.heads, splits)
            arguments = (*inputs, *d_tokens, n_labels, blocks, splits)
            _launch(
                _token_gradient_kernel, grid, *arguments, ATOMIC=splits > 1, **settings
            )
        return None, None, *(x.to(keys.dtype) for x in d_tokens), *d_tables


def _launch(
    kernel: Any, grid: tuple[int, ...], *arguments: object, **settings: object
) -> None:
    kernel[grid](*arguments, **settings)


def _capability(keys: Tensor) -> tuple[int, int]:
    return torch.cuda.get_device_capability(keys.device) if keys.is_cuda else (8, 0)


def settings_of(
    kernel: Kernel, keys: Tensor, options: Options, capability: tuple[int, int]
) -> dict[str, Any]:
    """Return compile-time constants and launch settings of a kernel, for a GPU of this compute capability."""
    width = keys.shape[-1] // options.heads
    exact = keys.dtype == torch.float32
    return {
        "HEADS": options.heads,
        "E": width,
        "BLOCK_E": max(16, triton.next_power_of_2(width)),
        "SCALE": width**-0.5,
        "LOG2E": math.log2(math.e),
        "EPS": NORM_EPS,
        "NORMALISE": options.normalise_queries,
        # TF32 would lose 13 of fp32's 23 bits.
        "PRECISION": "ieee" if exact else "tf32",
        "enable_fp_fusion": True,
        **_blocks(kernel, width, exact, capability),
    }


def _blocks(
    kernel: Kernel, width: int, exact: bool, capability: tuple[int, int]
) -> dict[str, int]:
    """Labels and tokens of a block, warps and stages.

    On Hopper in half precision: among the fastest ones (tools/bench/kernel_blocks.py). Elsewhere, never measured: the
    largest blocks whose programs keep their numbers in registers (tools/check/compiled_kernels.py).
    """
    if capability >= (9, 0) and not exact:
        if kernel == "token_gradient":
            return {
                "BLOCK_C": 64,
                "BLOCK_T": 128,
                "num_warps": 8 if width > 32 else 4,
                "num_stages": 3,
            }
        return {
            "BLOCK_C": 64,
            "BLOCK_T": 32 if width > 64 else 64,
            "num_warps": 4,
            "num_stages": 3,
        }
    wide = exact or width > 32
    small = exact or (width > 64 and capability in ((8, 6), (8, 9)))
    tokens = 32 if wide else 64
    if exact and width > 64 and capability == (8, 0):
        tokens = 16
    return {
        "BLOCK_C": 32 if small else 64,
        "BLOCK_T": tokens,
        "num_warps": 8,
        "num_stages": 2,
    }


def _splits(programs: int, n_labels: int, block: int) -> int:
    if torch.are_deterministic_algorithms_enabled() or programs == 0:
        return 1
    splits_for_programs = triton.cdiv(_WANTED_PROGRAMS, programs)
    splits_worth_while = triton.cdiv(
        n_labels, 4 * block
    )  # each has at least four blocks of labels
    return max(1, min(splits_for_programs, splits_worth_while))


@triton.jit
def _load_rows(
    table,
    rows,
    limit,
    head,
    HEADS: tl.constexpr,
    E: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Load one head's part of some rows of a table (…, HEADS·E), zero beyond `limit` and beyond E."""
    columns = tl.arange(0, BLOCK_E)
    inside = (rows[:, None] < limit) & (columns[None, :] < E)
    return tl.load(
        table + rows[:, None].to(tl.int64) * (HEADS * E) + head * E + columns[None, :],
        inside,
        other=0.0,
    )


@triton.jit
def _store_rows(
    table,
    rows,
    limit,
    head,
    values,
    HEADS: tl.constexpr,
    E: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_E)
    inside = (rows[:, None] < limit) & (columns[None, :] < E)
    at = table + rows[:, None].to(tl.int64) * (HEADS * E) + head * E + columns[None, :]
    tl.store(at, values.to(table.dtype.element_ty), inside)


@triton.jit
def _normalised(rows, E: tl.constexpr, EPS: tl.constexpr, NORMALISE: tl.constexpr):
    """Convert rows to fp32; with NORMALISE, divide them by their root mean square. Also returns the factor."""
    rows = rows.to(tl.float32)
    inverse = tl.full((rows.shape[0],), 1.0, tl.float32)
    if NORMALISE:
        inverse = 1.0 / tl.sqrt(tl.sum(rows * rows, 1) / E + EPS)
        rows = rows * inverse[:, None]
    return rows, inverse


@triton.jit
def _forward_kernel(
    keys, values, queries, weights, offsets, logits, lse, outputs, n_labels,
    HEADS: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr,
    SCALE: tl.constexpr, LOG2E: tl.constexpr, EPS: tl.constexpr, NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: a block of labels of one document, all heads and tokens."""
    labels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    document = tl.program_id(1)
    start, end = tl.load(offsets + document), tl.load(offsets + document + 1)
    logit = tl.zeros((BLOCK_C,), tl.float32)
    for head in range(HEADS):
        query, _ = _normalised(
            _load_rows(queries, labels, n_labels, head, HEADS, E, BLOCK_E),
            E,
            EPS,
            NORMALISE,
        )
        query = query.to(keys.dtype.element_ty)
        weight = _load_rows(weights, labels, n_labels, head, HEADS, E, BLOCK_E).to(
            keys.dtype.element_ty
        )
        highest = tl.full((BLOCK_C,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_C,), tl.float32)
        output = tl.zeros((BLOCK_C,), tl.float32)
        for first in range(start, end, BLOCK_T):
            tokens = first + tl.arange(0, BLOCK_T)
            key = _load_rows(keys, tokens, end, head, HEADS, E, BLOCK_E)
            value = _load_rows(values, tokens, end, head, HEADS, E, BLOCK_E)
            score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (
                SCALE * LOG2E
            )
            score = tl.where(tokens[None, :] < end, score, float("-inf"))
            gain = tl.dot(weight, tl.trans(value), input_precision=PRECISION)
            higher = tl.maximum(highest, tl.max(score, 1))
            shrink = tl.exp2(highest - higher)
            share = tl.exp2(score - higher[:, None])
            total = total * shrink + tl.sum(share, 1)
            output = output * shrink + tl.sum(share * gain, 1)
            highest = higher
        total = tl.where(total > 0, total, 1.0)  # a document without tokens: output 0
        output = output / total
        at = (document * HEADS + head).to(tl.int64) * n_labels + labels
        tl.store(lse + at, highest + tl.log2(total), labels < n_labels)
        tl.store(outputs + at, output, labels < n_labels)
        logit += output
    tl.store(
        logits + document.to(tl.int64) * n_labels + labels, logit, labels < n_labels
    )


@triton.jit
def _block_gradients(
    query, weight, key, value, inside_tokens, at, gradients, at_gradient, lse, outputs, labels, n_labels,
    SCALE: tl.constexpr, LOG2E: tl.constexpr, PRECISION: tl.constexpr, AXIS: tl.constexpr,
):  # fmt: skip
    """Compute dS, the gradient of ⟨query, key⟩, and dG, the gradient of ⟨weight, value⟩: tokens are `AXIS`.

    The next product sums over the second dimension, and takes them from registers only because they lie that way.
    """
    known = labels < n_labels
    if AXIS == 1:
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION)
        gain = tl.dot(weight, tl.trans(value), input_precision=PRECISION)
    else:
        score = tl.dot(key, tl.trans(query), input_precision=PRECISION)
        gain = tl.dot(value, tl.trans(weight), input_precision=PRECISION)
    inside = tl.expand_dims(inside_tokens, 1 - AXIS) & tl.expand_dims(known, AXIS)
    level = tl.expand_dims(tl.load(lse + at, known, other=0.0), AXIS)
    output = tl.expand_dims(tl.load(outputs + at, known, other=0.0), AXIS)
    gradient = tl.expand_dims(tl.load(gradients + at_gradient, known, other=0.0), AXIS)
    d_gain = tl.where(inside, tl.exp2(score * (SCALE * LOG2E) - level), 0.0) * gradient
    d_score = d_gain * (gain - output) * SCALE
    return d_score.to(key.dtype), d_gain.to(key.dtype)


@triton.jit
def _label_gradient_kernel(
    keys, values, queries, weights, offsets, lse, outputs, gradients, d_queries, d_weights, n_documents, n_labels,
    HEADS: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr,
    SCALE: tl.constexpr, LOG2E: tl.constexpr, EPS: tl.constexpr, NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One program: the rows of a block of labels, one head, over all documents; no other program writes them."""
    labels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    head = tl.program_id(1)
    normalised, inverse = _normalised(
        _load_rows(queries, labels, n_labels, head, HEADS, E, BLOCK_E),
        E,
        EPS,
        NORMALISE,
    )
    query = normalised.to(keys.dtype.element_ty)
    weight = _load_rows(weights, labels, n_labels, head, HEADS, E, BLOCK_E).to(
        keys.dtype.element_ty
    )
    d_query = tl.zeros((BLOCK_C, BLOCK_E), tl.float32)
    d_weight = tl.zeros((BLOCK_C, BLOCK_E), tl.float32)
    for document in range(n_documents):
        start, end = tl.load(offsets + document), tl.load(offsets + document + 1)
        at_gradient = labels + tl.cast(document, tl.int64) * n_labels
        at = labels + (tl.cast(document, tl.int64) * HEADS + head) * n_labels
        for first in range(start, end, BLOCK_T):
            tokens = first + tl.arange(0, BLOCK_T)
            key = _load_rows(keys, tokens, end, head, HEADS, E, BLOCK_E)
            value = _load_rows(values, tokens, end, head, HEADS, E, BLOCK_E)
            d_score, d_gain = _block_gradients(
                query, weight, key, value, tokens < end, at, gradients, at_gradient, lse, outputs, labels, n_labels,
                SCALE, LOG2E, PRECISION, 1,
            )  # fmt: skip
            d_query += tl.dot(d_score, key, input_precision=PRECISION)
            d_weight += tl.dot(d_gain, value, input_precision=PRECISION)
    if NORMALISE:
        along = tl.sum(normalised * d_query, 1) / E
        d_query = inverse[:, None] * (d_query - normalised * along[:, None])
    _store_rows(d_queries, labels, n_labels, head, d_query, HEADS, E, BLOCK_E)
    _store_rows(d_weights, labels, n_labels, head, d_weight, HEADS, E, BLOCK_E)


@triton.jit
def _token_gradient_kernel(
    keys, values, queries, weights, offsets, lse, outputs, gradients, d_keys, d_values, n_labels, blocks, splits,
    HEADS: tl.constexpr, E: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_T: tl.constexpr,
    SCALE: tl.constexpr, LOG2E: tl.constexpr, EPS: tl.constexpr, NORMALISE: tl.constexpr, PRECISION: tl.constexpr,
    ATOMIC: tl.constexpr,
):  # fmt: skip
    """One program: a block of tokens of one document, one head, over the labels (or over every `splits`-th block)."""
    document = tl.program_id(0) // blocks
    head, split = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(offsets + document), tl.load(offsets + document + 1)
    first = start + (tl.program_id(0) % blocks) * BLOCK_T
    if first < end:
        tokens = first + tl.arange(0, BLOCK_T)
        key = _load_rows(keys, tokens, end, head, HEADS, E, BLOCK_E)
        value = _load_rows(values, tokens, end, head, HEADS, E, BLOCK_E)
        d_key = tl.zeros((BLOCK_T, BLOCK_E), tl.float32)
        d_value = tl.zeros((BLOCK_T, BLOCK_E), tl.float32)
        for first_label in range(split * BLOCK_C, n_labels, splits * BLOCK_C):
            labels = first_label + tl.arange(0, BLOCK_C)
            at_gradient = labels + tl.cast(document, tl.int64) * n_labels
            at = labels + (tl.cast(document, tl.int64) * HEADS + head) * n_labels
            rows = _load_rows(queries, labels, n_labels, head, HEADS, E, BLOCK_E)
            query, _ = _normalised(rows, E, EPS, NORMALISE)
            query = query.to(keys.dtype.element_ty)
            weight = _load_rows(weights, labels, n_labels, head, HEADS, E, BLOCK_E).to(
                keys.dtype.element_ty
            )
            d_score, d_gain = _block_gradients(
                query, weight, key, value, tokens < end, at, gradients, at_gradient, lse, outputs, labels, n_labels,
                SCALE, LOG2E, PRECISION, 0,
            )  # fmt: skip
            d_key += tl.dot(d_score, query, input_precision=PRECISION)
            d_value += tl.dot(d_gain, weight, input_precision=PRECISION)
        if ATOMIC:
            columns = tl.arange(0, BLOCK_E)
            inside = (tokens[:, None] < end) & (columns[None, :] < E)
            at_token = (
                tokens[:, None].to(tl.int64) * (HEADS * E) + head * E + columns[None, :]
            )
            tl.atomic_add(d_keys + at_token, d_key, inside)
            tl.atomic_add(d_values + at_token, d_value, inside)
        else:
            _store_rows(d_keys, tokens, end, head, d_key, HEADS, E, BLOCK_E)
            _store_rows(d_values, tokens, end, head, d_value, HEADS, E, BLOCK_E)
