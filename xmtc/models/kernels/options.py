"""Options of all label-attention kernels."""

from dataclasses import dataclass
from typing import Literal

Normaliser = Literal["softmax", "sparsemax", "entmax15"]
"""Converts attention scores to attention weights."""
Implementation = Literal["auto", "chunked", "sdpa", "triton"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How label attention is computed.

    Attributes:
        heads: H, divides the width of keys, values, queries and weights.
        normaliser: converts scores to attention; "triton" does not support the sparse ones.
        normalise_queries: divide each head's part of each query by its root mean square. The kernel does this, so there
            is no normalised copy of the table.
        implementation: "chunked" (blocks with a hand-written backward), "sdpa" (PyTorch's attention over label chunks,
            recomputed in backward), "triton" (fused, on a GPU), or "auto", the fastest one.
    """

    heads: int
    normaliser: Normaliser = "softmax"
    normalise_queries: bool = False
    implementation: Implementation = "auto"
