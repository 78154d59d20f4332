"""Settings of the two training stages: optimizer, phases, stage 1 and stage 2."""

import math
from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config
from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.losses.config import (
    AsymmetricFocalConfig,
    LambdaRankConfig,
    LossConfig,
    RankingLossConfig,
    SupervisedContrastiveConfig,
)
from xmtc.mining.config import MiningConfig
from xmtc.training.callbacks.config import CallbackConfig, check_kinds


@config
class OptimizerConfig:
    """AdamW (Loshchilov & Hutter 2019) with warm-up and decay."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate of the head."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay; never applied to biases, norms and gains."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Decay from the peak to `final_share` of it over each phase."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of each phase's steps over which the learning rate rises linearly."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Learning rate at the end of a phase, as a share of the peak."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this global L2 norm."""

    def factor(self, step: int, total: int) -> float:
        """What to multiply the peak learning rate with.

        Args:
            step: done in the phase; every phase rises and decays by itself, because its optimizer starts afresh.
            total: planned in the phase.
        """
        rise = min(1.0, (step + 1) / max(1, round(self.warmup_share * total)))
        progress = min(1.0, step / max(1, total))
        shape = {
            "constant": 1.0,
            "linear": 1 - progress,
            "cosine": (1 + math.cos(math.pi * progress)) / 2,
        }[self.schedule]
        return rise * (self.final_share + (1 - self.final_share) * shape)


@config
class PhaseConfig:
    """Epochs that train the same parameters. Later phases train at least what earlier ones do (Howard & Ruder 2018)."""

    epochs: Annotated[int, Field(ge=1)]
    """Passes over the training split."""
    encoder_layers: Annotated[int, Field(ge=-1)] = 0
    """Trainable encoder layers, counted from the top; 0 trains the head alone, -1 the whole encoder."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of the head in this phase; the optimizer's when absent."""
    encoder_learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """Peak learning rate of the topmost encoder layer."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Each layer further down learns at this share of the layer above it (discriminative learning rates)."""


@config
class PlantConfig:
    """Stage 1 (docs/explanation/method.md). The backbone is frozen; the head's queries and key projection train."""

    enabled: bool = True
    """False starts stage 2 from the random initialisation, everything else identical."""
    epochs: Annotated[int, Field(ge=0)] = 10
    """Most passes over the training split. 0 leaves the attention as it starts, and plants prototypes alone."""
    patience: Annotated[int, Field(ge=0)] = 2
    """Stop after this many epochs without a better dev nDCG: over-training overfits corpus statistics. 0: never."""
    batch_size: Annotated[int, Field(ge=1)] = 32
    """Documents of one optimizer step, over all workers."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] = 8192
    """Most padded tokens that go through the model at once on one worker."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer and schedule."""
    label_optimizer: RowwiseOptimizerConfig | None = None
    """Optimizer of the labels' queries. Row-wise ones read and write only the rows that a step trains
    (`sampled_labels`), which is what makes a step's time independent of the label set. Absent: AdamW, on all rows."""
    loss: RankingLossConfig = LambdaRankConfig()
    """Learning-to-rank loss."""
    sampled_labels: Annotated[int, Field(ge=1)] = 128
    """Labels whose attention trains in a micro-batch: its positives, filled up with uniformly drawn labels, so that
    rare labels are planted as often as common ones."""
    grades: Annotated[int, Field(ge=1, le=10)] = 5
    """Relevance grades, spaced by the logarithm of a token's rank for the label; the gain is 2^grade − 1."""
    heads: Literal["mean", "each"] = "mean"
    """Rank by the mean score over the attention heads, or train every head to rank separately."""
    ndcg_cutoff: Annotated[int, Field(ge=1)] = 10
    """k of the dev nDCG@k that picks the best epoch."""
    dev_documents: Annotated[int, Field(ge=1)] = 500
    """Dev documents on which nDCG is measured each epoch."""
    cache_hidden: bool = True
    """Encode the corpus once and read hidden states from disk (its size is printed beforehand)."""
    prototypes: bool = True
    """After stage 1, start the classifier rows from the planted contexts (see `xmtc.training.prototypes`)."""
    callbacks: tuple[CallbackConfig, ...] = ()
    """What follows the training of this stage (docs/reference/callbacks.md), each kind once."""

    def __post_init__(self) -> None:
        """Refuse a callback that is there twice, and a stage that does nothing."""
        check_kinds(self.callbacks)
        if self.enabled and not self.epochs and not self.prototypes:
            raise ValueError("epochs: 0 without prototypes plants nothing; raise epochs, or set enabled to false")


@config
class FinetuneConfig:
    """Stage 2: fine-tuning with gradual unfreezing (docs/explanation/method.md)."""

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
    """Instead of `sampled_labels`: a micro-batch's positives, the labels nearest to its documents, and uniformly drawn
    labels that stand for all others."""
    label_optimizer: RowwiseOptimizerConfig | None = None
    """Optimizer of the label tables (queries, classifier rows, biases). Row-wise ones read and write only the rows that
    a step scores, where `sampled_labels` or `mining` chooses them. A flat head that scores all labels then trains them
    chunk by chunk, outside the clipped norm. Absent: AdamW, as for everything else."""
    contrastive: SupervisedContrastiveConfig | None = None
    """Supervised contrastive loss on the pooled documents, added to the classification loss in training."""
    metric: str = "ndcg@5"
    """Dev metric that picks the best epoch: one of docs/reference/metrics.md for which higher is better, except areas
    under the curve; `accuracy` with single-label tasks only."""
    patience: Annotated[int, Field(ge=0)] = 3
    """Stop after this many epochs without a better dev metric. 0: never."""
    dev_documents: Annotated[int, Field(ge=1)] | None = None
    """Dev documents scored after each epoch; all when absent."""
    cache_hidden: bool = True
    """In phases that leave the encoder frozen, read hidden states from disk instead of encoding every epoch."""
    callbacks: tuple[CallbackConfig, ...] = ()
    """What follows the training of this stage (docs/reference/callbacks.md), each kind once."""

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder may change, so that hidden states on disk would not be the trained model's."""
        return not self.cache_hidden or any(phase.encoder_layers != 0 for phase in self.phases)

    def __post_init__(self) -> None:
        """Refuse phases that freeze what an earlier one trained, and settings that exclude each other."""
        depths = [float("inf") if p.encoder_layers < 0 else p.encoder_layers for p in self.phases]
        if depths != sorted(depths):
            raise ValueError("encoder_layers must not shrink from one phase to the next")
        if not depths:
            raise ValueError("at least one phase is needed")
        check_kinds(self.callbacks)
        if self.sampled_labels and self.mining:
            raise ValueError("mining draws labels of its own (mining.uniform); leave sampled_labels out")
        some, refusal = self.samples_labels, self.loss.refuses_sampled_labels
        if some and refusal:
            raise ValueError(f"{some}: {refusal}; use another loss, or leave {some} out")
        if self.label_optimizer and (refusal := self.loss.refuses_label_shards):
            raise ValueError(f"label_optimizer: {refusal}; leave it out")

    @property
    def samples_labels(self) -> str | None:
        """The setting by which a micro-batch has the logits of some labels only; None where it has all."""
        return "sampled_labels" if self.sampled_labels else "mining" if self.mining else None
