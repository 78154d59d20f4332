"""What a head is: from a document's hidden states to one logit a label."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor, nn


class Head(Protocol):
    """Suffixes: B documents, T tokens, D backbone width, L labels, S shortlisted labels."""

    def __call__(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Logits (B, L), or (B, S) for the label ids in `shortlist`, (S,) or (B, S)."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of nn.Module, which every head is."""
        ...
