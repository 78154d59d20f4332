"""Area under the ROC curve from streamed scores: all scores count, though none is kept.

Shapes: B documents of a block, L labels, H bins.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from scipy import sparse
from torch import Tensor

from xmtc.distributed.collectives import all_reduce_sum
from xmtc.models.calibration import Calibration

_LIMIT = 16.0
"""Logits beyond ± the limit fall into the outer bins."""
_BINS = 512
_BLOCK = 4096
"""Labels whose areas are computed at a time."""


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

    Attributes:
        calibration: of the logits, if it was fitted after they were counted; the areas are those of calibrated ones.
    """

    def __init__(self, labels: int, *, device: torch.device | str = "cpu"):
        self.calibration: Calibration | None = None
        self.all_LH = torch.zeros(labels, _BINS, dtype=torch.int32, device=device)
        self.gold_LH = torch.zeros_like(self.all_LH)

    def update(
        self,
        logits_BL: Tensor,
        gold: sparse.csr_array,
        unjudged: sparse.csr_array | None = None,
    ) -> None:
        """Count a block.

        Args:
            logits_BL: any floating type, no gradient needed.
            gold: boolean (B, L), the same documents in the same order.
            unjudged: boolean (B, L), pairs that nobody judged, which are not counted; None if there are none.
        """
        device = logits_BL.device
        limited_BL = logits_BL.detach().float().clamp(-_LIMIT, _LIMIT)
        bins_BL = (
            ((limited_BL + _LIMIT) * (_BINS / (2 * _LIMIT)))
            .long()
            .clamp_(max=_BINS - 1)
        )
        label_ids_L = torch.arange(bins_BL.shape[1], device=device)
        cells_BL = bins_BL.add_(label_ids_L * _BINS)
        gold_rows, gold_labels = gold.nonzero()
        rows_P = torch.from_numpy(gold_rows.astype("int64")).to(device)
        labels_P = torch.from_numpy(gold_labels.astype("int64")).to(device)
        self._count(self.all_LH, cells_BL.reshape(-1))
        self._count(self.gold_LH, cells_BL[rows_P, labels_P])
        if unjudged is not None:
            unjudged_rows, unjudged_labels = unjudged.nonzero()
            rows_J = torch.from_numpy(unjudged_rows.astype("int64")).to(device)
            labels_J = torch.from_numpy(unjudged_labels.astype("int64")).to(device)
            self._count(self.all_LH, cells_BL[rows_J, labels_J], by=-1)

    @staticmethod
    def _count(table_LH: Tensor, cells: Tensor, by: int = 1) -> None:
        ones = by * torch.ones(1, dtype=table_LH.dtype, device=table_LH.device).expand(
            len(cells)
        )
        table_LH.view(-1).index_add_(0, cells, ones)

    def sum_over_ranks(self) -> None:
        """Add what all ranks have counted, on every rank; each document must have been counted by one of them."""
        self.all_LH = all_reduce_sum(self.all_LH)
        self.gold_LH = all_reduce_sum(self.gold_LH)

    def auc(self) -> Auc:
        """Compute the areas of everything counted so far; 0.5 with an error of 0.5 if no label has both kinds."""
        maps_L2 = torch.tensor([[1.0, 0.0]]).expand(len(self.all_LH), 2)
        if self.calibration is not None:
            maps_L2 = torch.stack(
                [self.calibration.scale_L, self.calibration.offset_L], 1
            )
        maps_G2, group_L = maps_L2.double().unique(dim=0, return_inverse=True)
        gold_GH = torch.zeros(len(maps_G2), _BINS, dtype=torch.float64)
        other_GH = torch.zeros_like(gold_GH)
        area_parts = []
        error_parts = []
        for group_C, (gold_CH, other_CH) in zip(
            group_L.split(_BLOCK), self._blocks(), strict=True
        ):
            area_C, error_C = _areas(gold_CH, other_CH)
            area_parts.append(area_C)
            error_parts.append(error_C)
            gold_GH.index_add_(0, group_C, gold_CH)
            other_GH.index_add_(0, group_C, other_CH)
        area_L = torch.cat(area_parts)
        defined_L = ~area_L.isnan()
        if not defined_L.any():
            return Auc(0.5, 0.5, 0.5, 0.5)
        micro, micro_error = self._micro(gold_GH, other_GH, maps_G2)
        macro = float(area_L[defined_L].mean())
        macro_error = float(torch.cat(error_parts)[defined_L].mean())
        return Auc(micro, macro, micro_error, macro_error)

    def _micro(
        self, gold_GH: Tensor, other_GH: Tensor, maps_G2: Tensor
    ) -> tuple[float, float]:
        """Compute the area of all pairs, and its greatest error, of groups of labels with one calibration each.

        A bin reaches from edge to edge. Pairs whose bins do not overlap are certain, and others may go either way.
        """
        edges = torch.linspace(-_LIMIT, _LIMIT, _BINS + 1, dtype=torch.float64)
        edges[0], edges[-1] = -torch.inf, torch.inf
        scale_G1 = maps_G2[:, :1]
        offset_G1 = maps_G2[:, 1:]
        low_GH = scale_G1 * edges[:-1] + offset_G1
        high_GH = scale_G1 * edges[1:] + offset_G1
        certainly_below_GH = _no_more(other_GH, high_GH, low_GH)
        certainly_above_GH = _no_more(other_GH, -low_GH, -high_GH)
        pairs = gold_GH.sum() * other_GH.sum()
        won = float((gold_GH * certainly_below_GH).sum() / pairs)
        lost = float((gold_GH * certainly_above_GH).sum() / pairs)
        return (won + 1 - lost) / 2, (1 - won - lost) / 2

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield counts of gold and of other documents for some labels at a time, float64 on the CPU."""
        for gold_CH, all_CH in zip(
            self.gold_LH.split(_BLOCK), self.all_LH.split(_BLOCK), strict=True
        ):
            gold_CH = gold_CH.double().cpu()
            other_CH = all_CH.double().cpu() - gold_CH
            yield gold_CH, other_CH


def _no_more(counts_GH: Tensor, values_GH: Tensor, bounds_GH: Tensor) -> Tensor:
    """Count what has a value of at most each bound, (G, H)."""
    values, order = values_GH.flatten().sort()
    sums = torch.cat([torch.zeros(1), counts_GH.flatten()[order].cumsum(0)])
    return sums[torch.searchsorted(values, bounds_GH.contiguous(), right=True)]


def _areas(gold_LH: Tensor, other_LH: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the area and its greatest error per row; NaN without pairs."""
    pairs_L = gold_LH.sum(1) * other_LH.sum(1)
    below_LH = other_LH.cumsum(1) - other_LH
    tied_L = (gold_LH * other_LH).sum(1) / 2
    won_L = (gold_LH * below_LH).sum(1)
    return (won_L + tied_L) / pairs_L, tied_L / pairs_L
