"""The whole configuration: one section a component, each defined beside the component."""

from typing import Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.config.problems import shown, suggestion
from xmtc.data.prepare import DataConfig
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies import DeepSpeedConfig, SingleConfig, StrategyConfig
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.goals import goals
from xmtc.losses.asymmetric_focal import AsymmetricFocalConfig
from xmtc.mig.config import MigConfig
from xmtc.models.classifier import ModelConfig
from xmtc.models.encoders import backbone_of
from xmtc.models.heads import FlatConfig, TwoTowerConfig
from xmtc.storage import StorageConfig
from xmtc.track.config import TrackConfig
from xmtc.train.finetune import FinetuneConfig
from xmtc.train.plant import PlantConfig


@config
class RunConfig:
    """A training run."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
    """The run's name; its directory is `<track.directory>/<name>`."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 13
    """Fixes initialisation, the order of documents and every sampled choice."""
    data: DataConfig
    """Where documents come from and how they become a corpus."""
    mig: MigConfig = MigConfig()
    """Mutual information gain of tokens with labels."""
    model: ModelConfig = ModelConfig()
    """Backbone and head."""
    plant: PlantConfig = PlantConfig()
    """Stage 1."""
    finetune: FinetuneConfig = FinetuneConfig()
    """Stage 2."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Metrics, thresholds, bootstrap."""
    distributed: DistributedConfig = DistributedConfig()
    """Workers and strategy."""
    track: TrackConfig = TrackConfig()
    """Run directory, logging, checkpoints."""
    storage: StorageConfig = StorageConfig()
    """Local copies of what lies at a URI."""

    def __post_init__(self) -> None:
        """Refuse what neither section can see alone."""
        encoder, strategy = backbone_of(self.model.encoder), self.distributed.chosen_strategy()
        self._check_finetune()
        if self.evaluate.shortlist and self.data.task == "single_label":
            raise ValueError("evaluate.shortlist: the labels of a single-label task need every logit; leave it out")
        self._check_loss()
        if self.finetune.label_optimizer and not isinstance(strategy, SingleConfig):
            raise ValueError(
                f"finetune.label_optimizer: {self.finetune.label_optimizer.kind} updates rows in one process only; "
                "train with distributed.workers 0 or 1 and strategy single, or leave it out"
            )
        if self.finetune.mining and isinstance(strategy, DeepSpeedConfig) and strategy.stage == 3:
            raise ValueError(
                "finetune.mining and distributed.strategy.stage: 3 exclude each other: no rank holds the label table "
                "that the index is built from; use stage 2"
            )
        if self.distributed.shard_labels:
            self._check_sharded()
        if isinstance(self.model.head, TwoTowerConfig):
            self._check_two_tower(strategy)
        if encoder is None or not isinstance(strategy, DeepSpeedConfig):
            return
        if strategy.stage == 3 and encoder.quantize:
            raise ValueError(
                f"model.encoder.quantize: {encoder.quantize} and distributed.strategy.stage: 3 exclude each other: "
                "ZeRO-3 partitions quantised weights wrongly, and trains wrongly without an error; use stage 2"
            )
        if strategy.stage == 3 and encoder.window_group is not None:
            raise ValueError(
                "model.encoder.window_group and distributed.strategy.stage: 3 exclude each other: ranks would differ "
                "in their number of passes, and wait for each other forever; use stage 2, or leave window_group out"
            )

    def _check_finetune(self) -> None:
        """Refuse a metric that picks no epoch, and a contrastive loss that moves nothing."""
        metric, known = self.finetune.metric, goals(self.data.task)
        if metric not in known:
            raise ValueError(
                f"finetune.metric: {shown(metric)}: no metric of a {self.data.task} task that picks an epoch; "
                f"{suggestion(metric, known)}known: {', '.join(known)}"
            )
        head, frozen = self.model.head, all(phase.encoder_layers == 0 for phase in self.finetune.phases)
        if self.finetune.contrastive and frozen and isinstance(head, FlatConfig) and head.pooling.kind != "attention":
            raise ValueError(
                f"finetune.contrastive: it moves nothing where no phase trains the encoder and pooling "
                f"{head.pooling.kind} has no parameters; give a phase encoder_layers, take model.head.pooling.kind "
                "attention, or leave it out"
            )

    def _check_loss(self) -> None:
        """Refuse a loss whose probabilities are not those of the task: one of all labels, or one of each."""
        task, kind = self.data.task, self.finetune.loss.kind
        if task == "single_label" and kind != "cross_entropy":
            raise ValueError(
                f"finetune.loss.kind: {kind} fits the probability of each label by itself, and data.task: single_label "
                "reads them as shares of one; set finetune.loss={kind: cross_entropy}"
            )
        if task == "multi_label" and kind == "cross_entropy":
            raise ValueError(
                "finetune.loss.kind: cross_entropy needs exactly one label on each document: set finetune.loss.kind to "
                "binary_cross_entropy or asymmetric_focal, or data.task to single_label"
            )

    def _check_sharded(self) -> None:
        """Refuse what needs rows of labels that another worker has."""
        finetune, unfit = self.finetune, "distributed.shard_labels"
        for name in ("mining", "sampled_labels", "label_optimizer"):
            if getattr(finetune, name):
                raise ValueError(
                    f"finetune.{name} and {unfit} exclude each other: every worker scores all of its own labels; "
                    "leave one of them out"
                )
        if self.data.task == "single_label":
            raise ValueError(f"{unfit}: a softmax needs every label, and each worker has only its own; leave it out")
        if isinstance(finetune.loss, AsymmetricFocalConfig) and finetune.loss.hard_negatives:
            raise ValueError(
                f"finetune.loss.hard_negatives and {unfit} exclude each other: no worker knows which of all labels are "
                "the hardest; leave one of them out"
            )
        if self.model.head.row_dtype != "float32":
            raise ValueError(f"model.head.row_dtype: {self.model.head.row_dtype} and {unfit} exclude each other")

    def _check_two_tower(self, strategy: StrategyConfig) -> None:
        """Refuse what needs rows that are trained, or all labels' texts at every step."""
        two = "model.head.kind: two_tower"
        if not (self.finetune.sampled_labels or self.finetune.mining):
            raise ValueError(
                f"{two} embeds the labels of a micro-batch; give finetune.sampled_labels or finetune.mining"
            )
        unfit = {
            "plant.enabled (there is no attention by label)": self.plant.enabled,
            "model.label_text (this head always reads names)": self.model.label_text,
            "finetune.label_optimizer (its rows are not trained)": self.finetune.label_optimizer,
            "distributed.shard_labels": self.distributed.shard_labels,
            "distributed.strategy.stage: 3": isinstance(strategy, DeepSpeedConfig) and strategy.stage == 3,
        }
        for setting, given in unfit.items():
            if given:
                raise ValueError(f"{two} and {setting} exclude each other; leave one of them out")
