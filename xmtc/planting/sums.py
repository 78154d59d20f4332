"""Sums over training documents, which closed forms are computed from."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum


class Sums(nn.Module):
    """Named sums that start at zero, as buffers of a module: `state_dict` holds them in the middle of a pass.

    A name that ends with `_L` or `_L` and one more axis is a sum of each label.
    """

    def __getattr__(self, name: str) -> Tensor:
        """Return a sum."""
        return super().__getattr__(name)  # pyright: ignore[reportReturnType]  # no module: those are declared

    def add_sum(self, name: str, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """Add a sum that starts at zero."""
        self.register_buffer(name, torch.zeros(shape, device=device, dtype=dtype))

    def all_reduce(self, *, labels: bool) -> None:
        """Add up the sums of all ranks, those of labels only if every rank holds all labels. Collective."""
        for name, value in self.named_buffers():
            if labels or not name.rpartition("_")[2].startswith("L"):
                value.copy_(all_reduce_sum(value))


def blocks(labels: int, size: int = 4096) -> Iterator[slice]:
    """Divide labels: float64 vectors of all of them would take several times the memory of the head."""
    return (slice(start, start + size) for start in range(0, labels, size))


ReadFor = Callable[[Sums], Iterable[Batch]]
"""Yields the batches that are not yet in these sums, of this rank's share of one pass over the training documents, on
the classifier's device. A batch must be in the sums when the next one is asked for."""
