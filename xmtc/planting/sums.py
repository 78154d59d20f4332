"""Sums over training documents, which closed forms are computed from.

Suffixes: B documents, L labels of this worker, S a block of them, P width of the vectors.
"""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum
from xmtc.training.label_shard import LabelShard

_LABELS_AT_ONCE = 4096


class Sums(nn.Module):
    """Named sums that start at zero, as buffers of a module: `state_dict` holds them in the middle of a pass.

    A name that ends with `_L`, or with `_L` and one more axis, is a sum of each label.
    """

    def __getattr__(self, name: str) -> Tensor:
        """Return a sum."""
        return super().__getattr__(name)  # pyright: ignore[reportReturnType]  # no module: those are declared

    def add_sum(
        self,
        name: str,
        *shape: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Add a sum that starts at zero."""
        self.register_buffer(name, torch.zeros(shape, device=device, dtype=dtype))

    def all_reduce(self, *, labels: bool) -> None:
        """Add up the sums of all ranks. Collective.

        Args:
            labels: whether to add up the sums of labels too, because every rank holds all labels. A rank that holds a
                share of them has seen all documents of its labels already.
        """
        for name, value in self.named_buffers():
            axes = name.rpartition("_")[2]
            of_labels = axes.startswith("L")
            if labels or not of_labels:
                value.copy_(all_reduce_sum(value))


class VectorSums(Sums):
    """Sums of one vector per document, over all workers' documents: P² float64 and L·P float32 on the device.

    Attributes:
        products_PP: Σ xxᵀ over documents.
        vector_P: Σ x over documents.
        documents: number of documents.
        by_label_LP: Σ x over the documents of each label.
        counts_L: number of documents of each label.
    """

    def __init__(self, labels: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.add_sum("products_PP", width, width, dtype=torch.float64, device=device)
        self.add_sum("vector_P", width, dtype=torch.float64, device=device)
        self.add_sum("documents", dtype=torch.float64, device=device)
        self.add_sum("by_label_LP", labels, width, device=device)
        self.add_sum("counts_L", labels, device=device)

    def add(self, vectors_BP: Tensor, batch: Batch, shard: LabelShard) -> None:
        """Add this worker's documents, and for its labels those of all workers. Collective."""
        vectors_BP = vectors_BP.float() * batch.weight_B.unsqueeze(1)
        self.products_PP.add_((vectors_BP.T @ vectors_BP).double())
        self.vector_P.add_(vectors_BP.double().sum(0))
        self.documents.add_(batch.weight_B.double().sum())
        documents = shard.gather((vectors_BP,), batch)
        (vectors_GP,) = documents.read
        targets = documents.targets
        self.by_label_LP.index_add_(0, targets.columns_P, vectors_GP[targets.rows_P])
        self.counts_L.index_add_(0, targets.columns_P, targets.weight_B[targets.rows_P])

    def mean(self) -> Tensor:
        """Compute the mean vector, float64 (P,)."""
        return self.vector_P / self.documents.clamp(min=1)

    def covariance(self) -> Tensor:
        """Compute the covariance of the vectors, float64 (P, P)."""
        mean_P = self.mean()
        return self.products_PP / self.documents.clamp(min=1) - torch.outer(
            mean_P, mean_P
        )

    def centred(self, labels: slice = slice(None)) -> Tensor:
        """Compute the sums of centred vectors over the documents of each of these labels, float64 (S, P)."""
        counts_S1 = self.counts_L[labels].double().unsqueeze(1)
        return self.by_label_LP[labels].double() - counts_S1 * self.mean()


def blocks(labels: int, size: int = _LABELS_AT_ONCE) -> Iterator[slice]:
    """Divide labels: float64 vectors of all of them would take several times the memory of the head."""
    return (slice(start, start + size) for start in range(0, labels, size))


ReadFor = Callable[[Sums], Iterable[Batch]]
"""Yields the batches that are not yet in these sums, of this rank's share of one pass over the training documents, on
the classifier's device. A batch must be in the sums when the next one is asked for."""
