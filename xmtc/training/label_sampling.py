"""Choose the labels whose logits a micro-batch computes, and their weights. No tensor is as large as the label set.

Suffixes: L labels, S labels of a micro-batch, C certain labels (always included), P (document, label) pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DrawnLabels:
    """Labels of a micro-batch.

    Attributes:
        labels_S: int64, ascending, distinct.
        columns_P: int64, position of each pair's label in `labels_S`.
        importance_S: float32, number of labels that each represents as a negative; 1 for certain labels.
    """

    labels_S: Tensor
    columns_P: Tensor
    importance_S: Tensor


def draw_labels(
    labels_P: Tensor, certain_C: Tensor, labels: int, uniform: int, generator: torch.Generator
) -> DrawnLabels:
    """Take all certain labels, and draw `uniform` others without replacement that represent the rest.

    m of the R labels that are not certain are drawn, each with probability m/R. As a negative, a drawn label has weight
    R/m. The weighted sum over the drawn labels is an unbiased estimate of the sum over all labels (Horvitz & Thompson
    1952).

    Args:
        labels_P: int64, labels of the batch's pairs.
        certain_C: int64, ascending, distinct: the labels in `labels_P`, and others to include, such as mined ones.
        labels: L.
        uniform: m; capped at R.
        generator: random generator on the device of `labels_P`.
    """
    others = labels - len(certain_C)
    drawn = _complement(certain_C, distinct(uniform, others, generator))
    stands_for = others / max(1, len(drawn))
    labels_S, order_S = torch.cat([certain_C, drawn]).sort()
    importance_S = torch.where(order_S < len(certain_C), 1.0, stands_for)
    return DrawnLabels(labels_S, torch.searchsorted(labels_S, labels_P), importance_S)


def distinct(count: int, below: int, generator: torch.Generator) -> Tensor:
    """Draw at most `count` numbers from 0 … below − 1 uniformly, at a cost that depends only on `count`."""
    device = generator.device
    if 2 * count >= below:
        return torch.randperm(below, generator=generator, device=device)[:count]
    found = torch.empty(0, dtype=torch.int64, device=device)
    while len(found) < count:
        more = torch.randint(below, (2 * count,), generator=generator, device=device)
        found = torch.cat([found, more]).unique()
    # a set found here is uniform among the sets of its size, and so is a uniform subset of it
    return found[torch.randperm(len(found), generator=generator, device=device)[:count]]


def _complement(certain_C: Tensor, ranks: Tensor) -> Tensor:
    """Find the labels that have these ranks among those that are not certain."""
    before_C = certain_C - torch.arange(len(certain_C), device=certain_C.device)
    return ranks + torch.searchsorted(before_C, ranks, right=True)
