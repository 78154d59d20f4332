"""What the rest of the package asks of an encoder's settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from xmtc.models.encoders.backbone_config import HuggingFaceConfig
    from xmtc.models.encoders.base import Encoder
    from xmtc.models.heads.config import HeadSettings


class EncoderSettings(Protocol):
    """Settings of an encoder. `EncoderDefaults` answers for encoders that start from scratch."""

    @property
    def kind(self) -> str:
        """Name of the encoder in configurations."""
        ...

    @property
    def backbone(self) -> "HuggingFaceConfig | None":
        """The Hugging Face model that the encoder is or contains; None where there is none."""
        ...

    @property
    def backbone_key(self) -> str:
        """The section of the configuration that holds it, for messages."""
        ...

    @property
    def tokenizer_name(self) -> str | None:
        """The pretrained model whose tokenizer the encoder takes; None where it has none of its own."""
        ...

    @property
    def vector_file(self) -> str | None:
        """The file of word vectors that the first weights come from; None where there is none."""
        ...

    def head_refusal(self, head: "HeadSettings") -> str | None:
        """Why this encoder is of no use under this head, in a sentence with keys beneath `model`; None where it is."""
        ...

    def with_backbone(self, backbone: "HuggingFaceConfig") -> "EncoderSettings":
        """The same encoder with another Hugging Face model; for encoders that have one."""
        ...

    def exported(self, folder: Path) -> "EncoderSettings":
        """This encoder, made from what the folder `encoder/` of an exported model holds of it."""
        ...

    def build(self, vocab_size: int) -> "Encoder":
        """The encoder, on the CPU, with the weights that it starts from.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.

        Raises:
            ConfigError: it cannot be loaded, or does not fit the corpus.
        """
        ...


class EncoderDefaults:
    """What an encoder answers that starts from scratch and has nothing to refuse."""

    @property
    def backbone(self) -> "HuggingFaceConfig | None":
        """See `EncoderSettings.backbone`."""
        return None

    @property
    def backbone_key(self) -> str:
        """See `EncoderSettings.backbone_key`."""
        return "model.encoder"

    @property
    def tokenizer_name(self) -> str | None:
        """See `EncoderSettings.tokenizer_name`."""
        return None

    @property
    def vector_file(self) -> str | None:
        """See `EncoderSettings.vector_file`."""
        return None

    def head_refusal(self, head: "HeadSettings") -> str | None:
        """See `EncoderSettings.head_refusal`."""
        del head
        return None

    def with_backbone(self, backbone: "HuggingFaceConfig") -> "EncoderSettings":
        """See `EncoderSettings.with_backbone`."""
        raise TypeError(f"{type(self).__name__} has no Hugging Face model")

    def exported(self, folder: Path) -> Any:
        """See `EncoderSettings.exported`."""
        del folder
        return self
