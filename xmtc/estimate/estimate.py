"""Estimate memory, disk, steps and time of a run before it begins, without a GPU."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.errors import ConfigError, DataError
from xmtc.estimate.gpu_cost import print_gpu_costs
from xmtc.estimate.memory import (
    CARD_RESOURCE,
    GIB,
    label_lines,
    memory_of_worker,
    meta_classifier,
    trained_parameters,
    worker_memory,
)
from xmtc.estimate.probe import core_seconds, encoder_seconds, head_seconds
from xmtc.estimate.seconds import Speeds, in_words, not_measured, stage_seconds
from xmtc.estimate.size import SAMPLE, Size, is_prepared, size_of, size_of_corpus, size_of_source, survey
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.storage.fetch import fetch_parts
from xmtc.track.progress import Progress

Ids = NDArray[np.int32]

_CHECKPOINT_BYTES = 12.0
"""Of a trained number: the number itself and the optimizer's two moments, in float32."""
_WEIGHT_BYTES = 4.0


@dataclass(frozen=True)
class Estimate:
    """The result.

    Attributes:
        memory: bytes of one worker by purpose; they add up to the peak.
        disk: bytes of the whole run by purpose.
        parameters, trained: number of parameters, and the largest number that trains at once.
        steps: optimizer steps by stage.
        workers: number of workers.
        size: size of the corpus that it was estimated for.
        width: D, width of the encoder.
    """

    memory: Mapping[str, float]
    disk: Mapping[str, float]
    parameters: int
    trained: int
    steps: Mapping[str, int]
    workers: int
    size: Size
    width: int

    @property
    def peak(self) -> float:
        """Bytes of one worker."""
        return sum(self.memory.values())


def estimate(config: RunConfig, size: Size | None = None, workers: int | None = None) -> Estimate:
    """Estimate memory, disk and steps of a run.

    Args:
        config: configuration of the run.
        size: size of the corpus. Default: see `size_of`.
        workers: number of workers. Default: the smallest number in `distributed.workers`, with the most memory each.

    Raises:
        ConfigError: the shape of the backbone is neither known nor in files on this machine.
    """
    size = size or size_of(config)
    world = max(1, config.distributed.min_workers if workers is None else workers)
    classifier = meta_classifier(config, size)
    width = classifier.encoder.width
    trained = sum(parameter.numel() for parameter in trained_parameters(config, classifier))
    return Estimate(
        memory=worker_memory(config, classifier, size, world),
        disk=_disk(config, size, width, trained),
        parameters=sum(parameter.numel() for parameter in classifier.parameters()),
        trained=trained,
        steps=_steps(config, size),
        workers=world,
        size=size,
        width=width,
    )


def _disk(config: RunConfig, size: Size, width: int, trained: int) -> dict[str, float]:
    """Estimate the bytes of a run on disk by purpose, with `trained` numbers that train."""
    documents = size.train + size.dev + size.test
    bytes_of_document = 4 * size.tokens + 8 * size.words + 4 * size.labels_per_document
    checkpoints = config.track.keep_last + 1  # the newest is written before the oldest is removed
    return {
        "corpus": bytes_of_document * documents,
        "hidden states": hidden_states_bytes(config, size, width),
        "checkpoints": _CHECKPOINT_BYTES * trained * checkpoints + _WEIGHT_BYTES * trained,
    }


def hidden_states_bytes(config: RunConfig, size: Size, width: int) -> float:
    """Estimate bytes of cached hidden states of train and dev, or of their poolings if nothing else is read.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the encoder.
    """
    reads_states = config.model.head.scores or config.scores_states
    if not config.caches_states or not reads_states:
        return 0.0
    vectors = size.tokens if config.reads_tokens else FixedPoolings.count
    bytes_of_number = 2 if config.distributed.precision == "bf16" else 4
    return (size.train + size.dev) * vectors * width * bytes_of_number


def speeds_of(config: RunConfig, size: Size, width: int, ids_N: Sequence[Ids]) -> Speeds:
    """Measure this machine for a run, in a few seconds.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the encoder.
        ids_N: token ids of some documents.

    Raises:
        ConfigError: the encoder cannot be loaded.
    """
    head = None
    if config.model.head.scores:
        head = head_seconds(config, width, size.labels, size.labels_per_document)
    lengths: list[int] = []
    if config.model.head.scores or config.scores_states:
        lengths = sorted({config.data.max_length, config.trained_length})
    train_s: dict[int, float] = {}
    if config.trains_encoder:
        train_s = encoder_seconds(config, ids_N, lengths[:1], train=True)
    return Speeds(
        core_s=core_seconds(),
        encode_s=encoder_seconds(config, ids_N, lengths),
        head=head,
        train_s=train_s,
    )


