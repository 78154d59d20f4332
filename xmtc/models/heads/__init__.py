"""From hidden states to logits: label-wise attention, or one vector a document."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.models.heads.flat import FlatConfig, FlatHead
from xmtc.models.heads.label_attention import LabelAttentionConfig, LabelAttentionHead
from xmtc.models.heads.two_tower import TwoTowerConfig, TwoTowerHead

__all__ = [
    "FlatConfig",
    "FlatHead",
    "HeadConfig",
    "LabelAttentionConfig",
    "LabelAttentionHead",
    "TwoTowerConfig",
    "TwoTowerHead",
]

HeadConfig = Annotated[LabelAttentionConfig | FlatConfig | TwoTowerConfig, Discriminator("kind")]
