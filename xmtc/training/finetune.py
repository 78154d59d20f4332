"""Stage 2: fine-tune classifier, attention and, phase by phase, the backbone.

Suffixes: B documents of this worker, G of all workers, T tokens, S labels of a batch, C certain ones of them, M mined
ones, H heads, d width of label vectors.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.row_shards import RowShard
from xmtc.losses.base import LossOutput, SeparableLoss, Targets
from xmtc.mining.index import label_vectors, query_vectors
from xmtc.mining.miner import Miner
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel, ReadsLabelTexts, ScoresByProduct
from xmtc.models.label_text import TextVectors, refresh
from xmtc.training.config import FinetuneConfig
from xmtc.training.flat_step import FlatStep
from xmtc.training.label_sampling import DrawnLabels, draw_labels
from xmtc.training.label_shard import GatheredDocuments, LabelShard
from xmtc.training.stage import Objective

logger = logging.getLogger(__name__)


class FinetuneObjective(Objective):
    """Classifies documents.

    Args:
        classifier: backbone and head.
        settings: see `FinetuneConfig`.
        evaluate: measures the classifier on dev; collective.
        shard: this worker's label rows of the classifier.
        texts: texts of this worker's labels, for a head that computes rows from texts.
    """

    def __init__(
        self,
        classifier: Classifier,
        settings: FinetuneConfig,
        evaluate: Callable[[], dict[str, float]],
        shard: LabelShard,
        texts: TextVectors | None = None,
    ) -> None:
        super().__init__(classifier, evaluate)
        self.shard, self.texts = shard, texts
        classifier.head.sparse_gradients = settings.samples_labels is not None
        self.settings, self.loss = settings, settings.loss.build()
        self.flat = self._flat_step()
        self.contrastive = settings.contrastive.build() if settings.contrastive else None
        self.contrasted: tuple[Tensor | float, Tensor | float] = (0.0, 0.0)  # sum and documents since the last read
        self.warned = False
        self.miner = Miner(settings.mining, self._label_vectors) if settings.mining else None

    def _flat_step(self) -> FlatStep | None:
        """Train all labels chunk by chunk, if head and loss allow it and the rows have a separate optimizer."""
        head = self.classifier.head
        wanted = self.settings.label_optimizer is not None and self.settings.samples_labels is None
        if not wanted or not self.settings.loss.separable:
            return None
        if not (isinstance(head, ScoresByProduct) and isinstance(head.weights, RowShard)):
            return None
        return FlatStep(cast(SeparableLoss, self.loss), head.weights, cast(RowShard, head.bias))

    @override
    def before_step(self, step: int) -> None:
        """Keeps the index of labels young."""
        if self.miner is not None:
            self.miner.before_step(step)

    @override
    def read_metrics(self) -> dict[str, float]:
        """How mining goes, and what the contrastive loss adds, on this rank."""
        found = self.miner.read_metrics() if self.miner is not None else {}
        (total, documents), self.contrasted = self.contrasted, (0.0, 0.0)
        return found | ({"train/contrastive": float(total) / float(documents)} if documents else {})

    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Compute the loss of a micro-batch over all labels, or an unbiased estimate of it from some labels."""
        targets = Targets(batch.rows_P, batch.labels_P, batch.weight_B, batch.max_labels)
        if self.contrastive is None:
            return self._classification(batch, targets, seed)
        batch = replace(batch, hidden_BTD=self.classifier.encode(batch))  # once for both losses
        output = self._classification(batch, targets, seed)
        added = self.contrastive(self.classifier.document_vectors(batch), targets)
        total, documents = self.contrasted  # on the device: reading a number would synchronise in every micro-batch
        self.contrasted = total + added.sum.detach(), documents + added.count
        return LossOutput(output.sum + added.sum, output.count)

    def _classification(self, batch: Batch, targets: Targets, seed: int) -> LossOutput:
        """Compute this worker's labels' share of the loss; the sum over workers is the loss of all documents."""
        generator = torch.Generator(device=batch.mask_BT.device).manual_seed(seed)
        documents = self.shard.gather(self.classifier.read(batch), batch.mask_BT, targets)
        output = self._of_own_labels(documents, generator)
        return output if self.shard.world == 1 else LossOutput(output.sum, targets.weight_B.sum())

    def _of_own_labels(self, documents: GatheredDocuments, generator: torch.Generator) -> LossOutput:
        head, targets = self.classifier.head, documents.targets
        drawn = self._draw(documents, generator)
        if drawn is None and self.flat is not None:
            return self.flat(documents.read[0], targets)
        if drawn is None:
            return self.loss(head.score(documents.read, documents.mask_GT), targets, generator=generator)
        if self.texts is not None:
            logits_GS = self._from_texts(self.texts, documents, drawn.labels_S)
        else:
            logits_GS = head.score(documents.read, documents.mask_GT, drawn.labels_S)
        targets = replace(targets, columns_P=drawn.columns_P)
        return self.loss(logits_GS, targets, importance_BC=drawn.importance_S.expand_as(logits_GS))

    def _from_texts(self, texts: TextVectors, documents: GatheredDocuments, labels_S: Tensor) -> Tensor:
        head = self.classifier.head
        assert isinstance(head, ReadsLabelTexts)  # only such a head has texts
        rows_SP = head.rows_of_texts(texts(labels_S.cpu().numpy()))
        head.keep_rows(rows_SP.detach(), labels_S)
        return head.score_rows(documents.read, rows_SP, labels_S)

    def _label_vectors(self) -> NDArray[np.float32]:
        """Return the current vectors to index."""
        head = self.classifier.head
        if self.texts is not None:
            refresh(head, self.texts)
        return label_vectors(head)

    def _draw(self, documents: GatheredDocuments, generator: torch.Generator) -> DrawnLabels | None:
        """Draw this worker's labels of a micro-batch, numbered from its first; None for all of them.

        Positives and mined labels are certain. Others are drawn from this worker's labels and represent them, so the
        sum over workers is an unbiased estimate of the loss over all labels (a stratified sample).
        """
        sampled, mining = self.settings.sampled_labels, self.settings.mining
        positives_P, rows = documents.targets.columns_P, self.shard.rows
        if mining is not None:
            certain_C = torch.cat([positives_P, self._mine(documents)]).unique()
            return draw_labels(positives_P, certain_C, rows, self.shard.share(mining.uniform), generator)
        if sampled is None or (sampled >= self.shard.labels and self.texts is None):
            return None
        certain_C = positives_P.unique()
        share = self.shard.share(sampled)
        if share <= len(certain_C) < rows:
            self._warn_of_no_draws(len(certain_C), sampled)
        uniform = max(share - len(certain_C), 0 if len(certain_C) else 1)
        return draw_labels(positives_P, certain_C, rows, uniform, generator)

    def _warn_of_no_draws(self, own: int, sampled: int) -> None:
        """Warn once: without drawn labels, nothing represents the labels of other documents."""
        if not self.warned:
            logger.warning(
                "finetune.sampled_labels: %d is not more than the %d labels of a micro-batch's documents, so its loss "
                "ignores all other labels; raise it, or lower finetune.tokens_per_micro_batch",
                sampled,
                own,
            )
        self.warned = True

    def _mine(self, documents: GatheredDocuments) -> Tensor:
        assert self.miner is not None  # built where mining is set
        assert self.settings.mining is not None
        head, alone = self.classifier.head, self.shard.world == 1
        targets, candidates = documents.targets, self.settings.mining.candidates
        queries_Gd = query_vectors(head.vectors(documents.read, documents.mask_GT))
        trusted = alone and isinstance(head, ScoresByProduct)
        mined_M = self.miner.mine(
            queries_Gd,
            targets.rows_P.cpu().numpy(),
            targets.columns_P.cpu().numpy(),
            None if trusted else lambda found_GK: self._scores(documents, found_GK),
            None if alone else lambda scores_GK: self._kept(scores_GK, candidates),
        )
        return torch.from_numpy(mined_M).to(targets.rows_P.device)

    @torch.no_grad()
    def _scores(self, documents: GatheredDocuments, found_GK: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compute the head's logits (G, K) of labels that an index found."""
        found = torch.from_numpy(found_GK).to(documents.mask_GT.device)
        return self.classifier.head.score(documents.read, documents.mask_GT, found).float().cpu().numpy()

    def _kept(self, scores_GK: NDArray[np.float32], count: int) -> NDArray[np.bool_]:
        scores = torch.from_numpy(scores_GK).to(self.classifier.head.bias.device)
        return self.shard.among_best(scores, count).cpu().numpy()


class AttentionDrift:
    """Measures how far fine-tuning moves attention: mean total variation ½ Σ |now − start| over a batch and its labels.

    This shows whether stage 2 overwrites the planted attention. The value is the share of attention that has moved to
    other tokens: 0 means none, 1 all. (A divergence would be unbounded if a sparse normaliser drops a token.)

    Args:
        classifier: classifier in its initial state, whose head attends by label.
        batch: batch, the same on all ranks.
        shard: this worker's labels; calls are collective.
    """

    def __init__(self, classifier: Classifier, batch: Batch, shard: LabelShard) -> None:
        self.classifier, self.batch, self.shard = classifier, batch, shard
        labels_S = batch.labels_P.unique() - shard.first
        self.labels_S = labels_S[(labels_S >= 0) & (labels_S < shard.rows)]
        self.start_BSHT = self._attention()

    def __call__(self) -> float:
        """Compute the mean distance over documents, labels and heads."""
        moved_BSH = (self._attention() - self.start_BSHT).abs().sum(3) / 2
        total, count = float(moved_BSH.sum()), float(moved_BSH.numel())
        if self.shard.world > 1:
            total, count = all_reduce_sum_floats([total, count])
        return total / max(1.0, count)

    @torch.no_grad()
    def _attention(self) -> Tensor:
        """Compute attention without dropout, whose noise would count as distance."""
        training = self.classifier.training
        self.classifier.eval()
        head, hidden_BTD = self.classifier.head, self.classifier.encode(self.batch)
        assert isinstance(head, AttendsByLabel)
        attention_BSHT = head.attention(hidden_BTD, self.batch.mask_BT, self.labels_S)
        self.classifier.train(training)
        return attention_BSHT.float()
