"""Settings of mining."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config

IndexKind = Literal["auto", "flat", "ivf", "hnsw"]
MOST_FLAT_LABELS = 100_000  # beyond, an exact search of all label vectors is what a step waits for


@config
class IndexConfig:
    """A FAISS index over label vectors (docs/explanation/mining.md)."""

    kind: IndexKind = "auto"
    """flat: exact, compares a document with every label. ivf: compares it with the labels of the nearest cells. hnsw:
    walks a graph of neighbours; slow to build. auto: flat up to 100,000 labels, ivf beyond."""
    probes: Annotated[int, Field(ge=1)] = 32
    """ivf: cells searched per document, of about 2√L. More cells find more labels and take longer."""
    links: Annotated[int, Field(ge=2)] = 32
    """hnsw: neighbours of a label in the graph."""
    search_depth: Annotated[int, Field(ge=1)] = 128
    """hnsw: candidates kept during a walk; at least as many as are asked for are."""
    build_threads: Annotated[int, Field(ge=1)] = 1
    """CPU threads that build it. With more than one, an hnsw index is not the same in every run."""

    def chosen(self, labels: int) -> Literal["flat", "ivf", "hnsw"]:
        """The kind for this many labels."""
        if self.kind != "auto":
            return self.kind
        return "flat" if labels <= MOST_FLAT_LABELS else "ivf"


@config
class MiningConfig:
    """Hard negatives by nearest neighbours (docs/explanation/mining.md)."""

    candidates: Annotated[int, Field(ge=1)] = 32
    """Labels nearest to a document that are looked up; those that are not its own are its hard negatives. All
    documents of a micro-batch are compared with the hard negatives of each."""
    rerank: Annotated[int, Field(ge=1)] = 4
    """For label attention, look up so many times as many, and keep the `candidates` that the head itself scores
    highest: the index knows nothing of attention. 1 trusts the index, as a flat head always may."""
    uniform: Annotated[int, Field(ge=1)] = 512
    """Further labels of a micro-batch, drawn uniformly: they stand for all that are neither positive nor mined, so that
    the loss estimates the full one without bias."""
    refresh_steps: Annotated[int, Field(ge=2)] = 200
    """The index is at most this many steps old: every half of it, a background thread starts a new one from the label
    vectors of that step, which takes over half of it later. If building takes longer, training
    continues with the old index, and says so."""
    index: IndexConfig = IndexConfig()
    """The index."""
