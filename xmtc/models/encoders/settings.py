"""The interface of an encoder's settings."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from xmtc.data.pretrained import weights_hash

if TYPE_CHECKING:
    from xmtc.models.encoders.backbone_config import HuggingFaceConfig
    from xmtc.models.encoders.base import Encoder
    from xmtc.models.heads.config import HeadSettings


MOST_LAYERS = 1_000
"""Maximum number of layers; a model that names more is damaged, and would be built for hours."""
MOST_WIDTH = 1_000_000
"""Maximum width of a layer."""
MOST_TOKENS = 1_000_000
"""Maximum number of tokens of a window."""


class EncoderSettings(Protocol):
    """Settings of an encoder. What it inherits answers for encoders that start from scratch and refuse nothing."""

    backbone_key: ClassVar[str] = "model.encoder"
    """The section of the configuration with the backbone, for messages."""

    @property
    def kind(self) -> str:
        """Name of the encoder in configurations."""
        ...

    @property
    def backbone(self) -> "HuggingFaceConfig | None":
        """The Hugging Face model that the encoder is or contains; None if there is none."""
        return None

    @property
    def pretrained(self) -> str | None:
        """Name of the model whose weights the encoder starts from; None if they are random."""
        if self.backbone is None or self.backbone.from_config is not None:
            return None
        return self.backbone.name

    @property
    def weights(self) -> str:
        """Hash of the pretrained weights in a folder; empty if they come from elsewhere, or there are none."""
        return weights_hash(self.pretrained) if self.pretrained else ""

    @property
    def tokenizer_name(self) -> str | None:
        """The pretrained model whose tokenizer the encoder uses by default; None if there is none."""
        return None

    def head_refusal(self, head: "HeadSettings") -> str | None:
        """Say why this encoder does not work with this head, with keys below `model`; None if it does."""
        del head
        return None

    def with_backbone(self, backbone: "HuggingFaceConfig") -> "EncoderSettings":
        """Return the same encoder with another Hugging Face model, for encoders that have one."""
        raise TypeError(f"{type(self).__name__} has no Hugging Face model")

    def exported(self, folder: Path) -> "EncoderSettings":
        """Return settings that build this encoder from the folder `encoder/` of an exported model."""
        del folder
        return self

    def build(self, vocab_size: int) -> "Encoder":
        """Build the encoder on the CPU, with its initial weights.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.

        Raises:
            ConfigError: it cannot be loaded, or does not fit the corpus.
        """
        ...
