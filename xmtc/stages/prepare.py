"""The first stage: raw source → Arrow corpus."""

import logging
from dataclasses import replace

from xmtc.data.config import DataConfig
from xmtc.data.corpus import Corpus
from xmtc.data.overview import label_warnings, overview
from xmtc.data.parallel import MapUnordered
from xmtc.data.prepare import fingerprint, prepare
from xmtc.run.config import RunConfig
from xmtc.run.copies import fetch_locked, local_source, publish_corpus
from xmtc.run.directory import RunPaths
from xmtc.track.progress import Progress

logger = logging.getLogger(__name__)


def prepare_corpus(config: RunConfig, paths: RunPaths, mapper: MapUnordered | None = None) -> Corpus:
    """Read and tokenise the source into a corpus, or open the existing corpus.

    Args:
        config: configuration of the run.
        paths: paths of the run.
        mapper: runs the work on a cluster. Default: on this machine.
    """
    corpus = prepare(
        _local(config, paths),
        config.model.encoder.tokenizer_name,
        map_unordered=mapper,
        progress=Progress(),
        fetch=lambda fingerprint: fetch_locked(paths, fingerprint),
    )
    publish_corpus(paths)
    _log_overview(corpus)
    return corpus


def fingerprint_of(config: RunConfig, paths: RunPaths) -> str:
    """Return the fingerprint of the corpus that `prepare_corpus` would return; reads the source."""
    return fingerprint(_local(config, paths), config.model.encoder.tokenizer_name)


def _local(config: RunConfig, paths: RunPaths) -> DataConfig:
    return replace(local_source(config.data, config.storage), corpus=str(paths.corpus))


def _log_overview(corpus: Corpus) -> None:
    for line in overview(corpus):
        logger.info("%s", line)
    for line in label_warnings(corpus):
        logger.warning("%s", line)
