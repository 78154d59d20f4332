"""Label-wise multi-head attention: every label attends to a document's tokens with a separate query.

Suffixes: B documents, T tokens, L labels, S shortlisted or sampled labels, D backbone width, d head width, H heads,
E width of a head (d/H).
"""

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.dropout import Dropout
from xmtc.models.heads.base import CentredLinear, Head, PlantsProjections, RowsFromNames
from xmtc.models.heads.config import LabelAttentionConfig
from xmtc.models.kernels.dispatch import label_attention, label_attention_shortlist
from xmtc.models.kernels.products import gather_rows
from xmtc.models.kernels.reference import (
    at_least_fp32,
    attention_scores,
    attention_weights,
    normalise_rows,
    split_heads,
)


class LabelAttentionHead(Head, PlantsProjections, RowsFromNames):
    """K = (H − c) W_k, V = (H − c) W_v; label l attends with queries[l] and is scored by weights[l] and bias[l].

    Formulas: docs/explanation/kernels.md. Normalised queries have no gain, because the gain of the keys multiplies the
    same products.

    Attributes:
        queries: (L, d), one row per label.
        weights: (L, d), one classifier row per label.
        bias: (L,) float32.
        key_gain: (d,), gain of the normalised keys; None without `normalize`.
    """

    def __init__(
        self, settings: LabelAttentionConfig, hidden_width: int, labels: int
    ) -> None:
        super().__init__(settings)
        self.options = settings.options()
        width = settings.width
        self.dropout = Dropout(settings.dropout)
        self.key_projection = CentredLinear(hidden_width, width)
        self.value_projection = CentredLinear(hidden_width, width)
        self.key_gain = nn.Parameter(torch.ones(width)) if settings.normalize else None
        dtype = getattr(torch, settings.row_dtype)
        self.queries = _random_rows(labels, width, dtype)
        self.weights = _random_rows(labels, width, dtype)
        self.bias = nn.Parameter(torch.zeros(labels))

    @override
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """Keys and values (B, T, d)."""
        hidden_BTD = self.dropout(hidden_BTD)
        return self.keys(hidden_BTD), self.value_projection(hidden_BTD)

    @override
    def score(
        self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        keys_BTd, values_BTd = read
        documents = (keys_BTd, values_BTd, mask_BT)
        tables = (self.queries, self.weights, self.bias)
        if shortlist is None:
            return label_attention(*documents, *tables, self.options)
        sparse = self.sparse_gradients
        if shortlist.ndim == 1:
            queries_Sd, weights_Sd, bias_S = (
                gather_rows(table, shortlist, sparse=sparse) for table in tables
            )
            return label_attention(
                *documents, queries_Sd, weights_Sd, bias_S, self.options
            )
        return label_attention_shortlist(
            *documents, *tables, shortlist, self.options, sparse=sparse
        )

    @override
    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        """The mean value (B, d) of a document's tokens, which gives the logits of uniform attention."""
        values_BTd = at_least_fp32(read[1])
        sum_Bd = (values_BTd * mask_BT[..., None]).sum(1)
        lengths_B1 = mask_BT.sum(1, keepdim=True)
        return sum_Bd / lengths_B1.clamp(min=1)

    def keys(self, hidden_BTD: Tensor) -> Tensor:
        """Compute the projected and, with `normalize`, normalised keys (B, T, d), in the dtype of the projection."""
        projected_BTd = self.key_projection(hidden_BTD)
        if self.key_gain is None:
            return projected_BTd
        normalised_BTd = (
            normalise_rows(projected_BTd, self.options.heads) * self.key_gain
        )
        return normalised_BTd.to(projected_BTd.dtype)

    @override
    def attention_scores(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        keys_BTd = self.keys(hidden_BTD)
        queries_Sd = self._query_rows(label_ids_S)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            scores_BHST = attention_scores(
                at_least_fp32(keys_BTd), queries_Sd, self.options.heads
            )
        return scores_BHST.transpose(1, 2)

    @override
    def attention(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        scores_BHST = self.attention_scores(hidden_BTD, mask_BT, label_ids_S).transpose(
            1, 2
        )
        attention_BHST = attention_weights(
            scores_BHST, mask_BT, self.options.normaliser
        )
        return attention_BHST.transpose(1, 2)

    @override
    def contexts(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        """Concat_m Σ_t a[b,l,m,t] V[b,t,m]."""
        attention_BHST = self.attention(hidden_BTD, mask_BT, label_ids_S).transpose(
            1, 2
        )
        values_BTd = self.value_projection(hidden_BTD).to(attention_BHST.dtype)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            contexts_BHSE = attention_BHST @ split_heads(values_BTd, self.options.heads)
        return contexts_BHSE.transpose(1, 2).flatten(-2)

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor
    ) -> Tensor:
        """Σ_m a[b,l,m,t]·⟨w[l,m], V[b,t,m]⟩."""
        heads = self.options.heads
        keys_BTd = self.keys(hidden_BTD)
        values_BTd = self.value_projection(hidden_BTD)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            scores_BHST = attention_scores(
                at_least_fp32(keys_BTd), self._query_rows(shortlist_BS), heads
            )
            attention_BHST = attention_weights(
                scores_BHST, mask_BT, self.options.normaliser
            )
            weights_BSd = at_least_fp32(
                gather_rows(self.weights, shortlist_BS, sparse=False)
            )
            weights_BHSE = split_heads(weights_BSd, heads)
            values_BHET = split_heads(at_least_fp32(values_BTd), heads).transpose(
                -1, -2
            )
            gains_BHST = weights_BHSE @ values_BHET
            return (attention_BHST * gains_BHST).sum(1)

    @override
    def attention_parameters(self) -> Iterator[nn.Parameter]:
        """Label queries, key projection and key gain."""
        yield self.queries
        yield from self.key_projection.parameters()
        if self.key_gain is not None:
            yield self.key_gain

    @torch.no_grad()
    @override
    def plant_queries(self, queries_Ld: Tensor) -> None:
        """With `normalize`, at the length of random queries; else such that each head's scores have variance 1."""
        if self.options.normalise_queries:
            planted_Ld = F.normalize(queries_Ld, dim=1)
        else:
            planted_Ld = queries_Ld * queries_Ld.shape[1] ** 0.5
        self.queries.copy_(planted_Ld)

    @override
    def label_tables(self) -> Mapping[str, nn.Parameter]:
        return {"queries": self.queries, **super().label_tables()}

    @override
    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        values_BTd = self.value_projection(hidden_BTD)
        return self.vectors((hidden_BTD, values_BTd), mask_BT)  # a vector needs no keys

    @override
    def rows_from_names(self, texts_ND: Tensor) -> dict[str, Tensor]:
        """A query is the key of the name, and attends to tokens like those of the name."""
        return {"queries": self.keys(texts_ND).float()}

    def _query_rows(self, labels: Tensor) -> Tensor:
        rows_Sd = at_least_fp32(
            gather_rows(self.queries, labels, sparse=self.sparse_gradients)
        )
        if not self.options.normalise_queries:
            return rows_Sd
        return normalise_rows(rows_Sd, self.options.heads)


def _random_rows(labels: int, width: int, dtype: torch.dtype) -> nn.Parameter:
    rows_Ld = torch.empty(labels, width, dtype=dtype)
    return nn.Parameter(rows_Ld.normal_(std=width**-0.5))
