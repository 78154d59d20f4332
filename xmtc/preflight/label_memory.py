"""What a label set costs in memory, and which settings would cost less: said before training begins.

Bytes are of one worker, for the head's label tables (queries, classifier rows, biases) and the logits of a micro-batch.

Suffixes: L labels, S labels with a logit in a micro-batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import torch

from xmtc.distributed.rowwise_optim import RowwiseAdagradConfig
from xmtc.distributed.strategies import DeepSpeedConfig
from xmtc.models.heads import FlatConfig
from xmtc.run.config import RunConfig

_LOGIT_BYTES = 12  # float32: the logit, its gradient, and what the loss keeps for the backward pass
_SAMPLED = 512
_GIB = 2**30


@dataclass(frozen=True)
class LabelMemory:
    """Bytes of one worker.

    Attributes:
        tables: the rows.
        training: their gradients and the optimizer's state.
        logits: of a micro-batch, in training.
    """

    tables: float
    training: float
    logits: float

    @property
    def total(self) -> float:
        """All together."""
        return self.tables + self.training + self.logits

    def __str__(self) -> str:
        """The parts in GiB."""
        parts = {"tables": self.tables, "gradients and moments": self.training, "logits": self.logits}
        return ", ".join(f"{name} {size / _GIB:,.2f}" for name, size in parts.items()) + " GiB"


def label_memory(config: RunConfig, width: int, labels: int, documents: int) -> LabelMemory:
    """Reckon.

    Args:
        config: of the run.
        width: of the encoder.
        labels: L.
        documents: of a micro-batch.
    """
    with torch.device("meta"):
        one = config.model.head.build(width, 1).label_tables()
    numbers = sum(table.numel() for table in one if table.requires_grad)
    scored = scored_labels(config, labels, documents)
    strategy, optimizer = config.distributed.chosen_strategy(), config.finetune.label_optimizer
    world = max(1, config.distributed.workers)
    if config.distributed.shard_labels:  # a share of the labels, for the documents of all workers
        own = -(-labels // world)
        return LabelMemory(4 * numbers * own, 12 * numbers * own, _LOGIT_BYTES * own * documents * world)
    if optimizer is None:
        stage = strategy.stage if isinstance(strategy, DeepSpeedConfig) else 0
        gradients = 4 * numbers * labels / (world if stage >= 2 else 1)
        state = 8 * numbers * labels / (world if stage >= 1 else 1)
    else:
        gradients = 4 * numbers * scored
        state = 4 * len(one) * labels if isinstance(optimizer, RowwiseAdagradConfig) else 8 * numbers * labels
        if optimizer.rounding == "kahan" and config.model.head.row_dtype == "bfloat16":
            state += 2 * labels * sum(table.numel() for table in one if table.dtype == torch.bfloat16)
    tables = labels * sum(table.numel() * table.element_size() for table in one)
    return LabelMemory(tables, gradients + state, _LOGIT_BYTES * scored * documents)


def scored_labels(config: RunConfig, labels: int, documents: int) -> int:
    """S at most, positives left out of account where labels are drawn."""
    settings = config.finetune
    if settings.mining is not None:
        return min(labels, settings.mining.candidates * documents + settings.mining.uniform)
    return min(labels, settings.sampled_labels or labels)


def cheaper(config: RunConfig, width: int, labels: int, documents: int) -> Iterator[tuple[str, LabelMemory]]:
    """Settings that cost less, each with all before it, and what is left then; those that are set already left out."""
    finetune = config.finetune
    cost = label_memory(config, width, labels, documents).total
    for setting, changed in _steps(config, sampled=finetune.mining is None and finetune.sampled_labels is None):
        found = label_memory(changed, width, labels, documents)
        if found.total < cost:
            cost = found.total
            yield setting, found


def _steps(config: RunConfig, *, sampled: bool) -> Iterator[tuple[str, RunConfig]]:
    if config.distributed.shard_labels:  # which goes with none of them but the last
        sampled = False
    if sampled:
        config = replace(config, finetune=replace(config.finetune, sampled_labels=_SAMPLED))
        yield f"finetune.sampled_labels={_SAMPLED} (or finetune.mining)", config
    one_process = config.distributed.workers <= 1 and not config.distributed.shard_labels
    if one_process and not isinstance(config.finetune.label_optimizer, RowwiseAdagradConfig):
        config = replace(config, finetune=replace(config.finetune, label_optimizer=RowwiseAdagradConfig()))
        yield "finetune.label_optimizer={kind: rowwise_adagrad}", config
    if config.finetune.label_optimizer is not None and config.model.head.row_dtype == "float32":
        head = replace(config.model.head, row_dtype="bfloat16")
        changed = replace(config, model=replace(config.model, head=head), plant=replace(config.plant, enabled=False))
        yield f"model.head.row_dtype=bfloat16{_without_plant(config)}", changed
        config = changed
    if not isinstance(config.model.head, FlatConfig):
        head = FlatConfig(row_dtype=config.model.head.row_dtype)
        flat = replace(config, model=replace(config.model, head=head), plant=replace(config.plant, enabled=False))
        yield f"model.head={{kind: flat}}{_without_plant(config)}", flat


def _without_plant(config: RunConfig) -> str:
    """What a setting needs beside it that rules out planting."""
    return " plant.enabled=false" if config.plant.enabled else ""


def memory_of_worker(config: RunConfig) -> float | None:
    """Bytes that a worker can have on this machine; None where it will run on another, or on a GPU that is not here."""
    if config.distributed.address is not None:
        return None
    if config.distributed.gpus_per_worker > 0:
        return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
    return psutil.virtual_memory().available / max(1, config.distributed.workers)


def describe(config: RunConfig, width: int, labels: int, documents: int) -> Iterator[str]:
    """Lines: what the label set takes; where that is more than there is, what would take less, up to what fits."""
    found, room = label_memory(config, width, labels, documents), memory_of_worker(config)
    yield f"{labels:,} labels take {found.total / _GIB:,.2f} GiB of a worker: {found}"
    if room is None or found.total <= room:
        return
    yield f"that does not fit the {room / _GIB:,.1f} GiB that a worker has here; less is taken, one upon the other, by"
    for setting, less in cheaper(config, width, labels, documents):
        fits = less.total <= room
        yield f"  {setting}: {less.total / _GIB:,.2f} GiB{', which fits' if fits else ''}"
        if fits:
            return
