"""The whole configuration: one section per component, each defined next to the component."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.config.problems import shown, suggestion
from xmtc.data.config import DataConfig
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.settings import Demand
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.metrics import goals
from xmtc.losses.config import kinds_for
from xmtc.models.config import ModelConfig
from xmtc.models.heads.config import HeadUse
from xmtc.planting.config import PlantConfig
from xmtc.planting.mig.config import MigConfig
from xmtc.planting.plan import check_planting, planting_plan
from xmtc.storage.config import StorageConfig
from xmtc.track.config import TrackConfig
from xmtc.training.config import FinetuneConfig

RUN_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""A folder's name, on every file system."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]


@config
class RunConfig:
    """A training run."""

    name: Annotated[str, Field(min_length=1, pattern=RUN_NAME)]
    """The run's name; its directory is `<track.directory>/<name>`."""
    seed: Seed = 13
    """Fixes initialisation, the order of documents and every sampled choice."""
    data: DataConfig
    """Where documents come from and how they become a corpus."""
    mig: MigConfig = MigConfig()
    """Mutual information gain of tokens with labels."""
    model: ModelConfig = ModelConfig()
    """Backbone and head."""
    plant: PlantConfig = PlantConfig()
    """What the head starts from before stage 2."""
    finetune: FinetuneConfig = FinetuneConfig()
    """Stage 2."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """Metrics, thresholds, bootstrap."""
    distributed: DistributedConfig = DistributedConfig()
    """Workers and strategy."""
    track: TrackConfig = TrackConfig()
    """Run directory, logging, checkpoints."""
    storage: StorageConfig = StorageConfig()
    """Local copies of what is at a URI."""

    @property
    def trains_encoder(self) -> bool:
        """Whether stage 2 changes the encoder."""
        return self.model.head.scores and self.finetune.trains_encoder

    @property
    def trained_length(self) -> int:
        """Maximum number of tokens that stage 2 reads of a training document."""
        return min(self.data.max_length, self.finetune.crop or self.data.max_length)

    @property
    def reads_tokens(self) -> bool:
        """Whether anything but poolings without parameters reads the encoder's hidden states."""
        head = self.model.head
        return head.scores and not head.reads_fixed

    @property
    def scores_states(self) -> bool:
        """Whether a scorer other than the head reads the encoder's pooled states."""
        return any("states" in scorer.needs for scorer in self.model.scorers)

    @property
    def caches_states(self) -> bool:
        """Whether the outputs of the untrained encoder are kept on disk."""
        if not self.model.head.scores:
            return True
        tunes_head_first = self.finetune.cache_hidden and self.finetune.phases[0].encoder_layers == 0
        return tunes_head_first or (bool(planting_plan(self.model, self.plant).parts) and self.plant.cache_hidden)

    def shares_rows(self, labels: int, workers: int) -> bool:
        """Whether workers share the label rows; otherwise each has all of them.

        With shares, workers exchange keys and values of all tokens in every micro-batch; with replicas, the gradient of
        all rows once a step. A loss may need all rows, and a row-wise optimizer has only its share.
        """
        tune, head = self.finetune, self.model.head
        row_wise = tune.samples_labels or tune.label_optimizer or self.plant.label_optimizer
        few = head.attends_by_label and labels <= tune.tokens_per_micro_batch  # whatever the number of workers
        refused = tune.loss.refuses_label_shards is not None and workers > 1
        whole = refused or (few and head.row_dtype == "float32" and not row_wise)
        return head.scores and not whole and labels >= workers

    @property
    def refits_scorers(self) -> bool:
        """Whether scorers that read hidden states are fitted again once stage 2 has changed the encoder."""
        return self.trains_encoder and self.scores_states

    def __post_init__(self) -> None:
        """Refuse what neither section can see alone."""
        check_planting(self.model, self.plant)
        self._check_finetune()
        self._check_backbone()
        if self.evaluate.shortlist and self.data.task == "single_label":
            raise ValueError("evaluate.shortlist: the labels of a single-label task need every logit; leave it out")
        if self.evaluate.decision != EvaluateConfig().decision and self.data.task == "single_label":
            raise ValueError("evaluate.decision: a single-label task gives each document its best label; leave it out")
        self._check_loss()
        self._check_label_optimizer()
        self._check_strategy()
        for refusal in self.model.head.refusals(self._head_use()):
            raise ValueError(refusal)

    def _head_use(self) -> HeadUse:
        """Describe what this run needs of its head."""
        finetune = self.finetune
        return HeadUse(
            label_text=self.model.label_text,
            draws_labels=finetune.sampled_labels is not None or finetune.mining is not None,
            row_optimizer=finetune.label_optimizer is not None,
        )

    def _check_strategy(self) -> None:
        """Refuse what the strategy cannot do, in its own words."""
        refusals = self.distributed.chosen_strategy().refusals()
        for demand, setting in self._demands():
            if demand in refusals:
                raise ValueError(f"{setting} and {refusals[demand]}")

    def _demands(self) -> Iterator[tuple[Demand, str]]:
        """Yield what this configuration needs of the strategy, with the setting that needs it."""
        backbone = self.model.encoder.backbone
        if self.model.head.label_tokens is not None:
            yield Demand.LABEL_TEXTS, f"model.head.kind: {self.model.head.kind}"
        if backbone is not None and backbone.quantize:
            yield Demand.QUANTIZED_WEIGHTS, f"model.encoder.quantize: {backbone.quantize}"

    def _check_finetune(self) -> None:
        """Refuse a metric that picks no epoch."""
        metric, known = self.finetune.metric, goals(self.data.task)
        if metric not in known:
            raise ValueError(
                f"finetune.metric: {shown(metric)}: no metric of a {self.data.task} task that picks an epoch; "
                f"{suggestion(metric, known)}known: {', '.join(known)}"
            )

    def _check_backbone(self) -> None:
        """Refuse a phase that would train weights which are not float32, before the phases in front of it are done."""
        backbone, key = self.model.encoder.backbone, self.model.encoder.backbone_key
        trains = self.model.head.scores and self.finetune.phases[-1].encoder_layers != 0
        if trains and backbone is not None and backbone.dtype != "float32" and backbone.lora is None:
            raise ValueError(
                f"{key}.dtype: {backbone.dtype}: finetune.phases trains these weights, which must be float32; set "
                f"{key}.dtype=float32, give {key}.lora, or set encoder_layers: 0 in every phase"
            )

    def _check_label_optimizer(self) -> None:
        """Refuse a row-wise optimizer in stage 1 where stage 2 needs the label tables whole on every worker."""
        refusal = self.finetune.loss.refuses_label_shards
        if self.plant.label_optimizer and refusal:
            raise ValueError(f"plant.label_optimizer: {refusal}; leave it out")

    def _check_loss(self) -> None:
        """Refuse a loss whose probabilities are not those of the task: one of all labels, or one of each."""
        task, loss = self.data.task, self.finetune.loss
        if loss.task == task or not self.model.head.scores:
            return
        reason = (
            "fits the probability of each label separately, and data.task: single_label reads them as shares of one"
            if task == "single_label"
            else "needs exactly one label on each document, and data.task is multi_label"
        )
        raise ValueError(
            f"finetune.loss.kind: {loss.kind} {reason}; set finetune.loss.kind to {' or '.join(kinds_for(task))}, or "
            f"data.task to {loss.task}"
        )
