"""Encoders: Hugging Face backbones and the lightweight track."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.models.encoders.bag import BagConfig
from xmtc.models.encoders.base import Encoder
from xmtc.models.encoders.bigru import BiGRUConfig
from xmtc.models.encoders.cnn import CNNConfig
from xmtc.models.encoders.hugging_face import HuggingFaceBackbone, HuggingFaceConfig
from xmtc.models.encoders.lstm import LSTMConfig
from xmtc.models.encoders.maxpool import LayerMixConfig, LayerMixEncoder, MaxPoolConfig, MaxPoolEncoder
from xmtc.models.encoders.multilevel import MultilevelConfig
from xmtc.models.encoders.self_attention import SelfAttentionConfig

__all__ = ["EncoderConfig", "HuggingFaceConfig", "backbone_in", "backbone_of", "pretrained_name"]

EncoderConfig = Annotated[
    HuggingFaceConfig
    | SelfAttentionConfig
    | MultilevelConfig
    | BiGRUConfig
    | LSTMConfig
    | CNNConfig
    | BagConfig
    | MaxPoolConfig
    | LayerMixConfig,
    Discriminator("kind"),
]


def backbone_of(encoder: EncoderConfig) -> HuggingFaceConfig | None:
    """The Hugging Face model that the encoder is or stands on; None where it starts from scratch."""
    base = encoder.base if isinstance(encoder, MaxPoolConfig | LayerMixConfig) else encoder
    return base if isinstance(base, HuggingFaceConfig) else None


def backbone_in(encoder: Encoder) -> HuggingFaceBackbone | None:
    """The same of an encoder that is built."""
    base = encoder.base if isinstance(encoder, MaxPoolEncoder | LayerMixEncoder) else encoder
    return base if isinstance(base, HuggingFaceBackbone) else None


def pretrained_name(encoder: EncoderConfig) -> str | None:
    """The pretrained model whose tokenizer the encoder takes; None where it has none of its own."""
    backbone = backbone_of(encoder)
    return None if backbone is None else backbone.name
