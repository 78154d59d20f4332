"""The family of encoders, by settings.

A package adds an encoder by an entry point of the group `xmtc.encoders`. Its settings class is a `@config` dataclass
that inherits from `EncoderSettings` and has a `kind` and a `build`.
"""

from typing import Annotated

from xmtc.config.members import Members
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, MaxPoolConfig
from xmtc.models.encoders.light_config import (
    BagConfig,
    BiGRUConfig,
    CNNConfig,
    MultilevelConfig,
    SelfAttentionConfig,
)
from xmtc.models.encoders.settings import EncoderSettings

EncoderConfig = Annotated[
    EncoderSettings,
    Members(
        "xmtc.encoders",
        HuggingFaceConfig,
        SelfAttentionConfig,
        MultilevelConfig,
        BiGRUConfig,
        CNNConfig,
        BagConfig,
        MaxPoolConfig,
    ),
]
"""What an encoder is: from tokens to hidden states."""
