"""The flat head: one vector per document and one classifier row per label, for comparison and millions of labels.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, P width of document vectors, K fixed poolings.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.dropout import Dropout
from xmtc.models.heads.base import GivesEvidence, ReadsPooled, ScoresByProduct
from xmtc.models.heads.config import FlatConfig, TwoTowerConfig
from xmtc.models.poolings.pooling import Pooling, Summary


class FlatHead(ScoresByProduct, GivesEvidence):
    """logit[b,l] = ⟨weights[l], pool(hidden[b])⟩ + bias[l]."""

    def __init__(self, settings: FlatConfig | TwoTowerConfig, pooling: Pooling, labels: int) -> None:
        super().__init__(settings)
        self.pooling = pooling
        self.dropout, self.dropped = Dropout(settings.dropout), settings.dropout
        rows = torch.empty(labels, pooling.width, dtype=getattr(torch, settings.row_dtype))
        self.weights = nn.Parameter(rows.normal_(std=pooling.width**-0.5))
        self.bias = nn.Parameter(torch.zeros(labels))

    @override
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """The pooled vector, after dropout."""
        return (self.dropout(self.pooling(hidden_BTD, mask_BT)),)

    @override
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return self.pooling(hidden_BTD, mask_BT).float()

    @override
    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """What each token counts in the pooled vector, (B, S, 1, T), the same for every label."""
        weights_BT = self.pooling.weights(hidden_BTD, mask_BT)
        return weights_BT[:, None, None].expand(-1, len(label_ids_S), -1, -1)

    @override
    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        return self.pooling.contributions(hidden_BTD.float(), mask_BT, self.weights[shortlist_BS].float())


class SummaryHead(FlatHead, ReadsPooled):
    """A flat head with the pooling `Summary`, whose members take turns in training."""

    pooling: Summary

    def __init__(self, settings: FlatConfig, pooling: Summary, labels: int) -> None:
        super().__init__(settings, pooling, labels)
        self.members = pooling.members

    @override
    def score(self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        if shortlist is None and self.training and self.members > 1:
            return self._logits_of_members(read[0])
        return super().score(read, mask_BT, shortlist)

    def _logits_of_members(self, pooled_BP: Tensor) -> Tensor:
        """Compute the logits (B, L) without the products of parts that are zero."""
        logits_BL = self.bias.repeat(len(pooled_BP), 1)
        members = self.members
        for part_BP, weights_LP in zip(pooled_BP.chunk(members, 1), self.weights.chunk(members, 1), strict=True):
            rows_R = part_BP.any(dim=1).nonzero()[:, 0]
            logits_BL.index_add_(0, rows_R, F.linear(part_BP[rows_R], weights_LP.to(part_BP.dtype)).float())
        return logits_BL

    @override
    def read_pooled(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        return (self.dropout(self.pooling.of_fixed(fixed_BKD)),)

    @override
    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        self.pooling.init_from_documents(fixed_NKD)
