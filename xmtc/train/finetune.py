"""Stage 2: fine-tune classifier, attention and, phase by phase, the backbone.

Suffixes: B documents, T tokens, L labels, S labels of a batch, C certain ones of them, M mined ones, H heads,
d width of label vectors.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from xmtc.config.base import config
from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.rowwise_optim import RowwiseOptimizerConfig
from xmtc.losses import LossConfig
from xmtc.losses.asymmetric_focal import AsymmetricFocalConfig
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.cross_entropy import CrossEntropyConfig
from xmtc.losses.supervised_contrastive import SupervisedContrastiveConfig
from xmtc.mining import Miner, MiningConfig, label_vectors, query_vectors
from xmtc.models.classifier import Classifier
from xmtc.models.heads import LabelAttentionHead, TwoTowerHead
from xmtc.models.label_text import TextVectors, refresh
from xmtc.train.label_sampling import DrawnLabels, draw_labels
from xmtc.train.loop import Objective
from xmtc.train.optim import OptimizerConfig
from xmtc.train.sharded_head import ShardedHead
from xmtc.train.unfreeze import PhaseConfig

logger = logging.getLogger(__name__)


@config
class FinetuneConfig:
    """Stage 2 (METHOD: end-to-end fine-tuning with gradual unfreezing)."""

    phases: tuple[PhaseConfig, ...] = (PhaseConfig(epochs=3), PhaseConfig(epochs=5, encoder_layers=-1))
    """What trains, in order: head first, then the encoder from the top down."""
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Documents of one optimizer step, over all workers."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] = 8192
    """Most padded tokens that go through the model at once on one worker; more documents are accumulated."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer and schedule."""
    loss: LossConfig = AsymmetricFocalConfig()
    """Classification loss."""
    sampled_labels: Annotated[int, Field(ge=1)] | None = None
    """Labels whose logits are computed in a micro-batch: its positives, filled up with uniformly drawn labels that
    stand for all others, so that the loss estimates the full one without bias. All labels when absent."""
    mining: MiningConfig | None = None
    """In place of `sampled_labels`: a micro-batch's positives, the labels nearest to its documents, and uniformly drawn
    labels that stand for all others."""
    label_optimizer: RowwiseOptimizerConfig | None = None
    """Optimizer of the label tables (queries, classifier rows, biases) that reads and writes only the rows of which a
    step computed logits; needs `sampled_labels` or `mining`, and distributed.strategy single. Where absent, AdamW
    updates every row at every step."""
    contrastive: SupervisedContrastiveConfig | None = None
    """Supervised contrastive loss on the pooled documents, added to the classification loss in training."""
    metric: str = "ndcg@5"
    """Dev metric that picks the best epoch: one of docs/evaluation.md that is better the higher it is, areas under the
    curve left out; `accuracy` with single-label tasks only."""
    patience: Annotated[int, Field(ge=0)] = 3
    """Stop after this many epochs without a better dev metric. 0: never."""
    dev_documents: Annotated[int, Field(ge=1)] | None = None
    """Dev documents scored after each epoch; all when absent."""
    cache_hidden: bool = True
    """In phases that leave the encoder frozen, read hidden states from disk instead of encoding every epoch."""

    def __post_init__(self) -> None:
        """Check that no phase freezes what an earlier one trained."""
        depths = [float("inf") if p.encoder_layers < 0 else p.encoder_layers for p in self.phases]
        if depths != sorted(depths):
            raise ValueError("encoder_layers must not shrink from one phase to the next")
        if not depths:
            raise ValueError("at least one phase is needed")
        some = "sampled_labels" if self.sampled_labels else "mining" if self.mining else None
        if self.sampled_labels and self.mining:
            raise ValueError("mining draws labels of its own (mining.uniform); leave sampled_labels out")
        if some and isinstance(self.loss, CrossEntropyConfig):
            raise ValueError(f"{some}: a softmax needs every label; use another loss, or leave it out")
        if self.label_optimizer and not some:
            raise ValueError("label_optimizer: every step touches every row; give sampled_labels or mining too")


class FinetuneObjective(Objective):
    """Classifies documents.

    Args:
        classifier: backbone and head.
        settings: see `FinetuneConfig`.
        evaluate: measures the classifier on dev; all ranks call it together.
        sharded: the classifier's head, where its label rows are split over the ranks.
        texts: of the labels, for a two-tower head.
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
        targets = Targets(batch.rows_P, batch.labels_P, batch.weight_B)
        output = self._classification(hidden_BTD, batch, targets, seed)
        if self.contrastive is None:
            return output
        beside = self.contrastive(self.classifier.head.document_vectors(hidden_BTD, batch.mask_BT), targets)
        total, documents = self.contrasted  # on the device: a number would wait for it at every micro-batch
        self.contrasted = total + beside.sum.detach(), documents + beside.count
        return LossOutput(output.sum + beside.sum, output.count)

    def _classification(self, hidden_BTD: Tensor, batch: Batch, targets: Targets, seed: int) -> LossOutput:
        if self.sharded is not None:
            return self.sharded.loss(self.loss, hidden_BTD, batch.mask_BT, targets)
        head, generator = self.classifier.head, torch.Generator(device=hidden_BTD.device).manual_seed(seed)
        drawn = self._draw(hidden_BTD, batch, generator)
        if drawn is None:
            return self.loss(head(hidden_BTD, batch.mask_BT), targets, generator=generator)
        if isinstance(head, TwoTowerHead):
            logits_BS = self._two_towers(head, hidden_BTD, batch, drawn.labels_S)
        else:
            logits_BS = head(hidden_BTD, batch.mask_BT, drawn.labels_S)
        targets = replace(targets, columns_P=drawn.columns_P)
        return self.loss(logits_BS, targets, importance_BC=drawn.importance_S.expand_as(logits_BS))

    def _two_towers(self, head: TwoTowerHead, hidden_BTD: Tensor, batch: Batch, labels_S: Tensor) -> Tensor:
        assert self.texts is not None  # given with this head
        rows_SP = head.rows_of(self.texts(labels_S.cpu().numpy()))
        head.keep(rows_SP.detach(), labels_S)
        return head.score(hidden_BTD, batch.mask_BT, rows_SP, labels_S)

    def _label_vectors(self) -> NDArray[np.float32]:
        """What is indexed, as it is now."""
        head = self.classifier.head
        if self.texts is not None and isinstance(head, TwoTowerHead):
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
        documents_P, labels_P = batch.rows_P.cpu().numpy(), batch.labels_P.cpu().numpy()
        attends = isinstance(head, LabelAttentionHead)  # of a flat head, the index has the logits themselves
        rank = partial(_scores, head, hidden_BTD, batch.mask_BT) if attends else None
        mined_M = self.miner.mine(queries_Bd, documents_P, labels_P, rank)
        return torch.from_numpy(mined_M).to(batch.labels_P.device)


@torch.no_grad()
def _scores(
    head: LabelAttentionHead, hidden_BTD: Tensor, mask_BT: Tensor, found_BK: NDArray[np.int64]
) -> NDArray[np.float32]:
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
        sharded: as of `FinetuneObjective`; then every rank looks at its own labels, and calls are collective.
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
        attention_BSHT = self.classifier.label_attention.attention(hidden_BTD, self.batch.mask_BT, self.labels_S)
        self.classifier.train(training)
        return attention_BSHT.float()
