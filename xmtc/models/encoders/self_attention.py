"""A small pre-LN transformer, trained from scratch.

Suffixes: W windows, U tokens, D width, H heads, d width of a head. In local attention: N blocks of a window, R tokens
of a block (the radius), K = 3R keys that a block's queries may see.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.embedding import LightEncoder, TokenEmbedding


class SelfAttention(nn.Module):
    """Global multi-head self-attention with its projections (Vaswani et al., 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Compute contexts (W, U, D)."""
        query_WHUd, key_WHUd, value_WHUd = split_projection(
            self.project(hidden_WUD), self.heads
        )
        return self.output(global_attention(query_WHUd, key_WHUd, value_WHUd, mask_WU))


class MultilevelAttention(nn.Module):
    """Global and local self-attention in parallel, fused by a learned gate: g ⊙ global + (1 − g) ⊙ local.

    g = σ(W_g [global; local] + b), one value per token and dimension. Both have separate queries, keys and values, and
    share the output projection. This takes 9 D² weights; plain self-attention takes 4 D².
    """

    def __init__(self, width: int, heads: int, radius: int) -> None:
        super().__init__()
        self.heads = heads
        self.radius = radius
        self.project_global = nn.Linear(width, 3 * width)
        self.project_local = nn.Linear(width, 3 * width)
        self.gate = nn.Linear(2 * width, width)
        self.output = nn.Linear(width, width)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Compute contexts (W, U, D)."""
        query_WHUd, key_WHUd, value_WHUd = split_projection(
            self.project_global(hidden_WUD), self.heads
        )
        global_WUD = global_attention(query_WHUd, key_WHUd, value_WHUd, mask_WU)
        query_WHUd, key_WHUd, value_WHUd = split_projection(
            self.project_local(hidden_WUD), self.heads
        )
        local_WUD = local_attention(
            query_WHUd, key_WHUd, value_WHUd, mask_WU, self.radius
        )
        gate_WUD = torch.sigmoid(self.gate(torch.cat([global_WUD, local_WUD], 2)))
        return self.output(torch.lerp(local_WUD, global_WUD, gate_WUD))


class TransformerEncoder(LightEncoder):
    """Embedding, pre-LN blocks and a final norm."""

    def __init__(
        self, embedding: TokenEmbedding, width: int, blocks: "Sequence[Block]"
    ) -> None:
        super().__init__(embedding, width, blocks)
        self.widen: Callable[[Tensor], Tensor] = nn.Identity()
        if embedding.width != width:
            self.widen = nn.Linear(embedding.width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        hidden_WUD = self.widen(self.embedding(input_ids_WU, attention_mask_WU))
        for block in self.blocks:
            hidden_WUD = block(hidden_WUD, attention_mask_WU)
        return self.norm(hidden_WUD) * attention_mask_WU.unsqueeze(2)


class Block(nn.Module):
    """x + attention(LN x), then x + transform(LN x) (pre-LN: Xiong et al., 2020)."""

    def __init__(
        self,
        width: int,
        attention: SelfAttention | MultilevelAttention,
        transform: nn.Module,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.transform = transform
        self.norm_attention = nn.LayerNorm(width)
        self.norm_transform = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D)."""
        context_WUD = self.attention(self.norm_attention(hidden_WUD), mask_WU)
        hidden_WUD = hidden_WUD + self.dropout(context_WUD)
        transformed_WUD = self.transform(self.norm_transform(hidden_WUD), mask_WU)
        return hidden_WUD + self.dropout(transformed_WUD)


class FeedForward(nn.Module):
    """W_2 GELU(W_1 x), without inner dropout, whose mask would take a tenth of a training step on a CPU.

    Through a quarter of the width it has D²/2 weights, against the 8 D² of the usual four times the width.
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.activation = nn.GELU()

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transform states (W, U, D) token by token; the mask is for transforms that use neighbours."""
        inner_WUX = self.activation(self.up(hidden_WUD))
        return self.down(inner_WUX)


class Depthwise(nn.Module):
    """scale ⊙ GELU(convolution of each dimension over 7 neighbouring tokens): 9 D weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(
            width, width, kernel_size=7, padding=3, groups=width
        )
        self.scale = nn.Conv1d(width, width, kernel_size=1, groups=width, bias=False)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Transform states (W, U, D); padding enters as 0."""
        unpadded_WUD = hidden_WUD * mask_WU.unsqueeze(2)
        signal_WDU = self.convolution(unpadded_WUD.transpose(1, 2))
        scaled_WDU = self.scale(F.gelu(signal_WDU))
        return scaled_WDU.transpose(1, 2)


def split_projection(
    projected_WUX: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Split a joint projection (W, U, 3·D) into queries, keys and values (W, H, U, d)."""
    projected_WU3Hd = projected_WUX.unflatten(2, (3, heads, -1))
    query_WHUd, key_WHUd, value_WHUd = projected_WU3Hd.permute(2, 0, 3, 1, 4)
    return query_WHUd, key_WHUd, value_WHUd


def global_attention(
    query_WHUd: Tensor, key_WHUd: Tensor, value_WHUd: Tensor, mask_WU: Tensor
) -> Tensor:
    """Compute softmax(QKᵀ/√d) V over the unpadded tokens, heads concatenated: (W, U, D)."""
    context_WHUd = F.scaled_dot_product_attention(
        query_WHUd, key_WHUd, value_WHUd, attn_mask=mask_WU[:, None, None]
    )
    return context_WHUd.transpose(1, 2).flatten(2)


def local_attention(
    query_WHUd: Tensor,
    key_WHUd: Tensor,
    value_WHUd: Tensor,
    mask_WU: Tensor,
    radius: int,
) -> Tensor:
    """Compute attention over the tokens at most `radius` away, in O(U·radius) time and memory: (W, U, D).

    Tokens are divided into blocks of `radius`. A block's queries see the tokens of their block and of the two
    neighbouring blocks that are within the band. Padding queries see themselves, so no softmax is empty. Texts of up to
    three blocks are computed at once, which is cheaper.
    """
    length = mask_WU.shape[1]
    if length <= 3 * radius:
        allowed_W1UU = band_mask(mask_WU, radius).unsqueeze(1)
        context_WHUd = F.scaled_dot_product_attention(
            query_WHUd, key_WHUd, value_WHUd, attn_mask=allowed_W1UU
        )
        return context_WHUd.transpose(1, 2).flatten(2)
    blocks = (length + radius - 1) // radius
    extra = blocks * radius - length
    padded_WHUd = F.pad(query_WHUd, (0, 0, 0, extra))
    query_WNHRd = _in_blocks(padded_WHUd, 2, 0, blocks, radius).transpose(1, 2)
    context_XHRd = F.scaled_dot_product_attention(
        query_WNHRd.flatten(0, 1),
        _with_neighbours(key_WHUd, blocks, radius, extra),
        _with_neighbours(value_WHUd, blocks, radius, extra),
        attn_mask=_band_of_blocks(mask_WU, blocks, radius, extra),
    )
    context_WNRHd = context_XHRd.transpose(1, 2).unflatten(0, (-1, blocks))
    context_WUD = context_WNRHd.flatten(1, 2).flatten(2)
    return context_WUD[:, :length]


def band_mask(mask_WU: Tensor, radius: int) -> Tensor:
    """Make the dense mask (W, U, U) of keys that a query may see in local attention."""
    positions_U = torch.arange(mask_WU.shape[1], device=mask_WU.device)
    near_UU = (positions_U.unsqueeze(1) - positions_U).abs() <= radius
    itself_UU = torch.eye(len(positions_U), dtype=torch.bool, device=mask_WU.device)
    return (near_UU & mask_WU.unsqueeze(1)) | itself_UU


def _with_neighbours(x_WHUd: Tensor, blocks: int, radius: int, extra: int) -> Tensor:
    """Join each block with its two neighbours: (W·N, H, K, d)."""
    padded_WHUd = F.pad(x_WHUd, (0, 0, radius, radius + extra))
    shifted = [_in_blocks(padded_WHUd, 2, first, blocks, radius) for first in range(3)]
    joined_WHNKd = torch.cat(shifted, 3)
    return joined_WHNKd.transpose(1, 2).flatten(0, 1)


def _in_blocks(
    padded: Tensor, dim: int, first: int, blocks: int, radius: int
) -> Tensor:
    """Split dimension `dim` into blocks of `radius` tokens, starting at block `first`."""
    span = padded.narrow(dim, first * radius, blocks * radius)
    return span.unflatten(dim, (blocks, radius))


def _band_of_blocks(mask_WU: Tensor, blocks: int, radius: int, extra: int) -> Tensor:
    """Make the mask of the keys that each query of each block may see: (W·N, 1, R, K)."""
    padded_WU = F.pad(mask_WU, (radius, radius + extra))
    shifted = [_in_blocks(padded_WU, 1, first, blocks, radius) for first in range(3)]
    present_WNK = torch.cat(shifted, 2)
    query_positions_R = torch.arange(radius, device=mask_WU.device)
    key_positions_K = torch.arange(3 * radius, device=mask_WU.device)
    offset_RK = key_positions_K - radius - query_positions_R.unsqueeze(1)
    near_RK = offset_RK.abs() <= radius
    itself_RK = offset_RK == 0
    allowed_WNRK = (present_WNK.unsqueeze(2) & near_RK) | itself_RK
    return allowed_WNRK.flatten(0, 1).unsqueeze(1)
