"""The `evaluate` section of a configuration."""

from typing import Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.fusion.config import BINS, Rule
from xmtc.mining.config import IndexConfig

BinName = Annotated[
    str, Field(pattern=r"^(\d+|\d+-\d+|>\d+)$", examples=["0", "1-5", ">50"])
]


@config
class EvaluateConfig:
    """Which predictions are kept and how they are measured."""

    top_k: Annotated[int, Field(ge=1)] = 100
    """Predictions kept per document, best first. Metrics see no more than these; 100 leaves P@k … nDCG@k exact."""
    shortlist: Annotated[int, Field(ge=1)] | None = None
    """Score only this many labels per document, which an index finds. What it misses is `shortlist_recall@5`. Areas
    under the curve are left out."""
    index: IndexConfig = IndexConfig()
    """The index of the labels that is exported with the model and finds shortlists (docs/explanation/mining.md)."""
    bins: tuple[BinName, ...] = BINS
    """Groups of labels by the number of their training documents: `n`, `a-b` or `>n`; they may overlap."""
    propensity_a: Annotated[float, Field(gt=0)] = 0.55
    """A of the propensity model (Jain et al. 2016): 0.55 in general, 0.6 for Amazon, 0.5 for Wikipedia."""
    propensity_b: Annotated[float, Field(gt=0)] = 1.5
    """B of the propensity model: 1.5 in general, 2.6 for Amazon, 0.4 for Wikipedia."""
    resamples: Annotated[int, Field(ge=0)] = 1000
    """Bootstrap resamples (reweightings of the documents) behind every 95 % interval; 0 leaves intervals out."""
    calibration: bool = True
    """Fit a scale and an offset of the logits on dev for each bin of labels, so that scores are probabilities. Not for
    single-label tasks."""
    fit_on_dev: bool = False
    """Once dev is measured, fit the scorers other than the head on train and dev together, for test and the model."""
    decision: Rule = "micro"
    """What the choice of a document's labels is best for, tuned on dev: `micro`, `macro` or `samples` F1,
    `precision=0.9`, `budget=5` (labels a document) or `top_k=5` (docs/reference/metrics.md#decisions). `xmtc decide`
    changes it later. Not for single-label tasks."""
