"""The section `model`: encoder, head and scorers. Heavy imports happen only when a model is built."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.fusion.config import FusionConfig
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.config import EncoderConfig
from xmtc.models.heads.config import HeadConfig, LabelAttentionConfig
from xmtc.scorers.config import ScorerConfig

if TYPE_CHECKING:
    from xmtc.models.classifier import Classifier


@config
class ModelConfig:
    """An encoder and a head."""

    encoder: EncoderConfig = HuggingFaceConfig()
    """Turns tokens into hidden states."""
    head: HeadConfig = LabelAttentionConfig()
    """Turns hidden states into labels."""
    overlap: Annotated[int, Field(ge=0)] = 64
    """Number of tokens that neighbouring windows of a long document share."""
    scorers: tuple[ScorerConfig, ...] = ()
    """Further scorers, fused with the head: linear, neighbours, label texts (docs/explanation/scorers.md)."""
    fusion: FusionConfig = FusionConfig()
    """Fusion of the scores of head and scorers into one probability."""

    init_from: Annotated[str, Field(min_length=1)] | None = None
    """Continue from this model or run: folder, URI, or `owner/name` on the Hugging Face Hub. Labels that it knows keep
    their rows, and the report compares with it (docs/how-to/continue.md)."""
    label_text: bool = False
    """Start label queries and classifier rows from the labels' names (docs/reference/models.md)."""

    def __post_init__(self) -> None:
        """Refuse a model without head and scorers, and a head that cannot use the encoder."""
        if not self.head.scores and not self.scorers:
            raise ValueError(
                f"head.kind: {self.head.kind} scores nothing; give scorers, or another head"
            )
        if refusal := self.encoder.head_refusal(self.head):
            raise ValueError(refusal)

    def build(self, vocab_size: int, labels: int) -> "Classifier":
        """Build the model on the CPU, with its initial weights.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.
            labels: L.

        Raises:
            ConfigError: the encoder cannot be loaded, or does not fit the corpus or these settings.
        """
        from xmtc.models.classifier import build_classifier

        return build_classifier(self, vocab_size, labels)
