"""Settings of mining."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config

IndexKind = Literal["auto", "flat", "ivf", "hnsw"]
MAX_FLAT_LABELS = 100_000  # with more labels, exact search would dominate a step's time


@config
class IndexConfig:
    """A FAISS index over label vectors (docs/explanation/mining.md)."""

    kind: IndexKind = "auto"
    """`flat` compares a document with every label and is exact. `ivf` compares it with the labels of the nearest cells.
    `hnsw` walks a graph of neighbours and is slow to build. `auto` is flat up to 100,000 labels, ivf beyond."""
    probes: Annotated[int, Field(ge=1)] = 32
    """ivf: number of cells searched per document, out of about 2√L. More cells find more labels and take longer."""
    links: Annotated[int, Field(ge=2)] = 32
    """hnsw: number of neighbours of a label in the graph."""
    search_depth: Annotated[int, Field(ge=1)] = 128
    """hnsw: number of candidates kept during a walk; at least as many as the search returns."""
    build_threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads that build the index. With more than one, an hnsw index differs between runs."""

    def chosen(self, labels: int) -> Literal["flat", "ivf", "hnsw"]:
        """Choose the kind for this many labels."""
        if self.kind != "auto":
            return self.kind
        return "flat" if labels <= MAX_FLAT_LABELS else "ivf"


@config
class MiningConfig:
    """Hard negatives by nearest neighbours (docs/explanation/mining.md)."""

    candidates: Annotated[int, Field(ge=1)] = 32
    """Number of nearest labels to look up per document. Those that the document does not have are its hard negatives.
    Every document of a micro-batch is scored against the hard negatives of all its documents."""
    rerank: Annotated[int, Field(ge=1)] = 4
    """For label attention: look up this many times `candidates` labels, and keep the `candidates` that the head scores
    highest, because the index ignores attention. 1 trusts the index, which is exact for a flat head."""
    uniform: Annotated[int, Field(ge=1)] = 512
    """Number of further labels of a micro-batch, drawn uniformly. They represent all labels that are neither positive
    nor mined, which makes the loss an unbiased estimate of the full loss."""
    refresh_steps: Annotated[int, Field(ge=2)] = 200
    """Maximum age of the index in steps. Every `refresh_steps / 2` steps, a background thread snapshots the label
    vectors and rebuilds the index, which is used from `refresh_steps / 2` steps later. If the build takes longer,
    training continues with the old index and logs a warning."""
    index: IndexConfig = IndexConfig()
    """The index."""
