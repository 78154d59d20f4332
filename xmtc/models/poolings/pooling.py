"""The implementations of the poolings.

Every pooling also reports how much each token counts (`weights`); `xmtc explain` shows this for pooled models.

Suffixes: B documents, S labels, T tokens, D width, H heads, d width of a head (D/H), K fixed poolings, X = K·D inputs
of a layer, P its units. Of members of a layer: M members, U units of one, R documents that train it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.kernels.options import Normaliser
from xmtc.models.kernels.reference import attention_weights

_LEAD_TOKENS = 64
"""Number of first tokens of a document, which have a separate mean."""
_MIN_SPREAD = 1e-3
"""Minimum standard deviation of an input, so that constant dimensions stay small."""


class Pooling(nn.Module, ABC):
    """Base class of poolings. Padding never counts; a document with only padding gives the zero vector.

    Attributes:
        width: width of the pooled vector.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute pooled vectors (B, width), for a bool mask that is False on padding."""

    @abstractmethod
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute the share (B, T) of each token in the pooled vector, float32; sums to 1 over a document's tokens."""

    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor
    ) -> Tensor:
        """Compute each token's contribution to ⟨row, pooled vector⟩, (B, S, T); they sum to this product."""
        products_BST = rows_BSD @ hidden_BTD.transpose(1, 2)
        weights_B1T = self.weights(hidden_BTD, mask_BT).unsqueeze(1)
        return products_BST * weights_B1T


class OneToken(Pooling):
    """The hidden state of the first or the last token."""

    def __init__(self, width: int, *, last: bool) -> None:
        super().__init__(width)
        self.last = last

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        documents_B = torch.arange(mask_BT.shape[0], device=mask_BT.device)
        states_BD = hidden_BTD[documents_B, self._position(mask_BT)]
        return states_BD * mask_BT.any(1, keepdim=True)

    @override
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        position_B1 = self._position(mask_BT).unsqueeze(1)
        weights_BT = torch.zeros_like(mask_BT, dtype=torch.float32).scatter_(
            1, position_B1, 1
        )
        return weights_BT * mask_BT

    def _position(self, mask_BT: Tensor) -> Tensor:
        if not self.last:
            return mask_BT.long().argmax(1)
        positions_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
        return (mask_BT * positions_T).argmax(1)


class Mean(Pooling):
    """The mean of the tokens' hidden states."""

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        weights_B1T = (
            self.weights(hidden_BTD, mask_BT).to(hidden_BTD.dtype).unsqueeze(1)
        )
        return (weights_B1T @ hidden_BTD).squeeze(1)

    @override
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        lengths_B1 = mask_BT.sum(1, keepdim=True, dtype=torch.float32)
        return mask_BT / lengths_B1.clamp(min=1)


