"""The interface of an encoder's settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from xmtc.models.encoders.backbone_config import HuggingFaceConfig
    from xmtc.models.encoders.base import Encoder
    from xmtc.models.heads.config import HeadSettings


class EncoderSettings(Protocol):
    """Settings of an encoder. `EncoderDefaults` has the defaults of encoders that start from scratch."""

    @property
    def kind(self) -> str:
        """Name of the encoder in configurations."""
        ...

    @property
    def backbone(self) -> "HuggingFaceConfig | None":
        """The Hugging Face model that the encoder is or contains; None if there is none."""
        ...

    @property
    def backbone_key(self) -> str:
        """The section of the configuration with the backbone, for messages."""
        ...

    @property
    def tokenizer_name(self) -> str | None:
        """The pretrained model whose tokenizer the encoder uses by default; None if there is none."""
        ...

    @property
    def vector_file(self) -> str | None:
        """The file of word vectors for the initial weights; None if there is none."""
        ...

    def head_refusal(self, head: "HeadSettings") -> str | None:
        """Say why this encoder does not work with this head, with keys below `model`; None if it does."""
        ...

    def with_backbone(self, backbone: "HuggingFaceConfig") -> "EncoderSettings":
        """Return the same encoder with another Hugging Face model, for encoders that have one."""
        ...

    def exported(self, folder: Path) -> "EncoderSettings":
        """Return settings that build this encoder from the folder `encoder/` of an exported model."""
        ...

    def build(self, vocab_size: int) -> "Encoder":
        """Build the encoder on the CPU, with its initial weights.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.

        Raises:
            ConfigError: it cannot be loaded, or does not fit the corpus.
        """
        ...


class EncoderDefaults(EncoderSettings):
    """Defaults of encoders that start from scratch and refuse nothing."""

    @property
    @override
    def backbone(self) -> "HuggingFaceConfig | None":
        return None

    @property
    @override
    def backbone_key(self) -> str:
        return "model.encoder"

    @property
    @override
    def tokenizer_name(self) -> str | None:
        return None

    @property
    @override
    def vector_file(self) -> str | None:
        return None

    @override
    def head_refusal(self, head: "HeadSettings") -> str | None:
        del head
        return None

    @override
    def with_backbone(self, backbone: "HuggingFaceConfig") -> "EncoderSettings":
        raise TypeError(f"{type(self).__name__} has no Hugging Face model")

    @override
    def exported(self, folder: Path) -> Any:
        del folder
        return self
