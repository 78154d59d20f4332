"""The flat head: one vector per document and one classifier row per label, for comparison and millions of labels.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, D backbone width.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.dropout import Dropout
from xmtc.models.heads.base import Head
from xmtc.models.heads.config import FlatConfig, TwoTowerConfig
from xmtc.models.kernels.shortlist import PADDED_LOGIT, gather_rows
from xmtc.models.poolings.pooling import Pooling

CHUNK = 8192  # label rows that are cast to another dtype at a time


class FlatHead(Head):
    """logit[b,l] = ⟨weights[l], pool(hidden[b])⟩ + bias[l].

    Attributes:
        weights: (L, P), one classifier row per label; P is the width of the pooling's vectors.
        bias: (L,) float32.
    """

    index_is_exact = True

    def __init__(self, settings: FlatConfig | TwoTowerConfig, pooling: Pooling, labels: int) -> None:
        super().__init__(settings)
        self.pooling = pooling
        self.dropout = Dropout(settings.dropout)
        width = pooling.width
        rows = torch.empty(labels, width, dtype=getattr(torch, settings.row_dtype))
        self.weights = nn.Parameter(rows.normal_(std=width**-0.5))
        self.bias = nn.Parameter(torch.zeros(labels))

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        return self.score(self.read(hidden_BTD, mask_BT), mask_BT, shortlist)

    @override
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """The pooled vector, after dropout."""
        return (self.dropout(self.pooling(hidden_BTD, mask_BT)),)

    @override
    def score(self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        (pooled_BP,) = read
        if shortlist is None and self.training and self.pooling.members > 1:
            return self._logits_of_members(pooled_BP)
        if shortlist is None:
            return product_logits(pooled_BP, self.weights, self.bias)
        sparse = self.sparse_gradients
        rows = gather_rows(self.weights, shortlist, sparse=sparse).to(pooled_BP.dtype)
        bias = gather_rows(self.bias, shortlist, sparse=sparse)
        if shortlist.ndim == 1:
            return F.linear(pooled_BP, rows).float() + bias
        logits_BS = (rows @ pooled_BP[..., None])[..., 0].float() + bias
        return logits_BS.masked_fill(shortlist < 0, PADDED_LOGIT)

    def _logits_of_members(self, pooled_BP: Tensor) -> Tensor:
        """Compute the logits (B, L) without the products of parts that are zero."""
        logits_BL = self.bias.repeat(len(pooled_BP), 1)
        members = self.pooling.members
        for part_BP, weights_LP in zip(pooled_BP.chunk(members, 1), self.weights.chunk(members, 1), strict=True):
            rows_R = part_BP.any(dim=1).nonzero()[:, 0]
            logits_BL.index_add_(0, rows_R, F.linear(part_BP[rows_R], weights_LP.to(part_BP.dtype)).float())
        return logits_BL

    @override
    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        del mask_BT
        return read[0].float()

    @override
    def product_rows(self) -> nn.Parameter | None:
        return self.weights

    @override
    def read_fixed(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        return (self.dropout(self.pooling.of_fixed(fixed_BKD)),)

    @override
    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        self.pooling.init_from_documents(fixed_NKD)

    @override
    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """What each token counts in the pooled vector, (B, S, 1, T), the same for every label."""
        weights_BT = self.pooling.weights(hidden_BTD, mask_BT)
        return weights_BT[:, None, None].expand(-1, len(label_ids_S), -1, -1)

    @override
    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        return self.pooling.contributions(hidden_BTD.float(), mask_BT, self.weights[shortlist_BS].float())

    @override
    def label_tables(self) -> Mapping[str, nn.Parameter]:
        return {"weights": self.weights, "bias": self.bias}

    @torch.no_grad()
    @override
    def set_classifier(self, weights_LP: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        if weights_LP is not None:
            self.weights.copy_(weights_LP)
        if bias_L is not None:
            self.bias.copy_(bias_L)

    @override
    def label_vectors(self) -> Tensor:
        """The rows."""
        return self.weights.detach()

    @override
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """The pooled vectors."""
        return self.pooling(hidden_BTD, mask_BT).float()


def product_logits(pooled_BP: Tensor, weights_LP: Tensor, bias_L: Tensor) -> Tensor:
    """Compute ⟨weights, pooled⟩ + bias (B, L) in float32; rows of another dtype are cast chunk by chunk."""
    if weights_LP.dtype == pooled_BP.dtype or (torch.is_grad_enabled() and weights_LP.requires_grad):
        return F.linear(pooled_BP, weights_LP.to(pooled_BP.dtype)).float() + bias_L
    logits_BL = torch.empty(len(pooled_BP), len(bias_L), dtype=torch.float32, device=pooled_BP.device)
    for start in range(0, len(bias_L), CHUNK):
        part = slice(start, start + CHUNK)
        logits_BL[:, part] = F.linear(pooled_BP, weights_LP[part].to(pooled_BP.dtype)).float() + bias_L[part]
    return logits_BL


@torch.no_grad()
def best_products(
    pooled_BP: Tensor,
    weights_LP: Tensor,
    bias_L: Tensor,
    count: int,
    adjust: Callable[[Tensor, Tensor], Tensor] = lambda logits, labels: logits,
) -> tuple[Tensor, Tensor]:
    """Find each document's best labels int64 (B, K) and their logits (B, K), best first, without a table of all logits.

    Args:
        pooled_BP: document vectors.
        weights_LP: rows.
        bias_L: added to the products.
        count: K.
        adjust: changes the logits (B, C) of labels (C,), for example by calibration.
    """
    ids_BK = torch.zeros(len(pooled_BP), 0, dtype=torch.int64, device=pooled_BP.device)
    logits_BK = torch.zeros(len(pooled_BP), 0, device=pooled_BP.device)
    for start in range(0, len(bias_L), CHUNK):
        part = slice(start, start + CHUNK)
        logits_BC = F.linear(pooled_BP, weights_LP[part].to(pooled_BP.dtype)).float() + bias_L[part]
        labels_C = torch.arange(start, start + logits_BC.shape[1], device=pooled_BP.device)
        found = adjust(logits_BC, labels_C).topk(min(count, len(labels_C)))
        best = torch.cat([logits_BK, found.values], 1).topk(min(count, start + len(labels_C)))
        ids_BK = torch.cat([ids_BK, found.indices + start], 1).gather(1, best.indices)
        logits_BK = best.values
    return ids_BK, logits_BK
