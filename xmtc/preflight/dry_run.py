"""`xmtc train --dry-run`: memory, disk, steps and time of a run, from its corpus or its source."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from huggingface_hub import constants
from numpy.typing import NDArray
from rich.console import Console

from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.errors import ConfigError, DataError
from xmtc.estimate.estimate import Estimate, estimate
from xmtc.estimate.gpu_cost import print_gpu_costs
from xmtc.estimate.memory import CARD_RESOURCE, GIB, label_lines, memory_of_worker
from xmtc.estimate.probe import core_seconds, encoder_seconds, head_seconds
from xmtc.estimate.scorer_costs import not_measured
from xmtc.estimate.seconds import Speeds, in_words
from xmtc.estimate.size import (
    SAMPLE,
    Size,
    is_prepared,
    size_of_corpus,
    size_of_source,
    survey,
)
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.run.encoder_use import encoder_use
from xmtc.stages.table import stage_seconds
from xmtc.storage.fetch import fetch_parts
from xmtc.track.console import print_line, terminal_table
from xmtc.track.progress import Progress

Ids = NDArray[np.int32]


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
    with _without_hub():
        size, ids_N = _size_and_tokens(config)
        result = estimate(config, size)
        stages = _stages(config, size, result.width, ids_N)
    print_estimate(config, result, stages=stages)
    print(*label_lines(config, size), sep="\n")
    if price is not None or config.distributed.on_gpu:
        print_gpu_costs(config, size, result.width, result.peak, result.workers, price)


@contextmanager
def _without_hub() -> Iterator[None]:
    """Read only what is on this machine: an estimate downloads no model, and waits for no network."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def speeds_of(
    config: RunConfig, size: Size, width: int, ids_N: Sequence[Ids]
) -> Speeds:
    """Measure this machine for a run, in a few seconds.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the encoder.
        ids_N: token ids of some documents.

    Raises:
        ConfigError: the encoder cannot be loaded.
    """
    use = encoder_use(config)
    head = None
    if config.model.head.scores:
        head = head_seconds(config, width, size.labels, size.labels_per_document)
    lengths: list[int] = []
    if config.model.head.scores or use.scores_states:
        lengths = sorted({config.data.max_length, use.trained_length})
    train_s: dict[int, float] = {}
    if use.trains:
        train_s = encoder_seconds(config, ids_N, lengths[:1], train=True)
    return Speeds(
        core_s=core_seconds(),
        encode_s=encoder_seconds(config, ids_N, lengths),
        head=head,
        train_s=train_s,
    )


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
        return size_of_corpus(corpus), [
            train.tokens(index) for index in range(0, len(train), step)
        ]
    source = fetch_parts(config.data.source, config.storage)
    counts = survey(replace(config.data, source=source), Progress())
    if not counts.texts:
        raise DataError(
            "data.source: no document with text; `xmtc prepare CONFIG` names the rows that it rejects"
        )
    name = config.model.encoder.pretrained or DEFAULT_BACKBONE
    try:
        ids_N = counts.token_ids(name)
    except ConfigError:
        print_line(
            f"{name} is not on this machine, and a dry run downloads nothing: tokens are those of {DEFAULT_BACKBONE}, "
            "and the model has its published shape"
        )
        ids_N = counts.token_ids(DEFAULT_BACKBONE)
    lengths = np.array([len(ids) for ids in ids_N])
    return size_of_source(config, counts, lengths), ids_N


def _stages(
    config: RunConfig, size: Size, width: int, ids_N: Sequence[Ids]
) -> dict[str, float] | None:
    """Estimate the seconds of each stage; None if it uses other processes or a GPU, or its encoder is not here."""
    distributed = config.distributed
    elsewhere = distributed.max_workers > 0 or distributed.gpus_per_worker > 0
    if elsewhere or config.model.encoder.pretrained is None:
        return None
    try:
        return stage_seconds(config, size, speeds_of(config, size, width, ids_N), width)
    except ConfigError:
        return None


def print_estimate(
    config: RunConfig, result: Estimate, stages: Mapping[str, float] | None = None
) -> None:
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
    print(
        f"parameters: {result.parameters:,}; at most {result.trained:,} train at once"
    )
    _print_memory(config, result)
    for name, part in result.disk.items():
        print(f"disk, {name}: {part / GIB:,.2f} GiB")
    if result.steps:
        print(
            "optimizer steps: "
            + ", ".join(f"{stage} {steps:,}" for stage, steps in result.steps.items())
        )
    if stages is not None:
        parts = ", ".join(
            f"{stage} {in_words(seconds)}" for stage, seconds in stages.items()
        )
        print(
            f"time, measured on this machine, assuming that it is idle: {in_words(sum(stages.values()))} ({parts})"
        )
        missing = not_measured(config)
        if missing:
            print(f"without {', '.join(missing)}: nobody has measured them")


def _print_memory(config: RunConfig, result: Estimate) -> None:
    """Print the memory of one worker by purpose, and whether a worker has it."""
    parts = {**result.memory, "together": result.peak}
    rows = [(name, f"{part / GIB:,.2f}") for name, part in parts.items()]
    Console().print(
        terminal_table(("memory of one worker", "GiB"), rows, right=("GiB",))
    )
    room = memory_of_worker(config)
    if room is not None and result.peak > room:
        print(f"this exceeds the {room / GIB:,.1f} GiB of a worker")
    if room is None and config.distributed.on_gpu:
        example = (
            f"'distributed.resources_per_worker={{\"{CARD_RESOURCE}A100\": 0.001}}'"
        )
        print(
            f"the card is unknown; add the one that workers shall have, such as {example}, to the command"
        )
