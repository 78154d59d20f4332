"""Estimate the memory of a label set, and find settings that reduce it, before training begins.

Bytes are per worker, for the head's label tables (queries, classifier rows, biases) and the logits of a micro-batch.

Suffixes: L labels, S labels with a logit in a micro-batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import psutil
import torch
from torch import Tensor

from xmtc.distributed.rowwise_config import AdamWConfig, RowwiseAdagradConfig, RowwiseSettings
from xmtc.estimate.cards import card_of
from xmtc.models.heads.base import ScoresByProduct
from xmtc.models.heads.config import FlatConfig, HeadSettings
from xmtc.models.kernels.products import CHUNK
from xmtc.run.config import RunConfig
from xmtc.training.config import PlantConfig

_LOGIT_BYTES = 12  # float32: the logit, its gradient, and a value that the loss keeps for the backward pass
_SAMPLED = 512
_GIB = 2**30


@dataclass(frozen=True)
class LabelMemory:
    """Bytes per worker.

    Attributes:
        tables: the rows.
        training: gradients and optimizer state of the rows.
        logits: logits of a micro-batch in training.
    """

    tables: float
    training: float
    logits: float

    @property
    def total(self) -> float:
        """All together."""
        return self.tables + self.training + self.logits

    def __str__(self) -> str:
        """Describe the parts in GiB."""
        parts = {"tables": self.tables, "gradients and moments": self.training, "logits": self.logits}
        return ", ".join(f"{name} {size / _GIB:,.2f}" for name, size in parts.items()) + " GiB"


def label_memory(config: RunConfig, width: int, labels: int, documents: int) -> LabelMemory:
    """Estimate the memory of one worker that the label set takes.

    Args:
        config: configuration of the run.
        width: width of the encoder.
        labels: L.
        documents: number of documents in a micro-batch.
    """
    with torch.device("meta"):
        one = list(config.model.head.build(width, 1).label_tables().values())
    numbers = sum(table.numel() for table in one if table.requires_grad)
    # A worker holds a share of the labels and scores the documents of all workers.
    world = max(1, config.distributed.min_workers) if config.finetune.loss.refuses_label_shards is None else 1
    own, documents = -(-labels // world), documents * world
    scored = -(-scored_labels(config, labels, documents) // world)
    if trains_in_chunks(config):
        scored = min(CHUNK, own)
    gradients = 4 * numbers * scored
    state = own * _state_of_rows(config.finetune.label_optimizer or AdamWConfig(), one)
    tables = own * sum(table.numel() * table.element_size() for table in one)
    return LabelMemory(tables, gradients + state, _LOGIT_BYTES * scored * documents)


def trains_in_chunks(config: RunConfig) -> bool:
    """Whether all labels train chunk by chunk (`xmtc.training.flat_step`)."""
    finetune = config.finetune
    with torch.device("meta"):
        products = isinstance(config.model.head.build(8, 1), ScoresByProduct)
    return products and finetune.label_optimizer is not None and not finetune.samples_labels and finetune.loss.separable


def _state_of_rows(optimizer: RowwiseSettings, rows: Sequence[Tensor]) -> int:
    """Estimate bytes of an optimizer's state for one row of each table."""
    return sum(
        optimizer.row_state_bytes(row.numel(), bfloat16=row.dtype == torch.bfloat16)
        for row in rows
        if row.requires_grad
    )


def scored_labels(config: RunConfig, labels: int, documents: int) -> int:
    """Compute the upper bound of S; if labels are drawn, without the positives."""
    settings = config.finetune
    if settings.mining is not None:
        return min(labels, settings.mining.candidates * documents + settings.mining.uniform)
    return min(labels, settings.sampled_labels or labels)


def cheaper(config: RunConfig, width: int, labels: int, documents: int) -> Iterator[tuple[str, LabelMemory]]:
    """Yield settings that reduce the memory, each applied on top of the previous ones, and the memory then.

    Settings that are already in effect are left out.
    """
    finetune = config.finetune
    cost = label_memory(config, width, labels, documents).total
    for setting, changed in _steps(config, sampled=finetune.mining is None and finetune.sampled_labels is None):
        found = label_memory(changed, width, labels, documents)
        if found.total < cost:
            cost = found.total
            yield setting, found


def _steps(config: RunConfig, *, sampled: bool) -> Iterator[tuple[str, RunConfig]]:
    if sampled:
        config = replace(config, finetune=replace(config.finetune, sampled_labels=_SAMPLED))
        yield f"finetune.sampled_labels={_SAMPLED} (or finetune.mining)", config
    if config.finetune.loss.refuses_label_shards is None:
        config = replace(config, finetune=replace(config.finetune, label_optimizer=RowwiseAdagradConfig()))
        yield "finetune.label_optimizer={kind: rowwise_adagrad}", config
    halved = config.model.head.with_row_dtype("bfloat16")
    if config.finetune.label_optimizer is not None and config.model.head.row_dtype == "float32" and halved is not None:
        setting = "model.head.row_dtype=bfloat16"
        config = replace(config, model=replace(config.model, head=halved))
        yield setting, config
    flat = _with_head(config, FlatConfig(row_dtype=config.model.head.row_dtype))
    yield f"model.head={{kind: flat}}{_without_epochs(config)}", flat


def _with_head(config: RunConfig, head: HeadSettings) -> RunConfig:
    """Return the same run with another head, which has no attention to plant."""
    return replace(config, model=replace(config.model, head=head), plant=PlantConfig())


def _without_epochs(config: RunConfig) -> str:
    """Return the override that a head without attention by label needs."""
    return " plant.epochs=0" if config.plant.epochs else ""


def memory_of_worker(config: RunConfig) -> float | None:
    """Estimate bytes available to a worker; None if unknown, because the machine or the card is."""
    if config.distributed.gpus_per_worker > 0:
        card = card_of(config.distributed)
        return None if card is None else card.gib * _GIB
    if config.distributed.address is not None:
        return None
    return psutil.virtual_memory().available / max(1, config.distributed.max_workers)


def describe(config: RunConfig, width: int, labels: int, documents: int) -> Iterator[str]:
    """Yield lines that describe the memory of the label set. If it does not fit, list settings until one fits."""
    found, room = label_memory(config, width, labels, documents), memory_of_worker(config)
    yield f"{labels:,} labels take {found.total / _GIB:,.2f} GiB of a worker: {found}"
    if room is None or found.total <= room:
        return
    yield f"this exceeds the {room / _GIB:,.1f} GiB that a worker has here. To reduce it, apply these in order:"
    for setting, less in cheaper(config, width, labels, documents):
        fits = less.total <= room
        yield f"  {setting}: {less.total / _GIB:,.2f} GiB{', which fits' if fits else ''}"
        if fits:
            return
