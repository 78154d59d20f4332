"""One vector a document, one classifier row a label: the flat head, for comparison and for millions of labels.

Suffixes: B documents, T tokens, L labels, S shortlisted labels, D backbone width.
"""

from typing import Annotated, Literal, Protocol

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from xmtc.config.base import config
from xmtc.models.dropout import Dropout
from xmtc.models.kernels import PADDED_LOGIT, gather_rows
from xmtc.models.poolings import MeanPoolingConfig, Pooling, PoolingConfig


@config
class FlatConfig:
    """Flat one-vs-all head: a pooled document vector times one row a label."""

    kind: Literal["flat"] = "flat"
    pooling: PoolingConfig = MeanPoolingConfig()
    """How a document's hidden states become one vector."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Dropout on the pooled vector."""
    row_dtype: Literal["float32", "bfloat16"] = "float32"
    """Storage of the classifier rows. bfloat16 halves their memory and wants a row-wise optimizer with stochastic
    rounding."""

    def build(self, hidden_width: int, labels: int) -> "FlatHead":
        """The head for a backbone of width `hidden_width` and this many labels."""
        return FlatHead(self, self.pooling.build(hidden_width), labels)


class RowSettings(Protocol):
    """What a flat head asks of its configuration."""

    @property
    def dropout(self) -> float:
        """On document vectors."""
        ...

    @property
    def row_dtype(self) -> str:
        """Of the rows, as PyTorch calls it."""
        ...


class FlatHead(nn.Module):
    """logit[b,l] = ⟨weights[l], pool(hidden[b])⟩ + bias[l].

    Attributes:
        weights: (L, P), one classifier row a label; P is the width that the pooling gives.
        bias: (L,) float32.
        sparse_gradients: see `LabelAttentionHead`.
    """

    sparse_gradients = False

    def __init__(self, settings: RowSettings, pooling: Pooling, labels: int) -> None:
        super().__init__()
        self.pooling = pooling
        self.dropout = Dropout(settings.dropout)
        width = pooling.width
        rows = torch.empty(labels, width, dtype=getattr(torch, settings.row_dtype))
        self.weights = nn.Parameter(rows.normal_(std=width**-0.5))
        self.bias = nn.Parameter(torch.zeros(labels))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Logits (B, L) in float32, or (B, S) for the label ids in `shortlist`; see `LabelAttentionHead.forward`."""
        pooled_BP = self.dropout(self.pooling(hidden_BTD, mask_BT))
        if shortlist is None:
            return F.linear(pooled_BP, self.weights.to(pooled_BP.dtype)).float() + self.bias
        sparse = self.sparse_gradients
        rows = gather_rows(self.weights, shortlist, sparse=sparse).to(pooled_BP.dtype)
        bias = gather_rows(self.bias, shortlist, sparse=sparse)
        if shortlist.ndim == 1:
            return F.linear(pooled_BP, rows).float() + bias
        logits_BS = (rows @ pooled_BP[..., None])[..., 0].float() + bias
        return logits_BS.masked_fill(shortlist < 0, PADDED_LOGIT)

    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """How much each token counts in the pooled vector, (B, S, 1, T) in float32: the same for every label."""
        weights_BT = self.pooling.weights(hidden_BTD, mask_BT)
        return weights_BT[:, None, None].expand(-1, len(label_ids_S), -1, -1)

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        """What each token adds to a logit, (B, S, T) in float32; with the bias they sum to the logit, exactly."""
        return self.pooling.contributions(hidden_BTD.float(), mask_BT, self.weights[shortlist_BS].float())

    def label_tables(self) -> list[nn.Parameter]:
        """The parameters that have one row a label."""
        return [self.weights, self.bias]

    @torch.no_grad()
    def set_classifier(self, weights_LP: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        """Starts the classifier at given rows (L, P) or biases (L,), such as label priors."""
        if weights_LP is not None:
            self.weights.copy_(weights_LP)
        if bias_L is not None:
            self.bias.copy_(bias_L)

    def label_vectors(self) -> Tensor:
        """Vectors (L, P) for a nearest-neighbour index: ⟨vector, document vector⟩ + bias is exactly the logit."""
        return self.weights.detach().float()

    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Query vectors (B, P) for that index, float32."""
        return self.pooling(hidden_BTD, mask_BT).float()
