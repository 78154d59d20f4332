"""What a loss returns, and what it is given to compare against."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LossOutput:
    """A loss as a sum and what it sums over, so that the loop divides once, by the global count.

    Attributes:
        sum: scalar, differentiable; summed over documents (and over labels within a document).
        count: scalar float; the total weight of the documents in the sum.
    """

    sum: Tensor
    count: Tensor


@dataclass(frozen=True)
class Targets:
    """The labels of B documents, sparse. Suffixes: B documents, P (document, label) pairs, S shortlist.

    Attributes:
        rows_P: int64, index of the document in the batch.
        columns_P: int64, column of the positive in the logits: the label id, or with a shortlist the position in it.
        weight_B: float32, 1 for a document, 0 for a filler that only evens out the ranks' micro-batches.
    """

    rows_P: Tensor
    columns_P: Tensor
    weight_B: Tensor

    def dense(self, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Multi-hot (B, columns): for reference implementations and small label sets."""
        dense = torch.zeros(len(self.weight_B), columns, dtype=dtype, device=self.weight_B.device)
        dense[self.rows_P, self.columns_P] = 1
        return dense
