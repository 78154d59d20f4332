"""The poolings themselves.

Every pooling also says how much each token counts (`weights`), which is what `xmtc explain` shows for pooled models.

Suffixes: B documents, T tokens, D width, H heads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from xmtc.models.kernels.normalisers import attention_weights
from xmtc.models.kernels.options import Normaliser

_LEAST_SPREAD = 1e-3  # of an input; a dimension that is the same for all documents stays small


class Pooling(nn.Module, ABC):
    """What a pooling is. Padding never counts; a document of only padding gives the zero vector.

    Attributes:
        width: of the pooled vector.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @abstractmethod
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Pooled vectors (B, width), for a bool mask that is False on padding."""

    @abstractmethod
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Share (B, T) of each token in the pooled vector, float32; sums to 1 over a document's tokens."""

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor) -> Tensor:
        """What each token adds to ⟨row, pooled vector⟩, (B, S, T); the sum over the tokens is exactly that product."""
        return (rows_BSD @ hidden_BTD.transpose(1, 2)) * self.weights(hidden_BTD, mask_BT).unsqueeze(1)

    def inputs(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """What `start` wants to know of documents, (B, …)."""
        raise NotImplementedError

    def start(self, inputs_NX: Tensor) -> None:
        """Start parameters at what `inputs` gave for a sample of N training documents."""
        raise NotImplementedError


class OneToken(Pooling):
    """The hidden state of the first or the last token."""

    def __init__(self, width: int, *, last: bool) -> None:
        super().__init__(width)
        self.last = last

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.forward`."""
        rows_B = torch.arange(mask_BT.shape[0], device=mask_BT.device)
        return hidden_BTD[rows_B, self._position(mask_BT)] * mask_BT.any(1, keepdim=True)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.weights`."""
        chosen_B1 = self._position(mask_BT).unsqueeze(1)
        return torch.zeros_like(mask_BT, dtype=torch.float32).scatter_(1, chosen_B1, 1) * mask_BT

    def _position(self, mask_BT: Tensor) -> Tensor:
        if not self.last:
            return mask_BT.long().argmax(1)
        return (mask_BT * torch.arange(mask_BT.shape[1], device=mask_BT.device)).argmax(1)


class Mean(Pooling):
    """The mean of the tokens' hidden states."""

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.forward`."""
        return (self.weights(hidden_BTD, mask_BT).to(hidden_BTD.dtype).unsqueeze(1) @ hidden_BTD).squeeze(1)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.weights`."""
        return mask_BT / mask_BT.sum(1, keepdim=True, dtype=torch.float32).clamp(min=1)


class Max(Pooling):
    """The greatest value of each dimension."""

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.forward`."""
        lowest = torch.finfo(hidden_BTD.dtype).min
        return hidden_BTD.masked_fill(~mask_BT.unsqueeze(2), lowest).amax(1) * mask_BT.any(1, keepdim=True)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Share of the dimensions whose greatest value is the token's."""
        lowest = torch.finfo(hidden_BTD.dtype).min
        winner_BD = hidden_BTD.masked_fill(~mask_BT.unsqueeze(2), lowest).argmax(1)
        share_BD = torch.full(winner_BD.shape, 1 / self.width, device=mask_BT.device)
        return torch.zeros_like(mask_BT, dtype=torch.float32).scatter_add_(1, winner_BD, share_BD) * mask_BT

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor) -> Tensor:
        """Each dimension's product counts for the token that has its greatest value."""
        lowest = torch.finfo(hidden_BTD.dtype).min
        greatest = hidden_BTD.masked_fill(~mask_BT.unsqueeze(2), lowest).max(1)
        products_BSD = rows_BSD * (greatest.values * mask_BT.any(1, keepdim=True)).unsqueeze(1)
        shares_BST = products_BSD.new_zeros(*rows_BSD.shape[:2], mask_BT.shape[1])
        return shares_BST.scatter_add_(2, greatest.indices.unsqueeze(1).expand_as(products_BSD), products_BSD)


