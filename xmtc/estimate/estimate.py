"""Estimate memory, disk, steps and time of a run before it begins, without a GPU."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.estimate.memory import GIB, label_lines, memory_of_worker, meta_classifier, trained_parameters, worker_memory
from xmtc.estimate.probe import core_seconds, encoder_seconds, head_seconds
from xmtc.estimate.seconds import Speeds, in_words, not_measured, stage_seconds
from xmtc.estimate.size import SAMPLE, Size, is_prepared, size_of, size_of_corpus, size_of_source, survey
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.storage.fetch import fetch_parts
from xmtc.track.console import terminal_table
from xmtc.track.progress import Progress

log = logging.getLogger(__name__)

Ids = NDArray[np.int32]


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
    trained = sum(p.numel() for p in trained_parameters(config, classifier))
    width, documents = classifier.encoder.width, size.train + size.dev + size.test
    return Estimate(
        memory=worker_memory(config, classifier, size, world),
        disk={
            "corpus": (4 * size.tokens + 8 * size.words + 4 * size.labels_per_document) * documents,
            "hidden states": hidden_states_bytes(config, size, width),
            "checkpoints": 12.0 * trained * (config.track.keep_last + 1) + 4.0 * trained,
        },
        parameters=sum(p.numel() for p in classifier.parameters()),
        trained=trained,
        steps=_steps(config, size),
        workers=world,
        size=size,
        width=width,
    )


def hidden_states_bytes(config: RunConfig, size: Size, width: int) -> float:
    """Estimate bytes of cached hidden states of train and dev, or of their poolings if nothing else is read.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the encoder.
    """
    if not config.caches_states or not (config.model.head.scores or config.scores_states):
        return 0.0
    vectors = size.tokens if config.reads_tokens else FixedPoolings.count
    return (size.train + size.dev) * vectors * width * (2 if config.distributed.precision == "bf16" else 4)


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
    encodes, head = config.model.head.scores or config.scores_states, None
    if config.model.head.scores:
        head = head_seconds(config, width, size.labels, size.labels_per_document)
    lengths = sorted({config.data.max_length, config.trained_length}) if encodes else []
    return Speeds(
        core_s=core_seconds(),
        encode_s=encoder_seconds(config, ids_N, lengths),
        head=head,
        train_s=encoder_seconds(config, ids_N, lengths[:1], train=True) if config.trains_encoder else {},
    )


def dry_run(config: RunConfig) -> None:
    """Print the estimate of a run: of its corpus, of its source, or of an assumed corpus.

    Raises:
        ConfigError: the shape of the backbone is unknown.
    """
    size, ids_N = _look(config)
    found = estimate(config, size)
    print_estimate(config, found, stages=_stages(config, size, found.width, ids_N))
    print(*label_lines(config, size), sep="\n")


def _look(config: RunConfig) -> tuple[Size, list[Ids]]:
    """Find the size of a run's corpus, and token ids of some documents; none if nothing can be read here."""
    if is_prepared(config):
        corpus = Corpus.open(RunPaths.of(config).corpus)
        train = corpus.split("train")
        return size_of_corpus(corpus), [train.tokens(i) for i in range(0, len(train), -(-len(train) // SAMPLE))]
    try:
        found = survey(replace(config.data, source=fetch_parts(config.data.source, config.storage)), Progress())
    except (DataError, StorageError) as error:
        log.warning("the source cannot be read: %s", error)
        return size_of(config), []
    if not found.texts:
        return size_of(config), []
    try:
        ids_N = found.token_ids(config.model.encoder.pretrained or DEFAULT_BACKBONE)
    except ConfigError:  # the encoder is not on this machine
        ids_N = found.token_ids(DEFAULT_BACKBONE)
    return size_of_source(config, found, np.array([len(ids) for ids in ids_N])), ids_N


def _stages(config: RunConfig, size: Size, width: int, ids_N: Sequence[Ids]) -> dict[str, float] | None:
    """Estimate the seconds of each stage; None if it uses other processes or a GPU, or its encoder is not here."""
    distributed, pretrained = config.distributed, config.model.encoder.pretrained
    if not ids_N or distributed.max_workers or distributed.gpus_per_worker or pretrained is None:
        return None
    try:
        return stage_seconds(config, size, speeds_of(config, size, width, ids_N), width)
    except ConfigError:
        return None


def _steps(config: RunConfig, size: Size) -> dict[str, int]:
    if not config.model.head.scores:
        return {}
    finetune = sum(phase.epochs for phase in config.finetune.phases)
    steps = {str(Stage.FINETUNE): finetune * math.ceil(size.train / config.finetune.batch_size)}
    if epochs := planting_plan(config.model, config.plant).ranking_epochs:
        return {str(Stage.PLANT): epochs * math.ceil(size.train / config.plant.batch_size)} | steps
    return steps


def print_estimate(config: RunConfig, found: Estimate, stages: Mapping[str, float] | None = None) -> None:
    """Print the estimate as a table.

    Args:
        config: configuration of the run.
        found: the estimate.
        stages: seconds of each stage, if measured.
    """
    size = found.size
    print(
        f"{config.name}: {found.workers} worker{'s' if found.workers > 1 else ''}; {size.origin}: "
        f"{size.train:,} documents of {size.tokens:,.0f} tokens (longest {size.longest:,}), {size.labels:,} labels"
    )
    print(f"parameters: {found.parameters:,}; at most {found.trained:,} train at once")
    rows = [(name, f"{part / GIB:,.2f}") for name, part in (*found.memory.items(), ("together", found.peak))]
    Console().print(terminal_table(("memory of one worker", "GiB"), rows, right=("GiB",)))
    room = memory_of_worker(config)
    if room is not None and found.peak > room:
        print(f"this exceeds the {room / GIB:,.1f} GiB of a worker")
    for name, part in found.disk.items():
        print(f"disk, {name}: {part / GIB:,.2f} GiB")
    if found.steps:
        print("optimizer steps: " + ", ".join(f"{stage} {steps:,}" for stage, steps in found.steps.items()))
    if stages is not None:
        parts = ", ".join(f"{stage} {in_words(seconds)}" for stage, seconds in stages.items())
        print(f"time, measured on this machine, assuming that it is idle: {in_words(sum(stages.values()))} ({parts})")
        if missing := not_measured(config):
            print(f"without {', '.join(missing)}: nobody has measured them")
    if room is None and config.distributed.on_gpu:
        print("the card is unknown; name it with distributed.resources_per_worker={accelerator_type:A100: 0.001}")
