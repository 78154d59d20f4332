"""The stages that need no model: raw source → Arrow corpus, and its tokens ranked for every label."""

import logging
from collections.abc import Callable

from xmtc.data.corpus import Corpus
from xmtc.data.overview import corpus_warnings, overview
from xmtc.data.parallel import MapUnordered
from xmtc.data.prepare import corpus_fingerprint, prepare
from xmtc.planting.mig.ranking import TokenRanking, rank_corpus
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.console import print_line
from xmtc.track.progress import Progress

logger = logging.getLogger(__name__)


def prepare_corpus(
    config: RunConfig,
    mapper: MapUnordered | None = None,
    check_replaced: Callable[[str], None] | None = None,
) -> Corpus:
    """Read and tokenise the source into a corpus, or open the existing corpus; either is verified.

    Args:
        config: configuration of the run.
        mapper: runs the work on a cluster. Default: on this machine.
        check_replaced: see `prepare`.
    """
    corpus = prepare(
        config.data,
        config.model.encoder.tokenizer_name,
        map_unordered=mapper,
        progress=Progress(),
        check_replaced=check_replaced,
    )
    corpus.verify()  # otherwise everything that follows would silently use damaged data
    for line in overview(corpus):
        logger.info("%s", line)
    for line in corpus_warnings(corpus):
        logger.warning("%s", line)
    return corpus


def fingerprint_of(config: RunConfig) -> str:
    """Return the fingerprint of the corpus that `prepare_corpus` would return; reads the source."""
    return corpus_fingerprint(config.data, config.model.encoder.tokenizer_name)


def rank_tokens(config: RunConfig, paths: RunPaths, corpus: Corpus) -> TokenRanking:
    """Rank tokens by information gain, or load an existing ranking."""
    ranking, reused = rank_corpus(
        corpus, config.mig, paths.ranking, progress=Progress()
    )
    if reused:
        print_line("mig: already done, skipped")
    elif ranking.unranked:
        print_line(
            f"mig: {ranking.unranked:,} of {len(corpus.labels):,} labels have no informative token in train"
        )
    return ranking