class Max(Pooling):
    """The maximum of each dimension."""

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        greatest_BD = self._without_padding(hidden_BTD, mask_BT).amax(1)
        return greatest_BD * mask_BT.any(1, keepdim=True)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute the share of the dimensions whose maximum is at the token."""
        position_BD = self._without_padding(hidden_BTD, mask_BT).argmax(1)
        share_BD = torch.full(
            position_BD.shape,
            1 / self.width,
            dtype=torch.float32,
            device=mask_BT.device,
        )
        weights_BT = torch.zeros_like(mask_BT, dtype=torch.float32).scatter_add_(
            1, position_BD, share_BD
        )
        return weights_BT * mask_BT

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor
    ) -> Tensor:
        """Each dimension's product counts for the token with the maximum."""
        greatest = self._without_padding(hidden_BTD, mask_BT).max(1)
        pooled_BD = greatest.values * mask_BT.any(1, keepdim=True)
        products_BSD = rows_BSD * pooled_BD.unsqueeze(1)
        positions_BSD = greatest.indices.unsqueeze(1).expand_as(products_BSD)
        shares_BST = products_BSD.new_zeros(*rows_BSD.shape[:2], mask_BT.shape[1])
        return shares_BST.scatter_add_(2, positions_BSD, products_BSD)

    def _without_padding(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Set padding to the lowest number, so that it is never the maximum."""
        lowest = torch.finfo(hidden_BTD.dtype).min
        return hidden_BTD.masked_fill(~mask_BT.unsqueeze(2), lowest)


class AttentionPooling(Pooling):
    """Attention of learned queries: each of H heads weights the tokens for its part of the dimensions.

    a_h = normalise_t(⟨q_h, LayerNorm(hidden_t)⟩/√D), pooled = concat_h Σ_t a_h,t hidden_t[part h]. There is no key
    projection: as ⟨q, W x⟩ = ⟨Wᵀq, x⟩, a learned query makes it redundant. Queries start at 0, which is the mean.
    """

    def __init__(self, width: int, heads: int, normaliser: Normaliser) -> None:
        super().__init__(width)
        self.heads = heads
        self.normaliser: Normaliser = normaliser
        self.norm = nn.LayerNorm(width)
        self.queries_HD = nn.Parameter(torch.zeros(heads, width))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute pooled vectors (B, width)."""
        values_BHTd = hidden_BTD.unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights_BH1T = (
            self.head_weights(hidden_BTD, mask_BT).to(hidden_BTD.dtype).unsqueeze(2)
        )
        pooled_BH1d = weights_BH1T @ values_BHTd
        return pooled_BH1d.flatten(1)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute the mean attention (B, T) of the heads."""
        return self.head_weights(hidden_BTD, mask_BT).mean(1)

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor
    ) -> Tensor:
        """Head by head, each for its part of the dimensions."""
        values_BHdT = hidden_BTD.unflatten(2, (self.heads, -1)).permute(0, 2, 3, 1)
        rows_BHSd = rows_BSD.unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights_BH1T = self.head_weights(hidden_BTD, mask_BT).unsqueeze(2)
        shares_BHST = rows_BHSd @ values_BHdT * weights_BH1T
        return shares_BHST.sum(1)

    def head_weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute attention (B, H, T), in at least fp32."""
        keys_BTD = self.norm(hidden_BTD.to(self.queries_HD.dtype))
        scores_BHT = self.queries_HD @ keys_BTD.transpose(1, 2) * self.width**-0.5
        weights_BH1T = attention_weights(
            scores_BHT.unsqueeze(2), mask_BT, self.normaliser
        )
        return weights_BH1T.squeeze(2)


class Lead(Mean):
    """The mean of a document's first tokens."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__(width)
        self.tokens = tokens

    @override
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        is_lead_BT = mask_BT.cumsum(1) <= self.tokens
        return super().weights(hidden_BTD, mask_BT & is_lead_BT)


class FixedPoolings(nn.Module):
    """Mean, maximum, first token, and mean of the first tokens: K = 4 vectors that summarise a document.

    They have no parameters, so a run computes them once per document and keeps them on disk.
    """

    count = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mean = Mean(width)
        self.others = nn.ModuleList(
            [Max(width), OneToken(width, last=False), Lead(width, _LEAD_TOKENS)]
        )

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Compute the poolings, float32 (B, K, D), the mean first; zero for a document with only padding.

        Autocast does not apply: scorers and standardised inputs need more digits than bfloat16 has.
        """
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            return torch.stack(
                [pooling(hidden_BTD.float(), mask_BT) for pooling in self], 1
            )

    def __iter__(self) -> Iterator[Pooling]:
        """Iterate over the poolings."""
        yield self.mean
        for pooling in self.others:
            assert isinstance(pooling, Pooling)
            yield pooling


class SummaryLayer(nn.Module):
    """ReLU(W concat_k((fixed_k − centre_k) · gain_k)), (B, K, D) to (B, P).

    Some dimensions of encoders are far from 0 and would dominate the others. Centre and gain are initialised so that
    each input has mean 0 and variance 1 over documents.
    """

    def __init__(self, count: int, width: int, units: int) -> None:
        super().__init__()
        self.weight_PX = nn.Parameter(
            nn.Linear(count * width, units, bias=False).weight.detach()
        )
        self.centres_KD = nn.Parameter(torch.zeros(count, width))
        self.gains_KD = nn.Parameter(torch.ones(count, width))

    def forward(self, fixed_BKD: Tensor) -> Tensor:
        """Compute the layer's units, zero for a document with only padding."""
        units_BP = F.relu(F.linear(self._inputs(fixed_BKD), self.weight_PX))
        return units_BP * _has_tokens(fixed_BKD)

    def of_turns(self, fixed_BKD: Tensor, members: int) -> Tensor:
        """Compute only the units of document b's member, b mod `members`; those of the other members are zero."""
        inputs_BX = self._inputs(fixed_BKD)
        units_of_member = len(self.weight_PX) // members
        units_BMU = inputs_BX.new_zeros(len(inputs_BX), members, units_of_member)
        for member, weight_UX in enumerate(self.weight_PX.chunk(members)):
            documents = slice(member, None, members)
            units_RU = F.relu(F.linear(inputs_BX[documents], weight_UX))
            units_BMU[documents, member] = units_RU.to(units_BMU.dtype)
        return units_BMU.flatten(1) * _has_tokens(fixed_BKD)

    def _inputs(self, fixed_BKD: Tensor) -> Tensor:
        centred_BKD = fixed_BKD.to(self.weight_PX.dtype) - self.centres_KD
        return (centred_BKD * self.gains_KD).flatten(1)


def _has_tokens(fixed_BKD: Tensor) -> Tensor:
    """Mark the documents that have tokens, (B, 1)."""
    return (fixed_BKD != 0).flatten(1).any(1, keepdim=True)


class Summary(Pooling):
    """A ReLU layer over `FixedPoolings`, or the mean of several such layers (Lakshminarayanan et al., 2017).

    With M members, the vector has a part for each, and rows have the classifier of each. In training, a document has
    the part of one member only, so members differ. In evaluation, it has all parts, each divided by M, so logits are
    the mean of the members' logits.

    The poolings commute with subtracting a centre from all tokens. For a given document, the vector is therefore a sum
    over centred tokens, through the units that the ReLU keeps. `contributions` uses this.
    """

    def __init__(self, hidden_width: int, width: int, members: int) -> None:
        super().__init__(width * members)
        self.members = members
        self.fixed = FixedPoolings(hidden_width)
        self.layer = SummaryLayer(self.fixed.count, hidden_width, self.width)

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return self.of_fixed(self.fixed(hidden_BTD, mask_BT))

    def of_fixed(self, fixed_BKD: Tensor) -> Tensor:
        """Compute pooled vectors (B, width) from fixed poolings. In training, documents take turns with the members."""
        if self.members == 1 or not self.training:
            return self.layer(fixed_BKD) / self.members
        return self.layer.of_turns(fixed_BKD, self.members)

    @override
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """The mean share that a token has in the fixed poolings."""
        shares = [pooling.weights(hidden_BTD, mask_BT) for pooling in self.fixed]
        return torch.stack(shares).mean(0)

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor
    ) -> Tensor:
        """By the units that the ReLU keeps for this document."""
        layer = self.layer
        active_BP = self(hidden_BTD, mask_BT) > 0
        rows_of_units_BSP = rows_BSD * active_BP.unsqueeze(1) / self.members
        rows_of_inputs_BSX = rows_of_units_BSP @ layer.weight_PX.to(rows_BSD.dtype)
        rows_by_pooling = rows_of_inputs_BSX.chunk(self.fixed.count, 2)
        shares = []
        for pooling, centre_D, gain_D, rows_of_pooling_BSD in zip(
            self.fixed, layer.centres_KD, layer.gains_KD, rows_by_pooling, strict=True
        ):
            shares.append(
                pooling.contributions(
                    hidden_BTD - centre_D, mask_BT, rows_of_pooling_BSD * gain_D
                )
            )
        return torch.stack(shares).sum(0)

    @torch.no_grad()
    def init_from_documents(self, fixed_NKD: Tensor) -> None:
        """Initialise centres and gains from the fixed poolings of a sample of N training documents."""
        self.layer.centres_KD.copy_(fixed_NKD.mean(0))
        spread_KD = fixed_NKD.std(0, correction=0).clamp(min=_MIN_SPREAD)
        self.layer.gains_KD.copy_(1 / spread_KD)
