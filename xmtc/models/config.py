"""The section `model`: an encoder, a head and what joins them; nothing heavy is imported before a model is built."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.config import EncoderConfig
from xmtc.models.heads.config import HeadConfig, LabelAttentionConfig
from xmtc.scorers.config import FusionConfig, ScorerConfig

if TYPE_CHECKING:
    from xmtc.models.classifier import Classifier


@config
class ModelConfig:
    """An encoder and a head."""

    encoder: EncoderConfig = HuggingFaceConfig()
    """From tokens to hidden states."""
    head: HeadConfig = LabelAttentionConfig()
    """From hidden states to labels."""
    overlap: Annotated[int, Field(ge=0)] = 64
    """Tokens that two windows of one long document share."""
    scorers: tuple[ScorerConfig, ...] = ()
    """Further scorers whose scores are fused with the head's: linear, neighbours, label texts
    (docs/explanation/scorers.md)."""
    fusion: FusionConfig = FusionConfig()
    """How the scores of head and scorers become one probability."""

    label_text: bool = False
    """Start the label queries and classifier rows from the labels' names, embedded by the encoder, and after training
    give labels without training documents rows made of their names (docs/reference/models.md)."""

    def __post_init__(self) -> None:
        """Refuse a model that nothing scores, and a head that cannot use the encoder."""
        if not self.head.scores and not self.scorers:
            raise ValueError(f"head.kind: {self.head.kind} leaves nothing that scores; give scorers, or another head")
        if refusal := self.encoder.head_refusal(self.head):
            raise ValueError(refusal)

    def build(self, vocab_size: int, labels: int) -> "Classifier":
        """The model, on the CPU, with the weights it starts from.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.
            labels: L.

        Raises:
            ConfigError: the encoder cannot be loaded, or does not fit the corpus or these settings.
        """
        from xmtc.models.classifier import build_classifier

        return build_classifier(self, vocab_size, labels)
