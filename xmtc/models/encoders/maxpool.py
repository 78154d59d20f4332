"""Encoders that use several layers of another: MaxPoolBERT, and a learned mix of layers.

Suffixes: W windows, U tokens, D width, K layers.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Discriminator, Field
from torch import Tensor, nn

from xmtc.config.base import config
from xmtc.errors import ConfigError
from xmtc.models.encoders.hugging_face import HuggingFaceBackbone, HuggingFaceConfig
from xmtc.models.encoders.multilevel import MultilevelConfig
from xmtc.models.encoders.self_attention import SelfAttentionConfig, TransformerEncoder

FIRST_TOKEN = "cls"
"""The kind of attention of a window's first token; of a document it is that of its first window's."""


@config
class MaxPoolConfig:
    """MaxPoolBERT: a Hugging Face encoder whose first token, [CLS], is enriched. Use it with first-token pooling."""

    kind: Literal["maxpool"] = "maxpool"
    """Which encoder."""
    base: HuggingFaceConfig = HuggingFaceConfig()
    """The encoder."""
    variant: Literal["cls_max", "cls_attention", "all_max_attention"] = "all_max_attention"
    """cls_max: [CLS] is its greatest value, dimension by dimension, over the last layers. cls_attention: [CLS] attends
    over the last layer once more. all_max_attention: every token is max-pooled over the last layers, then [CLS]
    attends over them."""
    last_layers: Annotated[int, Field(ge=1)] = 3
    """k: how many layers, from the top, are pooled; unused by cls_attention."""
    heads: Annotated[int, Field(ge=1)] = 4
    """Heads of the additional attention; must divide the encoder's width; unused by cls_max."""

    def __post_init__(self) -> None:
        """Refuse what the wrapper cannot do."""
        _refuse_groups(self.base)

    def build(self, vocab_size: int) -> "MaxPoolEncoder":
        """The encoder, loaded.

        Raises:
            ConfigError: see `HuggingFaceConfig.build`; or it has fewer layers, or a width that the heads do not divide.
        """
        base = self.base.build(vocab_size)
        if self.variant != "cls_attention":
            _check_layers(base, self.last_layers)
        if self.variant != "cls_max" and base.width % self.heads:
            raise ConfigError(
                f"model.encoder.heads: {self.heads} does not divide the encoder's width {base.width}; give a divisor"
            )
        return MaxPoolEncoder(base, self)


@config
class LayerMixConfig:
    """Trainable weighted sum over the layers of another encoder (Peters et al. 2018)."""

    kind: Literal["layer_mix"] = "layer_mix"
    """Which encoder."""
    base: Annotated[HuggingFaceConfig | SelfAttentionConfig | MultilevelConfig, Discriminator("kind")] = (
        HuggingFaceConfig()
    )
    """The encoder."""
    last_layers: Annotated[int, Field(ge=1)] = 4
    """How many layers, from the top, are summed."""

    def __post_init__(self) -> None:
        """Refuse what the wrapper cannot do."""
        if isinstance(self.base, HuggingFaceConfig):
            _refuse_groups(self.base)

    def build(self, vocab_size: int) -> "LayerMixEncoder":
        """The encoder, loaded.

        Raises:
            ConfigError: see `HuggingFaceConfig.build`; or it has fewer layers.
        """
        base = self.base.build(vocab_size)
        _check_layers(base, self.last_layers)
        return LayerMixEncoder(base, self.last_layers)


