"""The loss of all workers' documents over this worker's labels: all of them, or those that a sampler chooses.

A flat head whose rows have a separate optimizer computes the loss of all labels chunk by chunk (`FlatStep`). The sum
over workers is the loss over all labels.

Suffixes: G documents of all workers, R labels of this worker, S sampled ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from xmtc.distributed.row_shards import RowShard
from xmtc.losses.base import Loss, LossOutput, Targets, without_unjudged
from xmtc.losses.binary import BinaryLoss
from xmtc.mining.miner import Miner
from xmtc.models.heads.base import Head, ReadsLabelTexts, ScoresByProduct
from xmtc.models.label_rows import TextVectors
from xmtc.training.config import FinetuneConfig
from xmtc.training.flat_step import FlatStep
from xmtc.training.label_sampling import LabelSampler, MinedSampler, UniformSampler
from xmtc.training.label_shard import GatheredDocuments, LabelShard

LabelLoss = Callable[[GatheredDocuments, int], LossOutput]
"""Computes the summed loss of a micro-batch over this worker's labels; a seed determines every random choice in it."""


@dataclass(frozen=True)
class AllLabels:
    """Scores every label."""

    loss: Loss
    head: Head

    def __call__(self, documents: GatheredDocuments, seed: int) -> LossOutput:
        """Compute the loss of all labels."""
        logits_GR = without_unjudged(
            self.head.score(documents.read, documents.mask_GT), documents.targets
        )
        generator = torch.Generator(device=logits_GR.device).manual_seed(seed)
        return self.loss(logits_GR, documents.targets, generator=generator)


@dataclass(frozen=True)
class SampledLabels:
    """Scores the labels that a sampler chooses, which is an unbiased estimate of the loss over all labels."""

    loss: Loss
    head: Head
    sampler: LabelSampler

    def __call__(self, documents: GatheredDocuments, seed: int) -> LossOutput:
        """Estimate the loss of all labels."""
        sample = self.sampler(documents, torch.Generator().manual_seed(seed))
        logits_GS = self.logits(documents, sample.labels_S)
        columns_P = sample.columns_P.to(logits_GS.device, non_blocking=True)
        importance_S = sample.importance_S.to(logits_GS.device, non_blocking=True)
        targets = replace(documents.targets, columns_P=columns_P, original=None)
        targets = _among_sampled(
            targets, sample.labels_S.to(logits_GS.device, non_blocking=True)
        )
        return self.loss(
            without_unjudged(logits_GS, targets),
            targets,
            importance_BC=importance_S.expand_as(logits_GS),
        )

    def logits(self, documents: GatheredDocuments, labels_S: Tensor) -> Tensor:
        """Compute the logits (G, S) of the sampled labels, which are on the CPU."""
        labels_S = labels_S.to(documents.mask_GT.device, non_blocking=True)
        return self.head.score(documents.read, documents.mask_GT, labels_S)


def _among_sampled(targets: Targets, labels_S: Tensor) -> Targets:
    """Number unjudged labels by their columns among sampled ones, which are sorted; leave out those not sampled."""
    if targets.unjudged_rows_J is None or targets.unjudged_columns_J is None:
        return targets
    columns_J = torch.searchsorted(labels_S, targets.unjudged_columns_J).clamp_(
        max=len(labels_S) - 1
    )
    sampled_J = labels_S[columns_J] == targets.unjudged_columns_J
    return replace(
        targets,
        unjudged_rows_J=targets.unjudged_rows_J[sampled_J],
        unjudged_columns_J=columns_J[sampled_J],
    )


@dataclass(frozen=True)
class SampledTexts(SampledLabels):
    """Scores sampled labels with rows that the head makes from their texts."""

    texts: TextVectors

    @override
    def logits(self, documents: GatheredDocuments, labels_S: Tensor) -> Tensor:
        head = self.head
        assert isinstance(head, ReadsLabelTexts)  # only such a head has texts
        rows_SP = head.rows_of_texts(self.texts(labels_S.numpy()))
        labels_S = labels_S.to(rows_SP.device, non_blocking=True)
        head.keep_rows(rows_SP.detach(), labels_S)
        return head.score_rows(documents.read, rows_SP, labels_S)


def build_label_loss(
    settings: FinetuneConfig,
    head: Head,
    shard: LabelShard,
    texts: TextVectors | None,
    miner: Miner | None,
) -> LabelLoss:
    """Build the loss that the settings ask for.

    Args:
        settings: see `FinetuneConfig`.
        head: head with this worker's label rows.
        shard: these rows.
        texts: texts of this worker's labels, for a head that computes rows from texts.
        miner: finds hard negatives, with `mining`.
    """
    loss = settings.loss.build()
    sampled = settings.sampled_labels
    sampler = None
    if miner is not None and settings.mining is not None:
        sampler = MinedSampler(miner, settings.mining, head, shard)
    elif sampled is not None and (sampled < shard.labels or texts is not None):
        sampler = UniformSampler(sampled, shard)
    if sampler is not None and texts is not None:
        return SampledTexts(loss, head, sampler, texts)
    if sampler is not None:
        return SampledLabels(loss, head, sampler)
    has_row_optimizer = settings.label_optimizer is not None
    by_chunks = (
        has_row_optimizer
        and settings.samples_labels is None
        and settings.loss.separable
    )
    if (
        by_chunks
        and isinstance(head, ScoresByProduct)
        and isinstance(head.weights, RowShard)
    ):
        return FlatStep(cast(BinaryLoss, loss), head.weights, cast(RowShard, head.bias))
    return AllLabels(loss, head)