def dry_run(config: RunConfig, price: float | None = None) -> None:
    """Print the estimate of a run, of its corpus or else of its source.

    Args:
        config: configuration of the run.
        price: of a GPU for an hour, in any currency; adds what the run costs by card.

    Raises:
        ConfigError: the shape of the backbone is unknown.
        DataError: the source is missing, cannot be read, or holds no text.
        StorageError: the source is at a URI and cannot be fetched.
    """
    size, ids_N = _size_and_tokens(config)
    result = estimate(config, size)
    print_estimate(config, result, stages=_stages(config, size, result.width, ids_N))
    print(*label_lines(config, size), sep="\n")
    if price is not None or config.distributed.on_gpu:
        print_gpu_costs(config, size, result.width, result.peak, result.workers, price)


def _size_and_tokens(config: RunConfig) -> tuple[Size, list[Ids]]:
    """Find the size of a run's corpus, and token ids of some documents.

    Raises:
        DataError: see `dry_run`.
        StorageError: see `dry_run`.
    """
    if is_prepared(config):
        corpus = Corpus.open(RunPaths.of(config).corpus)
        train = corpus.split("train")
        step = math.ceil(len(train) / SAMPLE)
        return size_of_corpus(corpus), [train.tokens(index) for index in range(0, len(train), step)]
    source = fetch_parts(config.data.source, config.storage)
    counts = survey(replace(config.data, source=source), Progress())
    if not counts.texts:
        raise DataError("data.source: no document with text; `xmtc prepare CONFIG` names the rows that it rejects")
    try:
        ids_N = counts.token_ids(config.model.encoder.pretrained or DEFAULT_BACKBONE)
    except ConfigError:  # the encoder is not on this machine
        ids_N = counts.token_ids(DEFAULT_BACKBONE)
    lengths = np.array([len(ids) for ids in ids_N])
    return size_of_source(config, counts, lengths), ids_N


def _stages(config: RunConfig, size: Size, width: int, ids_N: Sequence[Ids]) -> dict[str, float] | None:
    """Estimate the seconds of each stage; None if it uses other processes or a GPU, or its encoder is not here."""
    distributed = config.distributed
    elsewhere = distributed.max_workers > 0 or distributed.gpus_per_worker > 0
    if elsewhere or config.model.encoder.pretrained is None:
        return None
    try:
        return stage_seconds(config, size, speeds_of(config, size, width, ids_N), width)
    except ConfigError:
        return None


def _steps(config: RunConfig, size: Size) -> dict[str, int]:
    """Count the optimizer steps of each stage that has any."""
    if not config.model.head.scores:
        return {}
    steps = {}
    planting_epochs = planting_plan(config.model, config.plant).ranking_epochs
    if planting_epochs:
        steps[str(Stage.PLANT)] = planting_epochs * math.ceil(size.train / config.plant.batch_size)
    epochs = sum(phase.epochs for phase in config.finetune.phases)
    steps[str(Stage.FINETUNE)] = epochs * math.ceil(size.train / config.finetune.batch_size)
    return steps


def print_estimate(config: RunConfig, result: Estimate, stages: Mapping[str, float] | None = None) -> None:
    """Print the estimate as a table.

    Args:
        config: configuration of the run.
        result: the estimate.
        stages: seconds of each stage, if measured.
    """
    size = result.size
    print(
        f"{config.name}: {result.workers} worker{'s' if result.workers > 1 else ''}; {size.origin}: "
        f"{size.train:,} documents of {size.tokens:,.0f} tokens (longest {size.longest:,}), {size.labels:,} labels"
    )
    print(f"parameters: {result.parameters:,}; at most {result.trained:,} train at once")
    _print_memory(config, result)
    for name, part in result.disk.items():
        print(f"disk, {name}: {part / GIB:,.2f} GiB")
    if result.steps:
        print("optimizer steps: " + ", ".join(f"{stage} {steps:,}" for stage, steps in result.steps.items()))
    if stages is not None:
        parts = ", ".join(f"{stage} {in_words(seconds)}" for stage, seconds in stages.items())
        print(f"time, measured on this machine, assuming that it is idle: {in_words(sum(stages.values()))} ({parts})")
        missing = not_measured(config)
        if missing:
            print(f"without {', '.join(missing)}: nobody has measured them")


def _print_memory(config: RunConfig, result: Estimate) -> None:
    """Print the memory of one worker by purpose, and whether a worker has it."""
    table = Table("memory of one worker", "GiB", title_justify="left")
    for name, part in (*result.memory.items(), ("together", result.peak)):
        table.add_row(name, f"{part / GIB:,.2f}")
    Console().print(table)
    room = memory_of_worker(config)
    if room is not None and result.peak > room:
        print(f"this exceeds the {room / GIB:,.1f} GiB of a worker")
    if room is None and config.distributed.on_gpu:
        example = f"'distributed.resources_per_worker={{\"{CARD_RESOURCE}A100\": 0.001}}'"
        print(f"the card is unknown; add the one that workers shall have, such as {example}, to the command")
