"""Settings of the fusion. Reading them imports no implementation."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config

CombinationKind = Literal["linear", "trees"]
RULE = r"^(micro|macro|samples|precision=(0?\.\d+|1)|budget=\d+(\.\d+)?|top_k=[1-9]\d{0,8})$"
RULES = ("micro", "macro", "samples", "precision=0.9", "budget=5", "top_k=5")
Rule = Annotated[str, Field(pattern=RULE, examples=list(RULES))]
"""What a decision is best for, see `xmtc.fusion.decision`."""
BAR = r"^expected_(precision|recall|f1)>=(0(\.\d+)?|1(\.0+)?)$"
BARS = ("expected_precision>=0.9", "expected_recall>=0.8")
Bar = Annotated[str, Field(pattern=BAR, examples=list(BARS))]
"""What must be expected of a document to be released, see `xmtc.fusion.decision.released`."""
BINS = ("0", "1-5", "6-10", "11-50", ">50")
"""The usual bins of labels, see `xmtc.data.bins`."""


@config
class FusionConfig:
    """Fuses the scores of several scorers into one probability, by a model of (document, label) pairs."""

    kind: Literal["auto", "linear", "trees"] = "auto"
    """`linear`: logistic regression with coefficients per frequency bin. `trees`: boosted trees, which need many dev
    documents. `auto`: whichever predicts the halves of dev better, each fitted on the other. The logit is an exact sum
    over scorers with both."""
    co_occurrence: bool = True
    """Whether labels that often occur together in training documents support each other, as one more scorer."""
    candidates: Annotated[int, Field(ge=1)] = 50
    """Number of labels that each scorer proposes per document. The fusion scores their union."""
