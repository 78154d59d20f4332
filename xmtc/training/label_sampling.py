"""Logits for some of the labels only: which ones, and what each stands for. Nothing here is as large as the label set.

Suffixes: L labels, S labels of a micro-batch, C those of them that are certain, P (document, label) pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DrawnLabels:
    """Labels of a micro-batch.

    Attributes:
        labels_S: int64, ascending, each once.
        columns_P: int64, where in `labels_S` each pair's label is.
        importance_S: float32, how many labels each stands for as a negative: 1 for certain labels.
    """

    labels_S: Tensor
    columns_P: Tensor
    importance_S: Tensor


def draw_labels(
    labels_P: Tensor, certain_C: Tensor, labels: int, uniform: int, generator: torch.Generator
) -> DrawnLabels:
    """Certain labels, and `uniform` others drawn without replacement that stand for all others.

    Every label that is not certain is drawn with the same probability m/R, m of R, and weighs R/m as a negative: a sum
    over the drawn labels, so weighted, has the sum over all labels as its expectation (Horvitz & Thompson 1952).

    Args:
        labels_P: int64, labels of the batch's pairs.
        certain_C: int64, ascending, each once: those of `labels_P`, and others worth their logits, such as mined ones.
        labels: L.
        uniform: m; as many as there are, where these are fewer.
        generator: on the device of `labels_P`.
    """
    others = labels - len(certain_C)
    drawn = _complement(certain_C, distinct(uniform, others, generator))
    stands_for = others / max(1, len(drawn))
    labels_S, order_S = torch.cat([certain_C, drawn]).sort()
    importance_S = torch.where(order_S < len(certain_C), 1.0, stands_for)
    return DrawnLabels(labels_S, torch.searchsorted(labels_S, labels_P), importance_S)


def distinct(count: int, below: int, generator: torch.Generator) -> Tensor:
    """`count` of the numbers 0 … below − 1, or all of fewer, drawn uniformly at a cost that depends on `count`."""
    device = generator.device
    if 2 * count >= below:
        return torch.randperm(below, generator=generator, device=device)[:count]
    found = torch.empty(0, dtype=torch.int64, device=device)
    while len(found) < count:
        more = torch.randint(below, (2 * count,), generator=generator, device=device)
        found = torch.cat([found, more]).unique()
    # whatever its size, the set found is uniform among those of its size; so is a uniform part of it
    return found[torch.randperm(len(found), generator=generator, device=device)[:count]]


def _complement(certain_C: Tensor, ranks: Tensor) -> Tensor:
    """The labels that have these ranks among those that are not certain."""
    before_C = certain_C - torch.arange(len(certain_C), device=certain_C.device)
    return ranks + torch.searchsorted(before_C, ranks, right=True)
