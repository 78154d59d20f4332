"""The inputs and outputs of losses. Suffixes: B documents, C columns (labels), P (document, label) pairs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

_UNJUDGED_LOGIT = -30.0


class LossOutput(NamedTuple):
    """A sum and the number of documents in it, so that the loop divides once, by the global count.

    A tuple, because DeepSpeed finds tensors only in tuples, lists and dictionaries.

    Attributes:
        sum: scalar, differentiable; summed over documents (and over labels within a document).
        count: scalar float; the total weight of the documents in the sum.
    """

    sum: Tensor
    count: Tensor


@dataclass(frozen=True)
class OtherLabels:
    """The information that a loss needs about labels of other workers.

    Attributes:
        total: labels of all workers.
        among_best: of scores (B, K), −∞ for none, and a count: which are among so many highest of a document over all
            workers. Collective.
    """

    total: int
    among_best: Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Targets:
    """The labels of B documents, sparse.

    Attributes:
        rows_P: int64, index of the document in the batch.
        columns_P: int64, column of the positive in the logits: the label id, or its position among sampled labels.
        weight_B: float32, 1 for a document, 0 for a filler that only evens out the ranks' micro-batches.
        max_positives: upper bound of a document's positives, if known on the host; reading it from `rows_P` would wait
            for the device.
        others: set if the columns are one worker's share of the labels.
        unjudged_rows_J, unjudged_columns_J: int64, document and column of each logit whose label nobody judged, in any
            order; None if there are none.
        original: the targets on the CPU from which these were copied, or None for those targets themselves.
    """

    rows_P: Tensor
    columns_P: Tensor
    weight_B: Tensor
    max_positives: int | None = None
    others: OtherLabels | None = None
    unjudged_rows_J: Tensor | None = None
    unjudged_columns_J: Tensor | None = None
    original: "Targets | None" = None

    @property
    def on_host(self) -> "Targets":
        """The targets on the CPU: reading a value there does not wait for a device."""
        return self.original or self

    def to(self, device: torch.device) -> "Targets":
        """Copy the targets to `device`, without waiting for it."""
        moved = replace(
            self,
            rows_P=self.rows_P.to(device, non_blocking=True),
            columns_P=self.columns_P.to(device, non_blocking=True),
            weight_B=self.weight_B.to(device, non_blocking=True),
            original=self.on_host,
        )
        if self.unjudged_rows_J is None or self.unjudged_columns_J is None:
            return moved
        return replace(
            moved,
            unjudged_rows_J=self.unjudged_rows_J.to(device, non_blocking=True),
            unjudged_columns_J=self.unjudged_columns_J.to(device, non_blocking=True),
        )


def without_unjudged(logits_BC: Tensor, targets: Targets) -> Tensor:
    """Leave labels that nobody judged out of any loss: such logits become constants so low that they add nothing.

    A negative at −30 costs less than 1e-12 in a binary loss, and has as little weight in a softmax or a ranking.
    """
    if targets.unjudged_rows_J is None or targets.unjudged_columns_J is None:
        return logits_BC
    mask_BC = torch.zeros_like(logits_BC, dtype=torch.bool)
    mask_BC[targets.unjudged_rows_J, targets.unjudged_columns_J] = True
    return logits_BC.masked_fill(mask_BC, _UNJUDGED_LOGIT)


class Loss(Protocol):
    """A loss that trains a classifier."""

    def __call__(
        self,
        logits_BC: Tensor,
        targets: Targets,
        importance_BC: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> LossOutput:
        """Compute the summed loss, in fp32 (in fp64 for fp64 logits).

        Args:
            logits_BC: one column per label, or per sampled label.
            targets: the positives, each pair once.
            importance_BC: how many labels each sampled column stands for as a negative; 1 for all where None. Only
                losses whose settings accept `sampled_labels` are given one.
            generator: for random choices, on the device of the logits; PyTorch's own where None.
        """
        ...


def compute_dtype(logits: Tensor) -> torch.dtype:
    """Return the dtype in which losses compute: fp32, or fp64 for fp64 logits."""
    return torch.promote_types(logits.dtype, torch.float32)
