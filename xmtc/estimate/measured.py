"""Estimate a run on this machine: count documents in the source, and measure speeds on them."""

import logging
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.distributed.strategies.settings import Precision
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.estimate.probe import HeadSpeed, probe, probe_head
from xmtc.estimate.survey import Survey, survey
from xmtc.estimate.timing import Corpus, stage_seconds
from xmtc.models.heads.config import HeadSettings
from xmtc.run.config import RunConfig
from xmtc.scorers.config import Load
from xmtc.storage.fetch import fetch_parts
from xmtc.track.progress import Progress

log = logging.getLogger(__name__)

_PACKAGED_WIDTH = 384
_HEAPS = 0.7  # the number of distinct words grows as about this power of the number of documents


@dataclass(frozen=True)
class Measured:
    """A source, and the time that a configuration takes on it.

    Attributes:
        found: documents and labels.
        lengths: tokens of sampled documents, before truncation.
        stages: seconds of each stage; None if the run uses other processes, or its encoder is not on this machine.
    """

    found: Survey
    lengths: NDArray[np.int64]
    stages: dict[str, float] | None


def measure(config: RunConfig, width: int) -> Measured | None:
    """Count the source and measure this machine; None if the source cannot be read here.

    Args:
        config: configuration of the run.
        width: D, width of the encoder.
    """
    try:
        found = survey(replace(config.data, source=fetch_parts(config.data.source, config.storage)), Progress())
    except (DataError, StorageError) as error:
        log.warning("the source cannot be read: %s", error)
        return None
    if not found.texts:
        return None
    backbone = config.model.encoder.backbone
    known = backbone is not None and backbone.from_config is None
    try:
        lengths = found.lengths(backbone.name if backbone is not None and known else DEFAULT_BACKBONE)
        stages = _stages(config, found, lengths, width) if known and config.distributed.max_workers == 0 else None
    except ConfigError:  # the encoder is not on this machine
        return Measured(found, found.lengths(DEFAULT_BACKBONE), None)
    return Measured(found, lengths, stages)


def _stages(config: RunConfig, found: Survey, lengths: NDArray[np.int64], width: int) -> dict[str, float]:
    longest = config.data.max_length
    encodes = config.model.head.scores or config.scores_states
    tried, distributed = [longest] if encodes else [], config.distributed
    speeds = probe(found.texts, config.model, tried, distributed.precision, threads=distributed.torch_threads())
    tokens = float(np.minimum(lengths, longest).mean())
    head = head_speed(config, width, found.labels, tokens, found.labels_per_document)
    return stage_seconds(config, corpus_of(config, found, width), speeds, head)


def corpus_of(config: RunConfig, found: Survey, width: int = _PACKAGED_WIDTH) -> Corpus:
    """Estimate the size of a configuration's corpus.

    Args:
        config: configuration of the run, with its limits.
        found: counts of the source.
        width: D, width of the encoder.
    """
    limit = config.data.limit
    train, dev, test = (
        min(found.documents.get(split, 0), most or found.documents.get(split, 0))
        for split, most in (("train", limit.train), ("dev", limit.dev), ("test", limit.test))
    )
    ngrams = config.data.words.ngrams
    load = Load(
        documents=train,
        labels=found.labels,
        terms=min(round(found.distinct_words * train**_HEAPS / 4 * ngrams), config.data.words.most_terms),
        words=found.distinct_words * ngrams,
        labels_a_document=found.labels_per_document,
        width=width,
    )
    return Corpus(train=train, dev=dev, test=test, load=load)


def head_speed(config: RunConfig, width: int, labels: int, tokens: float, labels_a_document: float) -> HeadSpeed | None:
    """Measure the head of a configuration on this machine; None without a head."""
    if not config.model.head.scores:
        return None
    kept = round(labels_a_document * config.finetune.batch_size)
    distributed, sampled = config.distributed, config.finetune.sampled_labels
    found = _head(config.model.head, width, labels, sampled, kept, distributed.precision, distributed.torch_threads())
    share = 1.0 if config.model.head.reads_fixed else tokens
    return HeadSpeed(train_s=found.train_s * share, step_s=found.step_s, score_s=found.score_s * share)


@cache
def _head(
    settings: HeadSettings,
    width: int,
    labels: int,
    sampled: int | None,
    kept: int,
    precision: Precision,
    threads: int | None,
) -> HeadSpeed:
    """Measure a head for one token."""
    return probe_head(settings, width, labels, 1.0, sampled, kept, precision, threads)
