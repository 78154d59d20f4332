"""Choose the labels whose logits a micro-batch computes, and their weights. No tensor is as large as the label set.

Each worker samples its own labels. Positives and mined labels are certain; others are drawn uniformly and represent
this worker's rest. So the sum over workers is an unbiased estimate of the loss over all labels (a stratified sample).

Suffixes: G documents of all workers, L labels, S labels of a micro-batch, C certain labels (always included), M mined
ones of them, K candidates, P (document, label) pairs.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

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
        self.sampled, self.shard, self.warned = sampled, shard, False

    def __call__(self, documents: GatheredDocuments, generator: torch.Generator) -> LabelSample:
        """Choose the labels."""
        positives_P, rows = documents.targets.on_host.columns_P, self.shard.rows
        certain_C = positives_P.unique()
        share = self.shard.share(self.sampled)
        if share <= len(certain_C) < rows and not self.warned:  # nothing represents the labels of other documents
            self.warned = True
            logger.warning(
                "finetune.sampled_labels: %d, of which this worker draws %d, not more than its %d labels of a batch: "
                "the loss ignores all others; raise it, or lower finetune.tokens_per_micro_batch",
                *(self.sampled, share, len(certain_C)),
            )
        uniform = max(share - len(certain_C), 0 if len(certain_C) else 1)
        return draw_labels(positives_P, certain_C, rows, uniform, generator)


class MinedSampler:
    """Chooses the documents' positives, the labels nearest to the documents, and uniformly drawn labels.

    Args:
        miner: finds the nearest labels in an index of this worker's.
        settings: see `MiningConfig`.
        head: head with this worker's label rows.
        shard: these rows.
    """

    def __init__(self, miner: Miner, settings: MiningConfig, head: Head, shard: LabelShard) -> None:
        self.miner, self.settings, self.head, self.shard = miner, settings, head, shard

    def __call__(self, documents: GatheredDocuments, generator: torch.Generator) -> LabelSample:
        """Choose the labels."""
        positives_P, uniform = documents.targets.on_host.columns_P, self.shard.share(self.settings.uniform)
        certain_C = torch.cat([positives_P, self._mine(documents)]).unique()
        return draw_labels(positives_P, certain_C, self.shard.rows, uniform, generator)

    def _mine(self, documents: GatheredDocuments) -> Tensor:
        targets, alone = documents.targets.on_host, self.shard.world == 1
        queries_Gd = query_vectors(self.head.vectors(documents.read, documents.mask_GT))
        trusted = alone and isinstance(self.head, ScoresByProduct)
        mined_M = self.miner.mine(
            queries_Gd,
            targets.rows_P.numpy(),
            targets.columns_P.numpy(),
            None if trusted else lambda found_GK: self._scores(documents, found_GK),
            None if alone else self._kept,
        )
        return torch.from_numpy(mined_M)

    @torch.no_grad()
    def _scores(self, documents: GatheredDocuments, found_GK: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute the head's logits (G, K) of labels that an index found."""
        found = torch.from_numpy(found_GK).to(documents.mask_GT.device, non_blocking=True)
        return self.head.score(documents.read, documents.mask_GT, found).float().cpu().numpy()

    def _kept(self, scores_GK: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Mark the candidates that are among the best of all workers' indexes. Collective."""
        scores = torch.from_numpy(scores_GK).to(self.head.bias.device, non_blocking=True)
        return self.shard.among_best(scores, self.settings.candidates).cpu().numpy()


def draw_labels(
    labels_P: Tensor, certain_C: Tensor, labels: int, uniform: int, generator: torch.Generator
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
    found = torch.empty(0, dtype=torch.int64)
    while len(found) < count:
        more = torch.randint(below, (2 * count,), generator=generator)
        found = torch.cat([found, more]).unique()
    # a set found here is uniform among the sets of its size, and so is a uniform subset of it
    return found[torch.randperm(len(found), generator=generator)[:count]]


def _complement(certain_C: Tensor, ranks: Tensor) -> Tensor:
    """Find the labels that have these ranks among those that are not certain."""
    before_C = certain_C - torch.arange(len(certain_C))
    return ranks + torch.searchsorted(before_C, ranks, right=True)
