"""Logits for some of the labels only: which ones, and what each stands for.

Suffixes: L labels, S drawn labels, P (document, label) pairs.
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
        importance_S: float32, how many labels each stands for as a negative: 1 for the batch's positives.
    """

    labels_S: Tensor
    columns_P: Tensor
    importance_S: Tensor


def draw_labels(labels_P: Tensor, labels: int, size: int, generator: torch.Generator) -> DrawnLabels:
    """The positives of a micro-batch, filled up to `size` with other labels drawn uniformly without replacement.

    Every label outside of the positives is drawn with the same probability m/R, m of R, and weighs R/m as a negative:
    a sum over the drawn labels, so weighted, has the sum over all labels as its expectation (Horvitz & Thompson 1952).

    Args:
        labels_P: int64, labels of the batch's pairs.
        labels: L.
        size: S; more where the positives alone are more.
        generator: on the device of `labels_P`.
    """
    device = labels_P.device
    positive_L = torch.zeros(labels, dtype=torch.bool, device=device)
    positive_L[labels_P] = True
    others = (~positive_L).nonzero().squeeze(1)
    drawn = others[
        torch.randperm(len(others), generator=generator, device=device)[: max(0, size - int(positive_L.sum()))]
    ]
    chosen_L = positive_L.clone()
    chosen_L[drawn] = True
    labels_S = chosen_L.nonzero().squeeze(1)
    stands_for = len(others) / max(1, len(drawn))
    importance_S = torch.where(positive_L[labels_S], 1.0, stands_for)
    return DrawnLabels(labels_S, torch.searchsorted(labels_S, labels_P), importance_S)
