"""An encoder that uses several layers of another one: MaxPoolBERT.

Suffixes: W windows, U tokens, D width, K layers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import MaxPoolConfig
from xmtc.models.encoders.base import Encoder
from xmtc.models.encoders.hugging_face import HuggingFaceBackbone


class MaxPoolEncoder(Encoder):
    """Replaces the first hidden state of an encoder by an enriched one (Behrendt et al., MaxPoolBERT, 2025).

    The additional attention's output is added to the state and starts at 0, so training starts from the plain encoder;
    in the paper, it replaces the state.

    Attributes:
        base: the encoder.
    """

    def __init__(self, base: HuggingFaceBackbone, settings: MaxPoolConfig) -> None:
        super().__init__(base.width, base.window)
        self.base = base
        self.settings = settings
        self.attention: nn.MultiheadAttention | None = None
        if settings.variant != "cls_max":
            self.attention = nn.MultiheadAttention(
                self.width, settings.heads, batch_first=True
            )
            nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D)."""
        layers_KWUD = self._layers(input_ids_WU, attention_mask_WU)
        top_WUD = layers_KWUD[-1]
        if self.attention is None:
            first_W1D = layers_KWUD[:, :, :1].amax(0)
            return torch.cat([first_W1D, top_WUD[:, 1:]], 1)
        states_WUD = layers_KWUD.amax(0)
        has_tokens_W1 = attention_mask_WU.any(1, keepdim=True)
        padding_WU = (
            ~attention_mask_WU & has_tokens_W1
        )  # a window of padding alone would have an empty softmax
        first_W1D, _ = self.attention(
            states_WUD[:, :1],
            states_WUD,
            states_WUD,
            key_padding_mask=padding_WU,
            need_weights=False,
        )
        enriched_W1D = states_WUD[:, :1] + first_W1D
        return torch.cat([enriched_W1D, states_WUD[:, 1:]], 1)

    @property
    @override
    def backbone(self) -> HuggingFaceBackbone:
        return self.base

    @property
    @override
    def first_token_is_blind(self) -> bool:
        """The additional attention sees all tokens."""
        return self.attention is None and self.base.first_token_is_blind

    def _layers(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Stack the layers (K, W, U, D) that the variant pools."""
        pooled_layers = (
            1 if self.settings.variant == "cls_attention" else self.settings.last_layers
        )
        states = self.base.hidden_states(input_ids_WU, attention_mask_WU)
        return torch.stack(list(states[-pooled_layers:]))

    @override
    def layers(self) -> Sequence[nn.Module]:
        """The layers of the base, then the additional attention."""
        layers = list(self.base.layers())
        if self.attention is not None:
            layers.append(self.attention)
        return layers


def build_max_pool(settings: MaxPoolConfig, vocab_size: int) -> MaxPoolEncoder:
    """Build the base encoder and the attention or the maximum over it."""
    base = settings.base.build(vocab_size)
    layers = base.transformer.config.num_hidden_layers
    if settings.variant != "cls_attention" and settings.last_layers > layers:
        raise ConfigError(
            f"model.encoder.last_layers: {settings.last_layers}, but model.encoder.base has {layers} layers; give at "
            f"most {layers}"
        )
    if settings.variant != "cls_max" and base.width % settings.heads:
        raise ConfigError(
            f"model.encoder.heads: {settings.heads} does not divide the encoder's width {base.width}; give a divisor"
        )
    return MaxPoolEncoder(base, settings)
