"""What an encoder is: the Hugging Face backbones and the lightweight encoders share this."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch import Tensor, nn


class Encoder(Protocol):
    """Suffixes: W windows, U window tokens, D width.

    Attributes:
        width: D.
        window: most tokens of one window, special tokens included.
    """

    width: int
    window: int
    training: bool

    def __call__(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D) for int64 ids and a bool mask that is False on padding."""
        ...

    def layers(self) -> Sequence[nn.Module]:
        """Blocks from the bottom (embedding) to the top, for gradual unfreezing and per-layer learning rates."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of nn.Module, which every encoder is."""
        ...

    def eval(self) -> Any:
        """As of nn.Module, which every encoder is."""
        ...
