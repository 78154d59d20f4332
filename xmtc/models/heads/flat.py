"""The flat head: one vector per document and one classifier row per label, for comparison and millions of labels.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, P width of document vectors, K fixed poolings.
Of a member: U width of its part of the vector, R documents that train it.
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

    def __init__(
        self, settings: FlatConfig | TwoTowerConfig, pooling: Pooling, labels: int
    ) -> None:
        super().__init__(settings)
        self.pooling = pooling
        self.dropout = Dropout(settings.dropout)
        self.dropped = settings.dropout
        rows_LP = torch.empty(
            labels, pooling.width, dtype=getattr(torch, settings.row_dtype)
        )
        self.weights = nn.Parameter(rows_LP.normal_(std=pooling.width**-0.5))
        self.bias = nn.Parameter(torch.zeros(labels))

    @override
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """The pooled vector, after dropout."""
        pooled_BP = self.pooling(hidden_BTD, mask_BT)
        return (self.dropout(pooled_BP),)

    @override
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return self.pooling(hidden_BTD, mask_BT).float()

    @override
    def attention(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        """What each token counts in the pooled vector, (B, S, 1, T), the same for every label."""
        weights_BT = self.pooling.weights(hidden_BTD, mask_BT)
        return weights_BT[:, None, None].expand(-1, len(label_ids_S), -1, -1)

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor
    ) -> Tensor:
        rows_BSP = self.weights[shortlist_BS].float()
        return self.pooling.contributions(hidden_BTD.float(), mask_BT, rows_BSP)


class SummaryHead(FlatHead, ReadsPooled):
    """A flat head with the pooling `Summary`, whose members take turns in training."""

    pooling: Summary

    def __init__(self, settings: FlatConfig, pooling: Summary, labels: int) -> None:
        super().__init__(settings, pooling, labels)
        self.members = pooling.members

    @override
    def score(
        self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        if shortlist is None and self.training and self.members > 1:
            return self._logits_of_members(read[0])
        return super().score(read, mask_BT, shortlist)

    def _logits_of_members(self, pooled_BP: Tensor) -> Tensor:
        """Compute the logits (B, L) without the products of parts that are zero."""
        logits_BL = self.bias.repeat(len(pooled_BP), 1)
        parts = pooled_BP.chunk(self.members, 1)
        weights_of_parts = self.weights.chunk(self.members, 1)
        for part_BU, weights_LU in zip(parts, weights_of_parts, strict=True):
            documents_R = part_BU.any(dim=1).nonzero()[:, 0]
            logits_RL = F.linear(part_BU[documents_R], weights_LU.to(part_BU.dtype))
            logits_BL.index_add_(0, documents_R, logits_RL.float())
        return logits_BL

    @override
    def read_pooled(self, fixed_BKD: Tensor) -> tuple[Tensor, ...]:
        pooled_BP = self.pooling.of_fixed(fixed_BKD)
        return (self.dropout(pooled_BP),)

    @override
    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        self.pooling.init_from_documents(fixed_NKD)
