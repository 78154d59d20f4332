"""Label-wise multi-head attention: every label looks at a document's tokens with its own query.

Suffixes: B documents, T tokens, L labels, S shortlisted or sampled labels, D backbone width, d head width, H heads,
E width of a head (d/H).
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from xmtc.config.base import config
from xmtc.models.dropout import Dropout
from xmtc.models.kernels import (
    Implementation,
    Normaliser,
    Options,
    attention_scores,
    attention_weights,
    gather_rows,
    label_attention,
    label_attention_shortlist,
    normalise_rows,
)
from xmtc.models.kernels.reference import at_least_fp32, split_heads


@config
class LabelAttentionConfig:
    """Label-wise multi-head attention head (docs/kernels.md)."""

    kind: Literal["label_attention"] = "label_attention"
    width: Annotated[int, Field(ge=1)] = 256
    """Width d of keys, values, label queries and classifier rows; divisible by `heads`."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Attention heads a label."""
    normalize: bool = True
    """RMS-normalise queries and keys per head, with a learned gain: bounds the scores, whose overflow makes label-wise
    heads diverge."""
    normaliser: Normaliser = "softmax"
    """Scores to attention weights. sparsemax and entmax15 give weak tokens a weight of exactly 0; on a CPU the
    head then takes two to four times as long."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the hidden states that become keys and values."""
    kernel: Implementation = "auto"
    """How label attention over all labels is computed; all give the same result. auto: the fastest here."""
    label_chunk: Annotated[int, Field(ge=1)] | None = None
    """Labels computed at a time by the kernels chunked and sdpa; null: chosen from a memory budget."""
    deterministic: bool = False
    """With the Triton kernel, gradients that are the same bit for bit in every run, at some cost where documents are
    few and short. Those of the other kernels always are."""
    row_dtype: Literal["float32", "bfloat16"] = "float32"
    """Storage of the label queries and classifier rows. bfloat16 halves their memory and wants a row-wise optimizer
    with stochastic rounding."""

    def __post_init__(self) -> None:
        """Raises ValueError where the heads do not divide the width."""
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")

    def options(self) -> Options:
        """What the kernels are told."""
        return Options(
            heads=self.heads,
            normaliser=self.normaliser,
            normalise_queries=self.normalize,
            implementation=self.kernel,
            label_chunk=self.label_chunk,
            deterministic=self.deterministic,
        )

    def build(self, hidden_width: int, labels: int) -> "LabelAttentionHead":
        """The head for a backbone of width `hidden_width` and this many labels."""
        return LabelAttentionHead(self, hidden_width, labels)


