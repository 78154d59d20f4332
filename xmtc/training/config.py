"""Settings of training: optimizer, phases, and the `finetune` section."""

import math
from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config, keys_beyond_defaults
from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.losses.config import AsymmetricFocalConfig, LossConfig
from xmtc.mining.config import MiningConfig
from xmtc.training.callbacks.config import CallbackConfig

WARMUP_SHARE = 0.05
"""Share of each phase's steps over which the learning rate rises."""
FINAL_SHARE = 0.05
"""Learning rate at the end of a phase, as a share of the peak."""


@config
class OptimizerConfig:
    """AdamW (Loshchilov & Hutter 2019) with warm-up and decay."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate of the head."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay; not applied to biases, norms and gains."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """Decay of the learning rate over each phase to 5 % of the peak, after a rise over its first 5 % of steps."""

    def factor(self, step: int, total: int) -> float:
        """Compute the factor of the peak learning rate.

        Args:
            step: steps done in the phase. Every phase has its warm-up and decay, because its optimizer is new.
            total: steps planned in the phase.
        """
        rise = min(1.0, (step + 1) / max(1, round(WARMUP_SHARE * total)))
        progress = min(1.0, step / max(1, total))
        shape = (
            1 - progress
            if self.schedule == "linear"
            else (1 + math.cos(math.pi * progress)) / 2
        )
        return rise * (FINAL_SHARE + (1 - FINAL_SHARE) * shape)


@config
class PhaseConfig:
    """Epochs that train the same parameters. A later phase trains all parameters of earlier ones, and possibly more
    (Howard & Ruder 2018).
    """

    epochs: Annotated[int, Field(ge=1)]
    """Passes over the training split."""
    encoder_layers: Annotated[int, Field(ge=-1)] = 0
    """Number of encoder layers that train, counted from the top; 0 trains only the head, -1 the whole encoder."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak learning rate of the head in this phase. Default: the optimizer's."""
    encoder_learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """Peak learning rate of the topmost encoder layer."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Learning rate of a layer as a share of the rate of the layer above it (discriminative learning rates)."""

    def __post_init__(self) -> None:
        """Refuse learning rates of an encoder that does not train."""
        found = ", ".join(
            keys_beyond_defaults(self, ("encoder_learning_rate", "layer_decay"))
        )
        if found and self.encoder_layers == 0:
            raise ValueError(
                f"{found}: no effect with encoder_layers: 0; set it to -1, or leave out {found}"
            )


@config
class TrainingConfig:
    """What the epochs of stage 1 and those of stage 2 share."""

    batch_size: Annotated[int, Field(ge=1)] = 32
    """Documents of one optimizer step, over all workers."""
    tokens_per_micro_batch: Annotated[int, Field(ge=1)] = 8192
    """Maximum number of padded tokens in one forward pass on one worker; larger batches are accumulated."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer and schedule."""
    label_optimizer: RowwiseOptimizerConfig | None = None
    """Optimizer of the label tables. It reads and writes only the rows that a step scores. Default: AdamW."""
    patience: Annotated[int, Field(ge=0)] = 3
    """Stop after this many epochs without a better dev metric. 0: never."""
    cache_hidden: bool = True
    """While the encoder is frozen, encode the corpus once and read hidden states from disk."""
    callbacks: tuple[CallbackConfig, ...] = ()
    """What follows the epochs (docs/reference/callbacks.md), each kind once."""

    def __post_init__(self) -> None:
        """Refuse a callback that occurs twice."""
        kinds = [callback.kind for callback in self.callbacks]
        if twice := [kind for kind in kinds if kinds.count(kind) > 1]:
            raise ValueError(f"callbacks: {twice[0]} occurs twice; keep one")


@config
class FinetuneConfig(TrainingConfig):
    """Stage 2: fine-tuning with gradual unfreezing (docs/explanation/method.md)."""

    phases: tuple[PhaseConfig, ...] = (
        PhaseConfig(epochs=3),
        PhaseConfig(epochs=5, encoder_layers=-1),
    )
    """Phases, in order: the head first, then the encoder from the top down."""
    loss: LossConfig = AsymmetricFocalConfig()
    """Classification loss."""
    sampled_labels: Annotated[int, Field(ge=1)] | None = None
    """Number of labels whose logits are computed in a micro-batch: its positives, and uniform ones that stand for all
    others, so that the loss is unbiased. Default: all labels."""
    mining: MiningConfig | None = None
    """Instead of `sampled_labels`: positives, the labels nearest to the documents, and uniform ones."""
    crop: Annotated[int, Field(ge=16)] | None = None
    """Tokens of the random span that training reads of a longer document, another in every epoch; predictions read
    whole documents. Default: training does, too."""
    metric: str = "ndcg@5"
    """Dev metric that picks the best epoch: any metric of docs/reference/metrics.md for which higher is better, except
    areas under the curve. `accuracy` is for single-label tasks only."""
    dev_documents: Annotated[int, Field(ge=1)] | None = None
    """Number of dev documents scored after each epoch. Default: all."""

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder may change, which would invalidate hidden states on disk."""
        return not self.cache_hidden or any(
            phase.encoder_layers != 0 for phase in self.phases
        )

    def __post_init__(self) -> None:
        """Refuse phases that freeze what an earlier one trained, and settings that exclude each other."""
        super().__post_init__()
        depths = [
            float("inf") if p.encoder_layers < 0 else p.encoder_layers
            for p in self.phases
        ]
        if depths != sorted(depths):
            raise ValueError(
                "encoder_layers must not shrink from one phase to the next"
            )
        if not depths:
            raise ValueError("at least one phase is needed")
        if self.sampled_labels and self.mining:
            raise ValueError(
                "mining draws labels itself (mining.uniform); leave sampled_labels out"
            )
        if self.crop and 0 in depths:
            raise ValueError(
                "crop: a phase with encoder_layers: 0 reads states of whole documents; leave crop out"
            )
        some, refusal = self.samples_labels, self.loss.refuses_sampled_labels
        if some and refusal:
            raise ValueError(
                f"{some}: {refusal}; use another loss, or leave {some} out"
            )
        if self.label_optimizer and (refusal := self.loss.refuses_label_shards):
            raise ValueError(f"label_optimizer: {refusal}; leave it out")

    @property
    def samples_labels(self) -> str | None:
        """Name of the setting that limits a micro-batch to the logits of some labels; None if it has all."""
        return (
            "sampled_labels"
            if self.sampled_labels
            else "mining"
            if self.mining
            else None
        )
