"""Stage 2: fine-tune classifier, attention and, phase by phase, the backbone.

Suffixes: B documents, T tokens, L labels, S labels of a batch, C certain ones of them, M mined ones, H heads,
d width of label vectors.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.losses.base import LossOutput, Targets
from xmtc.mining.index import label_vectors, query_vectors
from xmtc.mining.miner import Miner
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import Head
from xmtc.models.label_text import TextVectors, refresh
from xmtc.training.config import FinetuneConfig
from xmtc.training.label_sampling import DrawnLabels, draw_labels
from xmtc.training.sharded_head import ShardedHead
from xmtc.training.stage import Objective

logger = logging.getLogger(__name__)


class FinetuneObjective(Objective):
    """Classifies documents.

    Args:
        classifier: backbone and head.
        settings: see `FinetuneConfig`.
        evaluate: measures the classifier on dev; all ranks call it together.
        sharded: the classifier's head, where its label rows are split over the ranks.
        texts: of the labels, for a head that makes their rows of their texts.
    """

    def __init__(
        self,
        classifier: Classifier,
        settings: FinetuneConfig,
        evaluate: Callable[[], dict[str, float]],
        sharded: ShardedHead | None = None,
        texts: TextVectors | None = None,
    ) -> None:
        super().__init__(classifier, evaluate)
        self.sharded, self.texts = sharded, texts
        head = classifier.head
        head.sparse_gradients = settings.label_optimizer is not None
        self.settings, self.loss = settings, settings.loss.build()
        self.contrastive = settings.contrastive.build() if settings.contrastive else None
        self.contrasted: tuple[Tensor | float, Tensor | float] = (0.0, 0.0)  # sum and documents since they were read
        self.warned = False
        self.miner = Miner(settings.mining, self._label_vectors) if settings.mining else None

    def before_step(self, step: int) -> None:
        """See `Objective.before_step`: keeps the index of labels young."""
        if self.miner is not None:
            self.miner.before_step(step)

    def read_metrics(self) -> dict[str, float]:
        """See `Objective.read_metrics`: how mining goes, and what the contrastive loss adds, on this rank."""
        found = self.miner.read_metrics() if self.miner is not None else {}
        (total, documents), self.contrasted = self.contrasted, (0.0, 0.0)
        return found | ({"train/contrastive": float(total) / float(documents)} if documents else {})

    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Loss of a micro-batch over all labels, or an unbiased estimate of it from some."""
        hidden_BTD = self.classifier.encode(batch)
        targets = Targets(batch.rows_P, batch.labels_P, batch.weight_B, batch.most_labels)
        output = self._classification(hidden_BTD, batch, targets, seed)
        if self.contrastive is None:
            return output
        added = self.contrastive(self.classifier.head.document_vectors(hidden_BTD, batch.mask_BT), targets)
        total, documents = self.contrasted  # on the device: reading a number would wait for it at every micro-batch
        self.contrasted = total + added.sum.detach(), documents + added.count
        return LossOutput(output.sum + added.sum, output.count)

    def _classification(self, hidden_BTD: Tensor, batch: Batch, targets: Targets, seed: int) -> LossOutput:
        if self.sharded is not None:
            return self.sharded.loss(self.loss, hidden_BTD, batch.mask_BT, targets)
        head, generator = self.classifier.head, torch.Generator(device=hidden_BTD.device).manual_seed(seed)
        drawn = self._draw(hidden_BTD, batch, generator)
        if drawn is None:
            return self.loss(head(hidden_BTD, batch.mask_BT), targets, generator=generator)
        if self.texts is not None:
            logits_BS = self._from_texts(self.texts, hidden_BTD, batch, drawn.labels_S)
        else:
            logits_BS = head(hidden_BTD, batch.mask_BT, drawn.labels_S)
        targets = replace(targets, columns_P=drawn.columns_P)
        return self.loss(logits_BS, targets, importance_BC=drawn.importance_S.expand_as(logits_BS))

    def _from_texts(self, texts: TextVectors, hidden_BTD: Tensor, batch: Batch, labels_S: Tensor) -> Tensor:
        head = self.classifier.head
        rows_SP = head.rows_of_texts(texts(labels_S.cpu().numpy()))
        head.keep_rows(rows_SP.detach(), labels_S)
        return head.score_rows(hidden_BTD, batch.mask_BT, rows_SP, labels_S)

    def _label_vectors(self) -> NDArray[np.float32]:
        """What is indexed, as it is now."""
        head = self.classifier.head
        if self.texts is not None:
            refresh(head, self.texts)
        return label_vectors(head)

    def _draw(self, hidden_BTD: Tensor, batch: Batch, generator: torch.Generator) -> DrawnLabels | None:
        """The labels of a micro-batch, or None for all of a table."""
        labels, sampled, mining = self.classifier.labels, self.settings.sampled_labels, self.settings.mining
        if mining is not None:
            certain_C = torch.cat([batch.labels_P, self._mine(hidden_BTD, batch)]).unique()
            return draw_labels(batch.labels_P, certain_C, labels, mining.uniform, generator)
        if sampled is None or (sampled >= labels and self.texts is None):
            return None
        certain_C = batch.labels_P.unique()
        if sampled <= len(certain_C) < labels:
            self._warn_of_no_draws(len(certain_C), sampled)
        return draw_labels(batch.labels_P, certain_C, labels, max(0, sampled - len(certain_C)), generator)

    def _warn_of_no_draws(self, own: int, sampled: int) -> None:
        """Once: without a drawn label nothing stands for the labels of other documents."""
        if not self.warned:
            logger.warning(
                "finetune.sampled_labels: %d is no more than the %d labels of a micro-batch's own documents, so that "
                "its loss leaves all others out; give more, or lower finetune.tokens_per_micro_batch",
                sampled,
                own,
            )
        self.warned = True

    def _mine(self, hidden_BTD: Tensor, batch: Batch) -> Tensor:
        assert self.miner is not None  # built where mining is set
        head = self.classifier.head
        queries_Bd = query_vectors(head, hidden_BTD, batch.mask_BT)
        pairs = batch.on_host
        documents_P, labels_P = pairs.rows_P.numpy(), pairs.labels_P.numpy()
        rank = None if head.index_is_exact else partial(_scores, head, hidden_BTD, batch.mask_BT)
        mined_M = self.miner.mine(queries_Bd, documents_P, labels_P, rank)
        return torch.from_numpy(mined_M).to(batch.labels_P.device)


