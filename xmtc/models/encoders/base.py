"""What an encoder is: the Hugging Face backbones and the lightweight encoders share this."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class ShowsAttention(Protocol):
    """An encoder that can say where its top layer looks."""

    def attention_received(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        """Share (W, U) of the attention that each token gets, by kind of attention."""
        ...
