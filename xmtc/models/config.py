"""The section `model`: an encoder, a head and what joins them; nothing heavy is imported before a model is built."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from xmtc.config.base import config
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.config import EncoderConfig
from xmtc.models.heads.config import HeadConfig, LabelAttentionConfig
from xmtc.scorers.config import FusionConfig, ScorerConfig

if TYPE_CHECKING:
    from xmtc.models.classifier import Classifier


@config
class LexicalConfig:
    """One linear support vector machine per label over TF-IDF of the tokens (Babbar & Schölkopf 2017, DiSMEC)."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.6
    """Share of the lexical logit in the fused one: `(1 − share) · head + share · lexical`."""
    ngrams: Annotated[int, Field(ge=1, le=5)] = 1
    """Terms are the n-grams of 1 to this many tokens."""
    min_documents: Annotated[int, Field(ge=1)] = 3
    """An n-gram of two or more tokens in fewer training documents than this is left out."""
    weighting: Literal["uniform", "log_odds"] = "uniform"
    """How far the weight of a term may move: all alike, or in proportion to the log-odds of the label that the term has
    in the training documents (NB-SVM, Wang & Manning 2012): for few labels with many documents each."""
    c: Annotated[float, Field(gt=0)] = 3.0
    """Inverse strength of the L2 regularisation."""
    negatives: Annotated[int, Field(ge=1)] = 20_000
    """Most training documents besides its own that a label learns from: those most like its own."""
    prune: Annotated[float, Field(ge=0)] = 0.01
    """Weights smaller than this are dropped; what is left is the size of the exported model."""


@config
class ModelConfig:
    """An encoder and a head."""

    encoder: EncoderConfig = HuggingFaceConfig()
    """From tokens to hidden states."""
    head: HeadConfig = LabelAttentionConfig()
    """From hidden states to labels."""
    overlap: Annotated[int, Field(ge=0)] = 64
    """Tokens that two windows of one long document share."""
    lexical: LexicalConfig | None = None
    """A sparse linear model over the tokens, fused with the head when documents are scored; none when absent."""

    scorers: tuple[ScorerConfig, ...] = ()
    """Further scorers whose scores are fused with the head's: linear, neighbours, label texts (docs/scorers.md)."""
    fusion: FusionConfig = FusionConfig()
    """How the scores of head and scorers become one probability."""

    label_text: bool = False
    """Start the label queries and classifier rows from the labels' names, embedded by the encoder, and after training
    give labels without training documents rows made of their names (docs/models.md)."""

    def __post_init__(self) -> None:
        """Refuse a lexical branch that leaves nothing to names, and a head that the encoder is of no use under."""
        if self.label_text and self.lexical is not None and self.lexical.share == 1:
            raise ValueError(
                "label_text: a lexical.share of 1 leaves nothing to the head; lower one or leave out the other"
            )
        if not self.head.scores and not self.scorers:
            raise ValueError(f"head.kind: {self.head.kind} leaves nothing that scores; give scorers, or another head")
        if self.scorers and self.lexical is not None:
            raise ValueError("scorers and lexical exclude each other: the linear scorer replaces it; leave out lexical")
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
