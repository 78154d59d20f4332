"""What all label-attention kernels are told apart from their tensors."""

from dataclasses import dataclass
from typing import Literal

Normaliser = Literal["softmax", "sparsemax", "entmax15"]
"""From attention scores to attention weights."""
Implementation = Literal["auto", "reference", "chunked", "sdpa", "triton"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How label attention is computed.

    Attributes:
        heads: H, divides the width of all four of keys, values, queries and weights.
        normaliser: from scores to attention; the sparse ones with all implementations but "triton".
        normalise_queries: divide each head's part of each query by its root mean square, inside the kernel, so that no
            normalised copy of the table is ever made.
        implementation: "reference" (plain formula), "chunked" (blocks with a hand-written backward), "sdpa" (PyTorch's
            attention over label chunks, recomputed in backward), "triton" (fused, on a GPU), or "auto".
        label_chunk: labels a chunk, for "chunked" and "sdpa"; None: chosen from a memory budget.
        deterministic: the same gradients bit for bit in every run, for "triton", which may else add in any order; the
            others always are. Also on where `torch.use_deterministic_algorithms` is.
    """

    heads: int
    normaliser: Normaliser = "softmax"
    normalise_queries: bool = False
    implementation: Implementation = "auto"
    label_chunk: int | None = None
    deterministic: bool = False
