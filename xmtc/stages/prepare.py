"""The first stage: raw source → Arrow corpus."""

import logging

from xmtc.data.corpus import Corpus
from xmtc.data.overview import corpus_warnings, overview
from xmtc.data.parallel import MapUnordered
from xmtc.data.prepare import fingerprint, prepare
from xmtc.run.config import RunConfig
from xmtc.track.progress import Progress

logger = logging.getLogger(__name__)


def prepare_corpus(config: RunConfig, mapper: MapUnordered | None = None) -> Corpus:
    """Read and tokenise the source into a corpus, or open the existing corpus.

    Args:
        config: configuration of the run.
        mapper: runs the work on a cluster. Default: on this machine.
    """
    corpus = prepare(config.data, config.model.encoder.tokenizer_name, map_unordered=mapper, progress=Progress())
    _log_overview(corpus)
    return corpus


def fingerprint_of(config: RunConfig) -> str:
    """Return the fingerprint of the corpus that `prepare_corpus` would return; reads the source."""
    return fingerprint(config.data, config.model.encoder.tokenizer_name)


def _log_overview(corpus: Corpus) -> None:
    for line in overview(corpus):
        logger.info("%s", line)
    for line in corpus_warnings(corpus):
        logger.warning("%s", line)
