"""Plant a head: the steps in their order, for whoever has documents and a classifier."""

from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import torch
from torch import Tensor

from xmtc.distributed.collectives import rank_and_world_size
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel, PlantsProjections
from xmtc.models.heads.config import PlantedPart
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.plan import PlantingPlan
from xmtc.planting.projections import (
    PlantSums,
    plant_attention,
    plant_centre,
    plant_values,
)
from xmtc.planting.prototypes import plant_prototypes
from xmtc.planting.ridge_rows import plant_ridge_rows
from xmtc.planting.sums import ReadFor
from xmtc.track.console import print_line
from xmtc.training.label_shard import LabelShard

PASSES = ("projections", "rows")
"""Names of the passes over all training documents."""


class Passes(Protocol):
    """What planting asks of the run that it is part of. Every call is collective."""

    def over_train(self, name: str, title: str) -> ReadFor:
        """Read all training documents.

        Args:
            name: of the pass, under which an interrupted run saves its sums.
            title: of the progress bar.
        """
        ...

    def over_sample(self, documents: int, title: str) -> ReadFor:
        """Read so many training documents, the same ones in every call."""
        ...

    def rank_tokens(self) -> None:
        """Train the attention to rank tokens, with the epochs of stage 1."""
        ...

    def dev_macro_f1(self) -> float:
        """Measure the head as it is on some dev documents."""
        ...

    def token_ndcg(self) -> float:
        """Measure how well the attention ranks the tokens of some dev documents, nDCG@10."""
        ...


@dataclass(frozen=True)
class Planter:
    """Plants the head of a classifier, in place.

    Attributes:
        plan: what is planted.
        classifier: classifier of this rank.
        shard: this rank's label rows.
        ranking: tokens by information gain, of this rank's labels; None if the plan does not rank tokens.
        prior_L: log-odds in train of this rank's labels.
        vocab_size: number of token ids.
        seed: of every random choice.
    """

    plan: PlantingPlan
    classifier: Classifier
    shard: LabelShard
    ranking: TokenRanking | None
    prior_L: Tensor
    vocab_size: int
    seed: int

    def plant(self, passes: Passes) -> None:
        """Plant projections, which dev may choose, then the attention by stage 1, then rows. Collective."""
        if self.plan.projections:
            sums = self._sum_projections(passes)
            chosen = (
                self._best_projections(passes, sums)
                if self.plan.trial_documents
                else self.plan.projections
            )
            self._plant_projections(sums, chosen)
            if "attention" in chosen:
                self._print(
                    f"the attention ranks the tokens of dev with nDCG@10 {passes.token_ndcg():.3f}"
                )
        if self.plan.ranking_epochs:
            passes.rank_tokens()
        if self.plan.plants_rows:
            self._plant_rows(passes.over_train("rows", "plant: classifier rows"))

    def _sum_projections(self, passes: Passes) -> PlantSums:
        """Collect what attention and values are planted from, in one pass over the training documents. Collective."""
        encoder = self.classifier.eval().encoder
        sums = PlantSums(
            self.shard.rows, self.vocab_size, encoder.width, self.prior_L.device
        )
        with torch.no_grad():
            for batch in passes.over_train(
                "projections", "plant: attention and values"
            )(sums):
                sums.add(self.classifier.encode(batch), batch, self.shard)
        sums.all_reduce(labels=self.shard.world == 1)
        return sums

    def _plant_projections(
        self, sums: PlantSums, projections: Set[PlantedPart]
    ) -> None:
        """Plant attention and values in closed form. Collective."""
        head = self.classifier.head
        assert isinstance(head, PlantsProjections)  # its settings say so
        shared_too = not self.plan.keeps_shared
        if shared_too and projections:
            plant_centre(head, sums)
        if "values" in projections:
            plant_values(head, sums, self.shard, self.seed)
        if "attention" in projections:
            assert self.ranking is not None, "the plan ranks tokens"
            plant_attention(
                head, sums, self.ranking, self.shard, self.seed, keys=shared_too
            )

    def _plant_rows(self, read: ReadFor) -> None:
        """Plant the classifier rows in one pass over documents. Collective."""
        if isinstance(self.classifier.head, AttendsByLabel):
            plant_prototypes(self.classifier, read, self.prior_L, self.shard)
        else:
            plant_ridge_rows(self.classifier, read, self.prior_L, self.shard)

    def _best_projections(self, passes: Passes, sums: PlantSums) -> Set[PlantedPart]:
        """Choose the projections with which the planted head, before it trains, has the best macro-F1 on dev.

        The head is planted with each subset and its rows, and left as it was (docs/benchmarks/planting.md). Collective.
        """
        head = self.classifier.head
        untrained = {name: tensor.clone() for name, tensor in head.state_dict().items()}
        macro_f1_of: dict[str, float] = {}
        parts_of: dict[str, Set[PlantedPart]] = {}
        for projections in _subsets(self.plan.projections):
            name = " and ".join(sorted(projections)) or "neither"
            self._plant_projections(sums, projections)
            self._plant_rows(
                passes.over_sample(self.plan.trial_documents, f"plant: try {name}")
            )
            macro_f1_of[name] = passes.dev_macro_f1()
            parts_of[name] = projections
            head.load_state_dict(untrained)
        best = max(macro_f1_of, key=lambda name: macro_f1_of[name])
        figures = ", ".join(
            f"{name} {100 * macro_f1:.1f}" for name, macro_f1 in macro_f1_of.items()
        )
        self._print(f"{best}, by macro-F1 of dev before training: {figures}")
        return parts_of[best]

    def _print(self, text: str) -> None:
        rank, _ = rank_and_world_size()
        if rank == 0:
            print_line(f"plant: {text}")


def _subsets(parts: Set[PlantedPart]) -> Iterator[frozenset[PlantedPart]]:
    """Yield every subset, the largest first, equally large ones by name."""
    for size in range(len(parts), -1, -1):
        for subset in combinations(sorted(parts), size):
            yield frozenset(subset)
