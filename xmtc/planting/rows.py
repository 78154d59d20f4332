"""Planted classifier rows: what every method computes, and how rows and biases are set from it.

Suffixes: L labels of this worker, P width of a row.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from xmtc.models.heads.base import Head
from xmtc.training.label_shard import LabelShard

GAP = 5.0
"""Difference between the mean logits of positive and negative documents for the median label."""
RIDGE = 0.3
"""Penalty as a share of the mean variance of a dimension. From 0.1 to 1, a trained flat head is equally good."""


@dataclass(frozen=True)
class Responses:
    """Rows of labels, and what they score on average.

    Attributes:
        rows_LP: w.
        positive_L: w[l]·μ⁺[l], with the mean over the label's documents.
        negative_L: w[l]·μ⁻[l], with the mean over other documents.
    """

    rows_LP: Tensor
    positive_L: Tensor
    negative_L: Tensor


def set_rows(
    head: Head,
    responses: Responses,
    prior_L: Tensor,
    shard: LabelShard,
    most: float = math.inf,
) -> None:
    """Set rows times a factor, and biases such that a negative scores the label's prior. Collective.

    The factor makes the median gap `GAP`, but is at most `most`.

    Args:
        head: its rows and biases are changed in place.
        responses: rows and their mean scores.
        prior_L: log-odds in train of this worker's labels.
        shard: this worker's label rows.
        most: largest factor.
    """
    gap_L = shard.of_all(responses.positive_L - responses.negative_L)
    wider_L = gap_L[gap_L > 0]
    factor = min(GAP / float(wider_L.median()), most) if len(wider_L) else 0.0
    head.weights.copy_(responses.rows_LP * factor)
    head.bias.copy_(prior_L - responses.negative_L * factor)