class LabelAttentionHead(nn.Module):
    """K = H W_k, V = H W_v; label l attends with queries[l] and is scored by weights[l] and bias[l] (docs/kernels.md).

    Queries are normalised without a gain of their own: the gain of the keys multiplies the same products.

    Attributes:
        queries: (L, d), one row a label.
        weights: (L, d), one classifier row a label.
        bias: (L,) float32.
        key_gain: (d,) gain of the normalised keys; None without `normalize`.
        sparse_gradients: with a shortlist, give the label tables sparse gradients, so that a step touches the
            shortlisted rows only; off, until an optimizer that takes them asks for it.
    """

    sparse_gradients = False

    def __init__(self, config: LabelAttentionConfig, hidden_width: int, labels: int) -> None:
        super().__init__()
        self.config = config
        self.options = config.options()
        dtype = getattr(torch, config.row_dtype)
        scale = config.width**-0.5
        self.dropout = Dropout(config.dropout)
        self.key_projection = nn.Linear(hidden_width, config.width, bias=False)
        self.value_projection = nn.Linear(hidden_width, config.width, bias=False)
        self.key_gain = nn.Parameter(torch.ones(config.width)) if config.normalize else None
        self.queries = nn.Parameter(torch.empty(labels, config.width, dtype=dtype).normal_(std=scale))
        self.weights = nn.Parameter(torch.empty(labels, config.width, dtype=dtype).normal_(std=scale))
        self.bias = nn.Parameter(torch.zeros(labels))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Logits (B, L) in float32, or (B, S) for the label ids in `shortlist`.

        Args:
            hidden_BTD: hidden states of whole documents.
            mask_BT: bool, False on padding.
            shortlist: int64 label ids, (S,) the same for all documents, which costs least, or (B, S) of each document
                (-1 is padding, logit -10⁴).
        """
        hidden_BTD = self.dropout(hidden_BTD)
        tensors = (self.keys(hidden_BTD), self.value_projection(hidden_BTD), mask_BT)
        tables = (self.queries, self.weights, self.bias)
        if shortlist is None:
            return label_attention(*tensors, *tables, self.options)
        sparse = self.sparse_gradients
        if shortlist.ndim == 1:
            queries_Sd, weights_Sd, bias_S = (gather_rows(table, shortlist, sparse=sparse) for table in tables)
            return label_attention(*tensors, queries_Sd, weights_Sd, bias_S, self.options)
        return label_attention_shortlist(*tensors, *tables, shortlist, self.options, sparse=sparse)

    def keys(self, hidden_BTD: Tensor) -> Tensor:
        """Projected and, with `normalize`, normalised keys (B, T, d), in the dtype of the projection."""
        projected_BTd = self.key_projection(hidden_BTD)
        if self.key_gain is None:
            return projected_BTd
        return (normalise_rows(projected_BTd, self.config.heads) * self.key_gain).to(projected_BTd.dtype)

    def attention_scores(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Scaled scores (B, S, H, T) in float32 before the softmax; padding is not masked: that is the caller's.

        Args:
            hidden_BTD: hidden states.
            mask_BT: bool; unused here, so that the three attention methods are called alike.
            label_ids_S: int64 label ids, the same for all documents.
        """
        del mask_BT
        keys_BTd, queries_Sd = self.keys(hidden_BTD), self._query_rows(label_ids_S)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            scores_BHST = attention_scores(at_least_fp32(keys_BTd), queries_Sd, self.config.heads)
        return scores_BHST.transpose(1, 2)

    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Attention (B, S, H, T) in float32: sums to 1 over a document's tokens, 0 on padding."""
        scores_BSHT = self.attention_scores(hidden_BTD, mask_BT, label_ids_S)
        return attention_weights(scores_BSHT.transpose(1, 2), mask_BT, self.config.normaliser).transpose(1, 2)

    def contexts(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """What each label sees: concat_m Σ_t a[b,l,m,t] V[b,t,m], shape (B, S, d), float32."""
        attention_BHST = self.attention(hidden_BTD, mask_BT, label_ids_S).transpose(1, 2)
        values_BTd = self.value_projection(hidden_BTD).to(attention_BHST.dtype)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            contexts_BHSE = attention_BHST @ split_heads(values_BTd, self.config.heads)
        return contexts_BHSE.transpose(1, 2).flatten(-2)

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        """What each token adds to a logit: Σ_m a[b,l,m,t]·⟨w[l,m], V[b,t,m]⟩, shape (B, S, T), float32.

        Their sum over tokens plus the bias is the logit, exactly: an explanation without approximation.
        """
        heads = self.config.heads
        keys_BTd, values_BTd = self.keys(hidden_BTD), self.value_projection(hidden_BTD)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            scores_BHST = attention_scores(at_least_fp32(keys_BTd), self._query_rows(shortlist_BS), heads)
            attention_BHST = attention_weights(scores_BHST, mask_BT, self.config.normaliser)
            weights_BSd = at_least_fp32(gather_rows(self.weights, shortlist_BS, sparse=False))
            values_BHET = split_heads(at_least_fp32(values_BTd), heads).transpose(-1, -2)
            return (attention_BHST * (split_heads(weights_BSd, heads) @ values_BHET)).sum(1)

    def attention_parameters(self) -> Iterator[nn.Parameter]:
        """What decides where labels look, and what stage 1 trains: queries, key projection, gain of the keys."""
        yield self.queries
        yield from self.key_projection.parameters()
        if self.key_gain is not None:
            yield self.key_gain

    def label_tables(self) -> list[nn.Parameter]:
        """The parameters that have one row a label."""
        return [self.queries, self.weights, self.bias]

    @torch.no_grad()
    def set_classifier(self, weights_Ld: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        """Starts the classifier at given rows (L, d) or biases (L,), such as planted prototypes and label priors."""
        if weights_Ld is not None:
            self.weights.copy_(weights_Ld)
        if bias_L is not None:
            self.bias.copy_(bias_L)

    def label_vectors(self) -> Tensor:
        """Vectors (L, d) for a nearest-neighbour index of labels: the classifier rows.

        ⟨weights[l], document_vectors(…)⟩ + bias[l] is the logit that label l would have with uniform attention.
        """
        return self.weights.detach().float()

    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Query vectors (B, d) for that index: the mean value of a document's tokens, float32."""
        values_BTd = at_least_fp32(self.value_projection(hidden_BTD))
        return (values_BTd * mask_BT[..., None]).sum(1) / mask_BT.sum(1, keepdim=True).clamp(min=1)

    def _query_rows(self, labels: Tensor) -> Tensor:
        rows = at_least_fp32(gather_rows(self.queries, labels, sparse=self.sparse_gradients))
        return normalise_rows(rows, self.config.heads) if self.config.normalize else rows
