"""From a survey to what the estimate of time needs."""

from functools import cache

from xmtc.models.heads.config import HeadSettings
from xmtc.preflight.probe import HeadSpeed, probe_head
from xmtc.preflight.survey import Survey
from xmtc.preflight.timing import Corpus
from xmtc.run.config import RunConfig
from xmtc.scorers.config import Load

_PACKAGED_WIDTH = 384
_HEAPS = 0.7  # different words grow with the number of documents to about this power


def corpus_of(config: RunConfig, found: Survey, width: int = _PACKAGED_WIDTH) -> Corpus:
    """What the corpus of a configuration will be like.

    Args:
        config: of the run; its limits hold.
        found: in the source.
        width: D of the encoder.
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
    """What the head of a configuration takes here; None without one."""
    if not config.model.head.scores:
        return None
    kept = round(labels_a_document * config.finetune.batch_size)
    found = _measured(config.model.head, width, labels, config.finetune.sampled_labels, kept)
    return HeadSpeed(train_s=found.train_s * tokens, step_s=found.step_s, score_s=found.score_s * tokens)


@cache
def _measured(settings: HeadSettings, width: int, labels: int, sampled: int | None, kept: int) -> HeadSpeed:
    """For one token."""
    return probe_head(settings, width, labels, 1.0, sampled, kept)
