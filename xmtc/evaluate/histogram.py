"""Area under the ROC curve from streamed scores: all scores count, though none is kept.

Shapes: B documents of a block, L labels, H bins.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from xmtc.distributed.collectives import all_reduce_sum

_BLOCK = 4096  # labels whose areas are computed at a time


@dataclass(frozen=True)
class Auc:
    """Areas under ROC curves with how far they may be off.

    Attributes:
        micro: of all (document, label) pairs together.
        macro: mean over labels that have both gold and other documents.
        micro_error: greatest possible distance of `micro` from the exact value.
        macro_error: the same for `macro`.
    """

    micro: float
    macro: float
    micro_error: float
    macro_error: float


class ScoreHistogram:
    """Counts of logits per label and bin, for gold and for all pairs; memory is 8·L·H bytes whatever the documents.

    Bins are 1/16 wide over logits −16…16 (H = 512), the outer ones open. Pairs of a gold and another document whose
    logits share a bin count half, as ties do, so the area is exact up to half the share of such pairs; `auc` computes
    this bound along with the area.

    Args:
        labels: L.
        device: where counting is done; that of the logits.
        limit: logits beyond ± this fall into the outer bins.
        bins: H.
    """

    def __init__(self, labels: int, *, device: torch.device | str = "cpu", limit: float = 16.0, bins: int = 512):
        self.limit, self.bins = limit, bins
        self.all_LH = torch.zeros(labels, bins, dtype=torch.int32, device=device)
        self.gold_LH = torch.zeros(labels, bins, dtype=torch.int32, device=device)

    def update(self, logits_BL: Tensor, gold: sparse.csr_array) -> None:
        """Count a block.

        Args:
            logits_BL: any floating type, no gradient needed.
            gold: boolean (B, L), the same documents in the same order.
        """
        scaled_BL = (logits_BL.detach().float().clamp(-self.limit, self.limit) + self.limit) * (
            self.bins / (2 * self.limit)
        )
        cells_BL = scaled_BL.long().clamp_(max=self.bins - 1)
        cells_BL += torch.arange(cells_BL.shape[1], device=cells_BL.device) * self.bins
        rows, labels = (torch.from_numpy(index.astype("int64")).to(cells_BL.device) for index in gold.nonzero())
        self._count(self.all_LH, cells_BL.reshape(-1))
        self._count(self.gold_LH, cells_BL[rows, labels])

    @staticmethod
    def _count(table_LH: Tensor, cells: Tensor) -> None:
        ones = torch.ones(1, dtype=table_LH.dtype, device=table_LH.device).expand(len(cells))
        table_LH.view(-1).index_add_(0, cells, ones)

    def sum_over_ranks(self) -> None:
        """Add what all ranks have counted, on every rank; each document must have been counted by one of them."""
        self.all_LH, self.gold_LH = all_reduce_sum(self.all_LH), all_reduce_sum(self.gold_LH)

    def auc(self) -> Auc:
        """Compute the areas of everything counted so far; 0.5 with an error of 0.5 if no label has both kinds."""
        found = [_areas(*counts) for counts in self._blocks()]
        area_L, error_L = (torch.cat(parts) for parts in zip(*found, strict=True))
        defined_L = ~area_L.isnan()
        gold_1H, all_1H = (table_LH.sum(0, keepdim=True).double().cpu() for table_LH in (self.gold_LH, self.all_LH))
        area_1, error_1 = _areas(gold_1H, all_1H - gold_1H)
        if not defined_L.any():
            return Auc(0.5, 0.5, 0.5, 0.5)
        return Auc(
            float(area_1[0]), float(area_L[defined_L].mean()), float(error_1[0]), float(error_L[defined_L].mean())
        )

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield counts of gold and of other documents for some labels at a time, float64 on the CPU."""
        for gold_CH, all_CH in zip(self.gold_LH.split(_BLOCK), self.all_LH.split(_BLOCK), strict=True):
            gold_CH = gold_CH.double().cpu()
            yield gold_CH, all_CH.double().cpu() - gold_CH


def _areas(gold_LH: Tensor, other_LH: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the area and its greatest error per row; NaN without pairs."""
    pairs_L = gold_LH.sum(1) * other_LH.sum(1)
    below_LH = other_LH.cumsum(1) - other_LH
    tied_L = (gold_LH * other_LH).sum(1) / 2
    return ((gold_LH * below_LH).sum(1) + tied_L) / pairs_L, tied_L / pairs_L
