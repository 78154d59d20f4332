"""Settings of the losses. Reading them imports no numerical library; `build` does."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import FAMILIES, Members
from xmtc.data.config import Task

if TYPE_CHECKING:
    from torch import nn

    from xmtc.losses.base import Loss


class LossSettings(Protocol):
    """Settings of a loss that trains a classifier, and what it can do. The defaults are those of a `BinaryLoss`, a sum
    over labels of which any part gives its part of the sum.
    """

    task: ClassVar[Task]
    """The task that it fits: `single_label` where a document's labels exclude each other."""

    @property
    def kind(self) -> str:
        """The name of the loss in a configuration."""
        ...

    refuses_sampled_labels: ClassVar[str | None] = None
    """Why the loss cannot be estimated from a sample of the labels, as the end of a sentence; None where it can. A sum
    over labels can: each sampled label counts as many times as there are labels that it stands for."""
    refuses_label_shards: ClassVar[str | None] = None
    """Why workers that each have some of the labels cannot add up their losses; None where they can."""

    @property
    def separable(self) -> bool:
        """Whether it is a `BinaryLoss` of which no logit's loss depends on another logit: labels may be trained in
        chunks.
        """
        return True

    def build(self) -> "Loss":
        """Build the loss."""
        ...


@config
class AsymmetricFocalConfig(LossSettings):
    """Asymmetric focal loss (Ridnik et al. 2021), optionally on the hardest negatives and a sample of the rest."""

    task: ClassVar[Task] = "multi_label"

    kind: Literal["asymmetric_focal"] = "asymmetric_focal"
    """Which loss."""
    gamma_positive: Annotated[float, Field(ge=0)] = 0.0
    """γ+: how strongly the loss discounts positives that are already right; 0 to 1."""
    gamma_negative: Annotated[float, Field(ge=0)] = 4.0
    """γ−: how strongly the loss discounts easy negatives."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Negatives with a probability below this do not count at all."""
    hard_negatives: Annotated[int, Field(ge=1)] | None = None
    """K: train on the K highest-scored negatives of each document and on a sample of the rest; all when absent."""
    sampled_negatives: Annotated[int, Field(ge=1)] = 256
    """M: columns drawn uniformly for each document to stand for the rest; only with `hard_negatives`."""

    @property
    @override
    def separable(self) -> bool:
        """The hardest negatives are those of all labels."""
        return self.hard_negatives is None

    @override
    def build(self) -> "Loss":
        from xmtc.losses.asymmetric_focal import AsymmetricFocal

        return AsymmetricFocal(self)


@config
class BinaryCrossEntropyConfig(LossSettings):
    """Binary cross-entropy of every label."""

    task: ClassVar[Task] = "multi_label"

    kind: Literal["binary_cross_entropy"] = "binary_cross_entropy"
    """Which loss."""
    positive_weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of positives against negatives; above 1 trades precision for recall."""

    @override
    def build(self) -> "Loss":
        from xmtc.losses.binary_cross_entropy import BinaryCrossEntropy

        return BinaryCrossEntropy(self.positive_weight)


@config
class CrossEntropyConfig(LossSettings):
    """Softmax cross-entropy, for tasks in which a document has exactly one label."""

    task: ClassVar[Task] = "single_label"
    refuses_sampled_labels: ClassVar[str | None] = "a softmax needs every label"
    refuses_label_shards: ClassVar[str | None] = (
        "a softmax needs every label, and each worker has only its own"
    )

    kind: Literal["cross_entropy"] = "cross_entropy"
    """Which loss."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target that is spread evenly over all labels."""

    @property
    @override
    def separable(self) -> bool:
        return False

    @override
    def build(self) -> "Loss":
        from xmtc.losses.cross_entropy import CrossEntropy

        return CrossEntropy(self.label_smoothing)


LossConfig = Annotated[
    LossSettings,
    Members(
        "xmtc.losses",
        AsymmetricFocalConfig,
        BinaryCrossEntropyConfig,
        CrossEntropyConfig,
    ),
]


def kinds_for(task: Task) -> list[str]:
    """List the losses that fit a task, by kind."""
    losses = FAMILIES["xmtc.losses"].all
    return [
        kind
        for kind, settings in losses.items()
        if getattr(settings, "task", None) == task
    ]


class RankingLossSettings(Protocol):
    """Settings of a learning-to-rank loss for stage 1."""

    @property
    def kind(self) -> str:
        """The name of the loss in a configuration."""
        ...

    def build(self) -> "nn.Module":
        """Build the loss: from scores, grades and mask (N, T), see `LambdaRank`, to the loss of each list (N,)."""
        ...


@config
class LambdaRankConfig(RankingLossSettings):
    """LambdaRank (Burges 2010): weighs each pair by how much swapping it would change nDCG@k."""

    kind: Literal["lambdarank"] = "lambdarank"
    cutoff: Annotated[int, Field(ge=1)] = 50
    """k of the nDCG@k whose change weighs the pairs: a pair wholly below rank k weighs nothing."""
    graded_items: Annotated[int, Field(ge=1)] = 8
    """One side of every pair is among this many best-graded items of the list: bounds memory to N·P·T."""

    @override
    def build(self) -> "nn.Module":
        from xmtc.losses.lambdarank import LambdaRank

        return LambdaRank(self)


@config
class ListNetConfig(RankingLossSettings):
    """ListNet (Cao et al. 2007), top-one approximation."""

    kind: Literal["listnet"] = "listnet"

    @override
    def build(self) -> "nn.Module":
        from xmtc.losses.listnet import ListNet

        return ListNet()


RankingLossConfig = Annotated[
    RankingLossSettings, Members("xmtc.ranking_losses", LambdaRankConfig, ListNetConfig)
]
