"""Settings of mining and of the index of labels."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config

MAX_FLAT_LABELS = 100_000
"""With more labels, exact search would dominate a step's time."""


@config
class IndexConfig:
    """A FAISS index over label vectors (docs/explanation/mining.md)."""

    kind: Literal["auto", "flat", "ivf"] = "auto"
    """`flat` compares a document with every label and is exact. `ivf` compares it with the labels of the nearest cells.
    `auto` is flat up to 100,000 labels, ivf beyond."""
    probes: Annotated[int, Field(ge=1)] = 32
    """ivf: number of cells searched per document, out of about 2√L. More cells find more labels and take longer."""

    def chosen(self, labels: int) -> Literal["flat", "ivf"]:
        """Choose the kind for this many labels."""
        if self.kind != "auto":
            return self.kind
        return "flat" if labels <= MAX_FLAT_LABELS else "ivf"


@config
class MiningConfig:
    """Hard negatives by nearest neighbours (docs/explanation/mining.md)."""

    candidates: Annotated[int, Field(ge=1)] = 32
    """Number of nearest labels to look up per document. All documents of a micro-batch are scored against the hard
    negatives of all."""
    uniform: Annotated[int, Field(ge=1)] = 512
    """Number of further labels of a micro-batch, drawn uniformly to stand for all others."""
    refresh_steps: Annotated[int, Field(ge=2)] = 200
    """Maximum age of the index in steps, see docs/explanation/mining.md#how-old-the-index-is."""