@torch.no_grad()
def _scores(head: Head, hidden_BTD: Tensor, mask_BT: Tensor, found_BK: NDArray[np.int64]) -> NDArray[np.float32]:
    """The head's logits (B, K) of labels that an index found, without dropout."""
    training = head.training
    head.eval()
    logits_BK = head(hidden_BTD, mask_BT, torch.from_numpy(found_BK).to(hidden_BTD.device))
    head.train(training)
    return logits_BK.float().cpu().numpy()


class AttentionDrift:
    """How far fine-tuning moves attention: mean total variation ½ Σ |now − start| over a fixed batch and its labels.

    Reviewers ask whether stage 2 overwrites the plant. It is the share of the attention that lies on other tokens than
    at the start: 0 says it stayed, 1 that all of it left. (A divergence is without bound where a sparse normaliser
    leaves a token out.)

    Args:
        classifier: as it is at the start.
        batch: the same on all ranks.
        sharded: as in `FinetuneObjective`; then every rank looks at its own labels, and calls are collective.
    """

    def __init__(self, classifier: Classifier, batch: Batch, sharded: ShardedHead | None = None) -> None:
        self.classifier, self.batch, self.sharded = classifier, batch, sharded
        labels_S = batch.labels_P.unique() - (sharded.first if sharded else 0)
        self.labels_S = labels_S[(labels_S >= 0) & (labels_S < len(classifier.head.bias))]
        self.start_BSHT = self._attention()

    def __call__(self) -> float:
        """The mean distance over documents, labels and heads."""
        moved_BSH = (self._attention() - self.start_BSHT).abs().sum(3) / 2
        total, count = float(moved_BSH.sum()), float(moved_BSH.numel())
        if self.sharded is not None:
            total, count = all_reduce_sum_floats([total, count])
        return total / max(1.0, count)

    @torch.no_grad()
    def _attention(self) -> Tensor:
        """Without dropout: its noise would count as a distance."""
        training = self.classifier.training
        self.classifier.eval()
        hidden_BTD = self.classifier.encode(self.batch)
        attention_BSHT = self.classifier.head.attention(hidden_BTD, self.batch.mask_BT, self.labels_S)
        self.classifier.train(training)
        return attention_BSHT.float()