class AttentionPooling(Pooling):
    """Attention of learned queries: each of H heads weighs the tokens in its own way for its part of the dimensions.

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
        """Pooled vectors (B, width)."""
        values_BHTd = hidden_BTD.unflatten(2, (self.heads, -1)).transpose(1, 2)
        weights_BH1T = self.head_weights(hidden_BTD, mask_BT).to(hidden_BTD.dtype).unsqueeze(2)
        return (weights_BH1T @ values_BHTd).flatten(1)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Mean attention (B, T) of the heads."""
        return self.head_weights(hidden_BTD, mask_BT).mean(1)

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor) -> Tensor:
        """See the base: head by head, each for its part of the dimensions."""
        values_BHdT = hidden_BTD.unflatten(2, (self.heads, -1)).permute(0, 2, 3, 1)
        rows_BHSd = rows_BSD.unflatten(2, (self.heads, -1)).transpose(1, 2)
        return (rows_BHSd @ values_BHdT * self.head_weights(hidden_BTD, mask_BT).unsqueeze(2)).sum(1)

    def head_weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Attention (B, H, T), in fp32 at least."""
        keys_BTD = self.norm(hidden_BTD.to(self.queries_HD.dtype))
        scores_BHT = self.queries_HD @ keys_BTD.transpose(1, 2) * self.width**-0.5
        return attention_weights(scores_BHT.unsqueeze(2), mask_BT, self.normaliser).squeeze(2)


class Lead(Mean):
    """The mean of a document's first tokens."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__(width)
        self.tokens = tokens

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.weights`."""
        return super().weights(hidden_BTD, mask_BT & (mask_BT.cumsum(1) <= self.tokens))


class Summary(Pooling):
    """A ReLU layer over four poolings: mean, maximum, first token, and mean of the first tokens.

    pooled = ReLU(W concat_i((pool_i(hidden) - centre_i) * gain_i)). Some dimensions of encoders lie far from 0
    and would drown the others: `start` sets centre and gain so that each input starts with mean 0 and variance 1.

    A pooling of moved tokens is the moved pooling. So, for a given document, the vector is a sum over its tokens, seen
    from the centre, through the units that the ReLU keeps. `contributions` uses this.
    """

    def __init__(self, hidden_width: int, width: int, lead: int) -> None:
        super().__init__(width)
        parts = OneToken(hidden_width, last=False), Lead(hidden_width, lead)
        self.parts = nn.ModuleList([Mean(hidden_width), Max(hidden_width), *parts])
        self.layer = nn.Linear(len(self.parts) * hidden_width, width, bias=False)
        self.centres_4D = nn.Parameter(torch.zeros(len(self.parts), hidden_width))
        self.gains_4D = nn.Parameter(torch.ones(len(self.parts), hidden_width))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.forward`."""
        inputs_B4D = (self.inputs(hidden_BTD, mask_BT) - self.centres_4D) * self.gains_4D
        return F.relu(self.layer(inputs_B4D.flatten(1))) * mask_BT.any(1, keepdim=True)

    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.weights`: the mean share that a token has in the four."""
        return torch.stack([part.weights(hidden_BTD, mask_BT) for part in self.poolings()]).mean(0)

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor) -> Tensor:
        """See `Pooling.contributions`: by the units that the ReLU keeps for this document."""
        kept_BP = self(hidden_BTD, mask_BT) > 0
        products_BSX = (rows_BSD * kept_BP.unsqueeze(1)) @ self.layer.weight.to(rows_BSD.dtype)
        parts = zip(
            self.poolings(), self.centres_4D, self.gains_4D, products_BSX.chunk(len(self.parts), 2), strict=True
        )
        return torch.stack(
            [
                part.contributions(hidden_BTD - centre_D, mask_BT, part_rows_BSD * gain_D)
                for part, centre_D, gain_D, part_rows_BSD in parts
            ]
        ).sum(0)

    def inputs(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """See `Pooling.inputs`: the four poolings (B, 4, D)."""
        parts = [part(hidden_BTD, mask_BT) for part in self.poolings()]
        return torch.stack(parts, 1).to(self.layer.weight.dtype)

    @torch.no_grad()
    def start(self, inputs_NX: Tensor) -> None:
        """See `Pooling.start`."""
        self.centres_4D.copy_(inputs_NX.mean(0))
        self.gains_4D.copy_(1 / inputs_NX.std(0, correction=0).clamp(min=_LEAST_SPREAD))

    def poolings(self) -> Iterator[Pooling]:
        """The four."""
        for part in self.parts:
            assert isinstance(part, Pooling)
            yield part