class MaxPoolEncoder(nn.Module):
    """Hidden states of the encoder, with an enriched one in the first position (Behrendt et al., MaxPoolBERT, 2025).

    The additional attention adds to what it starts from and begins at 0, so that training starts at the plain encoder.

    Attributes:
        base: the encoder.
        width: D.
        window: most tokens of one window.
    """

    def __init__(self, base: HuggingFaceBackbone, config: MaxPoolConfig) -> None:
        super().__init__()
        self.base, self.config = base, config
        self.width, self.window = base.width, base.window
        self.attention: nn.MultiheadAttention | None = None
        if config.variant != "cls_max":
            self.attention = nn.MultiheadAttention(self.width, config.heads, batch_first=True)
            nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D)."""
        layers_KWUD = self._layers(input_ids_WU, attention_mask_WU)
        top_WUD = layers_KWUD[-1]
        if self.attention is None:
            first_W1D = layers_KWUD[:, :, :1].amax(0)
            return torch.cat([first_W1D, top_WUD[:, 1:]], 1)
        states_WUD = layers_KWUD.amax(0)
        first_W1D = states_WUD[:, :1]
        added_W1D, _ = _attend(self.attention, states_WUD, attention_mask_WU, need_weights=False)
        return torch.cat([first_W1D + added_W1D, states_WUD[:, 1:]], 1)

    def attention_received(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        """Share (W, U) of the additional attention of [CLS] that each token gets; nothing for cls_max."""
        if self.attention is None:
            return {}
        states_WUD = self._layers(input_ids_WU, attention_mask_WU).amax(0)
        _, weights_W1U = _attend(self.attention, states_WUD, attention_mask_WU, need_weights=True)
        return {FIRST_TOKEN: weights_W1U.squeeze(1)}

    def _layers(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """The layers (K, W, U, D) that the variant pools."""
        pooled = 1 if self.config.variant == "cls_attention" else self.config.last_layers
        return torch.stack(list(self.base.hidden_states(input_ids_WU, attention_mask_WU)[-pooled:]))

    def layers(self) -> Sequence[nn.Module]:
        """The encoder's layers and, on top, the additional attention."""
        return [*self.base.layers(), *([] if self.attention is None else [self.attention])]


class LayerMixEncoder(nn.Module):
    """γ Σ_k softmax(w)_k hidden_k, token by token (the scalar mix of Peters et al., ELMo, 2018).

    Attributes:
        base: the encoder.
        width: D.
        window: most tokens of one window.
    """

    def __init__(self, base: HuggingFaceBackbone | TransformerEncoder, last_layers: int) -> None:
        super().__init__()
        self.base, self.width, self.window = base, base.width, base.window
        self.mix = _Mix(last_layers)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D)."""
        states = self.base.hidden_states(input_ids_WU, attention_mask_WU)
        return self.mix(torch.stack(list(states[-len(self.mix.weights_K) :])))

    def layers(self) -> Sequence[nn.Module]:
        """The encoder's layers and, on top, the mix."""
        return [*self.base.layers(), self.mix]


class _Mix(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights_K = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers_KWUD: Tensor) -> Tensor:
        shares_K = (self.scale * self.weights_K.softmax(0)).to(layers_KWUD.dtype)
        return torch.tensordot(shares_K, layers_KWUD, 1)


def _attend(
    attention: nn.MultiheadAttention, states_WUD: Tensor, mask_WU: Tensor, *, need_weights: bool
) -> tuple[Tensor, Tensor]:
    """What [CLS] reads (W, 1, D) of its window, and with `need_weights` where (W, 1, U), mean over heads."""
    padding_WU = ~mask_WU & mask_WU.any(1, keepdim=True)  # no softmax over nothing
    return attention(states_WUD[:, :1], states_WUD, states_WUD, key_padding_mask=padding_WU, need_weights=need_weights)


def _check_layers(base: HuggingFaceBackbone | TransformerEncoder, last_layers: int) -> None:
    scratch = isinstance(base, TransformerEncoder)
    has: int = len(base.blocks) if scratch else base.transformer.config.num_hidden_layers  # pyright: ignore
    if last_layers > has:
        raise ConfigError(
            f"model.encoder.last_layers: {last_layers}, but model.encoder.base has {has} layers; give at most {has}"
        )


def _refuse_groups(base: HuggingFaceConfig) -> None:
    if base.window_group is not None:
        raise ValueError("`base.window_group` cannot be combined with the use of several layers: leave it out")
