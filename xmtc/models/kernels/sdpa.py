"""Label attention over chunks of labels, recomputed in the backward pass to save memory.

Only the (B, L) logits and the gradients of the inputs are as large as the label set. Scores, attention and per-label
contexts exist for one chunk of labels at a time. This is the default on a GPU without Triton.

Suffixes: B documents, T tokens, L labels, C labels of a chunk, D head width d, H heads, E width of a head (d/H).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from xmtc.models.kernels.options import Options
from xmtc.models.kernels.reference import at_least_fp32, normalise_rows, reference_logits, split_heads

# (keys_BTD, values_BTD, mask_BT, queries_CD, weights_CD) -> logits_BC
ChunkFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

# Memory for the temporaries of a chunk. Larger is not faster, see docs/benchmarks/label_attention.md.
CHUNK_BYTES = 32 * 2**20

# What forward may keep of contexts, so that backward need not compute small label sets twice. A constant, so that
# memory still does not grow with the label set.
KEPT_BYTES = 32 * 2**20


def attend(
    keys_BTD: Tensor, values_BTD: Tensor, mask_BT: Tensor, queries_LD: Tensor, weights_LD: Tensor, *, heads: int
) -> Tensor:
    """Compute logits (B, L) without bias through PyTorch's scaled-dot-product attention, all labels at once.

    Queries and weights may also be (B, L, D): then each document has its own labels, as with a shortlist.
    """
    has_tokens_B1 = mask_BT.any(-1, keepdim=True)
    # A row without tokens would give NaN. It attends to padding instead, and the result is dropped.
    mask = None if bool(mask_BT.all()) else (mask_BT | ~has_tokens_B1)[:, None, None, :]
    queries = split_heads(queries_LD, heads)
    contexts_BHLE = F.scaled_dot_product_attention(
        queries.expand(len(keys_BTD), *queries.shape[-3:]),
        split_heads(keys_BTD, heads),
        split_heads(values_BTD, heads),
        attn_mask=mask,
    )
    return (contexts_BHLE * split_heads(weights_LD, heads)).sum((-3, -1)) * has_tokens_B1


def automatic_chunk(documents: int, tokens: int, width: int, heads: int, *, stores_scores: bool) -> int:
    """Choose the labels per chunk (at least 64) so that temporaries of forward and backward stay near `CHUNK_BYTES`."""
    floats_a_label = documents * (6 * width + (4 * heads * tokens if stores_scores else 0))
    return max(64, CHUNK_BYTES // (4 * floats_a_label))


class _Plan(NamedTuple):
    """How a label set is processed: `chunk` labels at a time; the first `kept` labels are kept for backward."""

    function: ChunkFunction
    chunk: int
    kept: int

    def parts(self, labels: int) -> list[slice]:
        return [slice(start, start + self.chunk) for start in range(0, labels, self.chunk)]

    def run(self, keys: Tensor, values: Tensor, mask: Tensor, tables: list[Tensor]) -> "_Graph":
        """Compute one chunk with a separate graph, whose leaves are the inputs."""
        with torch.enable_grad(), torch.autocast(keys.device.type, enabled=False):
            leaves = [x.detach().requires_grad_() for x in (keys, values, *tables)]
            keys, values, queries, weights = leaves
            return _Graph(leaves, self.function(keys, values, mask, queries, weights))


class _Graph(NamedTuple):
    leaves: list[Tensor]
    logits_BC: Tensor

    def gradients(self, gradient_BC: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(self.logits_BC, self.leaves, gradient_BC.to(self.logits_BC.dtype))


class _Chunks(torch.autograd.Function):
    """Computes the logits chunk by chunk. The backward pass recomputes chunks that were not kept."""

    @staticmethod
    def forward(
        ctx: Any, plan: _Plan, mask: Tensor, keys: Tensor, values: Tensor, queries: Tensor, weights: Tensor
    ) -> Tensor:
        ctx.plan, ctx.graphs = plan, {}
        ctx.save_for_backward(mask, keys, values, queries, weights)
        logits_BL = at_least_fp32(keys.new_empty(0)).new_empty(len(keys), len(queries))
        for part in plan.parts(len(queries)):
            graph = plan.run(keys, values, mask, [queries[part], weights[part]])
            logits_BL[:, part] = graph.logits_BC.detach()
            if any(ctx.needs_input_grad) and part.stop <= plan.kept:
                ctx.graphs[part.start] = graph
        return logits_BL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BL: Tensor) -> tuple[Tensor | None, ...]:
        mask, keys, values, queries, weights = ctx.saved_tensors
        sums = [torch.zeros_like(at_least_fp32(x)) for x in (keys, values)]
        rows = [torch.empty_like(x) for x in (queries, weights)]
        for part in ctx.plan.parts(len(queries)):
            graph = ctx.graphs.pop(part.start, None)
            if graph is None:
                graph = ctx.plan.run(keys, values, mask, [queries[part], weights[part]])
            d_keys, d_values, *d_rows = graph.gradients(gradient_BL[:, part])
            sums[0] += d_keys
            sums[1] += d_values
            rows[0][part], rows[1][part] = d_rows
        return None, None, sums[0].to(keys.dtype), sums[1].to(values.dtype), *rows


def _in_key_dtype(function: Callable[..., Tensor], heads: int, normalise_queries: bool, *tensors: Tensor) -> Tensor:
    """Cast a chunk of the tables, never a whole table, to the dtype of the keys (bf16 under autocast)."""
    keys, values, mask, queries, weights = tensors
    if normalise_queries:
        queries = normalise_rows(queries, heads)
    return function(keys, values, mask, queries.to(keys.dtype), weights.to(keys.dtype), heads=heads)


def sdpa_logits(
    keys_BTD: Tensor, values_BTD: Tensor, mask_BT: Tensor, queries_LD: Tensor, weights_LD: Tensor, options: Options
) -> Tensor:
    """Compute logits (B, L) without bias, in fp32 (or fp64), chunk by chunk; see `xmtc.models.kernels.label_attention`.

    Softmax goes through scaled-dot-product attention; the sparse normalisers go through the plain formula, whose
    scores then exist for one chunk only.
    """
    softmax = options.normaliser == "softmax"
    function = attend if softmax else partial(reference_logits, normaliser=options.normaliser)
    chunk = options.label_chunk
    if chunk is None:
        documents, tokens, width = keys_BTD.shape
        chunk = automatic_chunk(documents, tokens, width, options.heads, stores_scores=not softmax)
    kept = KEPT_BYTES // (len(keys_BTD) * keys_BTD.shape[-1] * keys_BTD.element_size()) if softmax else 0
    plan = _Plan(partial(_in_key_dtype, function, options.heads, options.normalise_queries), chunk, kept)
    tensors = (keys_BTD, values_BTD, queries_LD, weights_LD)
    return _Chunks.apply(plan, mask_BT, *tensors)  # pyright: ignore[reportReturnType]
