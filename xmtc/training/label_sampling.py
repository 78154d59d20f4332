"""Choose the labels whose logits a micro-batch computes, and their weights. No tensor is as large as the label set.

Each worker samples its own labels. Positives and mined labels are certain; others are drawn uniformly and represent
this worker's rest. So the sum over workers is an unbiased estimate of the loss over all labels (a stratified sample).

Suffixes: G documents of all workers, L labels, S labels of a micro-batch, C certain labels (always included), M mined
ones of them, K candidates, P (document, label) pairs.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.mining.config import MiningConfig
from xmtc.mining.index import query_vectors
from xmtc.mining.miner import Miner
from xmtc.models.heads.base import Head, ScoresByProduct
from xmtc.training.label_shard import GatheredDocuments, LabelShard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelSample:
    """Labels of a micro-batch, on the CPU, where the choice of labels waits for no device.

    Attributes:
        labels_S: int64, ascending, distinct.
        columns_P: int64, position of each pair's label in `labels_S`.
        importance_S: float32, number of labels that each represents as a negative; 1 for certain labels.
    """

    labels_S: Tensor
    columns_P: Tensor
    importance_S: Tensor


LabelSampler = Callable[[GatheredDocuments, torch.Generator], LabelSample]
"""Chooses labels for the documents of a micro-batch, numbered from this worker's first."""


class UniformSampler:
    """Chooses the documents' positives and uniformly drawn labels.

    Args:
        sampled: number of labels to choose, over all workers.
        shard: this worker's label rows.
    """

    def __init__(self, sampled: int, shard: LabelShard) -> None:
        self.sampled = sampled
        self.shard = shard
        self.warned = False

    def __call__(
        self, documents: GatheredDocuments, generator: torch.Generator
    ) -> LabelSample:
        """Choose the labels."""
        positives_P = documents.targets.on_host.columns_P
        rows = self.shard.rows
        certain_C = positives_P.unique()
        share = self.shard.share(self.sampled)
        if (
            share <= len(certain_C) < rows and not self.warned
        ):  # nothing represents the labels of other documents
            self.warned = True
            logger.warning(
                "finetune.sampled_labels: %d, of which this worker draws %d, not more than its %d labels of a batch: "
                "the loss ignores all others; raise it, or lower finetune.tokens_per_micro_batch",
                self.sampled,
                share,
                len(certain_C),
            )
        least = 0 if len(certain_C) else 1
        uniform = max(share - len(certain_C), least)
        return draw_labels(positives_P, certain_C, rows, uniform, generator)


class MinedSampler:
    """Chooses the documents' positives, the labels nearest to the documents, and uniformly drawn labels.

    Args:
        miner: finds the nearest labels in an index of this worker's.
        settings: see `MiningConfig`.
        head: head with this worker's label rows.
        shard: these rows.
    """

    def __init__(
        self, miner: Miner, settings: MiningConfig, head: Head, shard: LabelShard
    ) -> None:
        self.miner = miner
        self.settings = settings
        self.head = head
        self.shard = shard

    def __call__(
        self, documents: GatheredDocuments, generator: torch.Generator
    ) -> LabelSample:
        """Choose the labels."""
        positives_P = documents.targets.on_host.columns_P
        uniform = self.shard.share(self.settings.uniform)
        certain_C = torch.cat([positives_P, self._mine(documents)]).unique()
        return draw_labels(positives_P, certain_C, self.shard.rows, uniform, generator)

    def _mine(self, documents: GatheredDocuments) -> Tensor:
        targets = documents.targets.on_host
        alone = self.shard.world == 1
        products_are_logits = alone and isinstance(self.head, ScoresByProduct)
        queries_Gd = query_vectors(self.head.vectors(documents.read, documents.mask_GT))
        mined_M = self.miner.mine(
            queries_Gd,
            targets.rows_P.numpy(),
            targets.columns_P.numpy(),
            None if products_are_logits else partial(self._scores, documents),
            None if alone else self._among_best,
        )
        return torch.from_numpy(mined_M)

    @torch.no_grad()
    def _scores(
        self, documents: GatheredDocuments, candidates_GK: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Compute the head's logits (G, K) of labels that an index found."""
        labels_GK = torch.from_numpy(candidates_GK).to(
            documents.mask_GT.device, non_blocking=True
        )
        logits_GK = self.head.score(documents.read, documents.mask_GT, labels_GK)
        return logits_GK.float().cpu().numpy()

    def _among_best(self, scores_GK: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Mark the candidates that are among the best of all workers' indexes. Collective."""
        scores = torch.from_numpy(scores_GK).to(
            self.head.bias.device, non_blocking=True
        )
        return self.shard.among_best(scores, self.settings.candidates).cpu().numpy()


def draw_labels(
    labels_P: Tensor,
    certain_C: Tensor,
    labels: int,
    uniform: int,
    generator: torch.Generator,
) -> LabelSample:
    """Take all certain labels, and draw `uniform` others without replacement that represent the rest.

    m of the R labels that are not certain are drawn, each with probability m/R. As a negative, a drawn label has weight
    R/m. The weighted sum over the drawn labels is an unbiased estimate of the sum over all labels (Horvitz & Thompson
    1952).

    Args:
        labels_P: int64, labels of the batch's pairs.
        certain_C: int64, ascending, distinct: the labels in `labels_P`, and others to include, such as mined ones.
        labels: L.
        uniform: m; capped at R.
        generator: random generator on the CPU.
    """
    others = labels - len(certain_C)
    drawn = _complement(certain_C, distinct(uniform, others, generator))
    stands_for = others / max(1, len(drawn))
    labels_S, order_S = torch.cat([certain_C, drawn]).sort()
    importance_S = torch.where(order_S < len(certain_C), 1.0, stands_for)
    return LabelSample(labels_S, torch.searchsorted(labels_S, labels_P), importance_S)


def distinct(count: int, below: int, generator: torch.Generator) -> Tensor:
    """Draw at most `count` numbers from 0 … below − 1 uniformly, at a cost that depends only on `count`."""
    if 2 * count >= below:
        return torch.randperm(below, generator=generator)[:count]
    numbers = torch.empty(0, dtype=torch.int64)
    while len(numbers) < count:
        more = torch.randint(below, (2 * count,), generator=generator)
        numbers = torch.cat([numbers, more]).unique()
    # The set is uniform among the sets of its size, and so is a uniform subset of it.
    return numbers[torch.randperm(len(numbers), generator=generator)[:count]]


def _complement(certain_C: Tensor, ranks: Tensor) -> Tensor:
    """Find the labels that have these ranks among those that are not certain."""
    before_C = certain_C - torch.arange(len(certain_C))
    return ranks + torch.searchsorted(before_C, ranks, right=True)
