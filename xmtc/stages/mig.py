"""Rank tokens by their information gain with each label, and show the ranking."""

import numpy as np
from rich.console import Console

from xmtc.data.corpus import Corpus
from xmtc.mig.ranking import TokenRanking, rank_corpus
from xmtc.mig.show import show
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.console import print_line
from xmtc.track.progress import Progress


def rank_tokens(config: RunConfig, paths: RunPaths, corpus: Corpus) -> TokenRanking:
    """Rank tokens by information gain, or load an existing ranking."""
    ranking, reused = rank_corpus(corpus, config.mig, paths.ranking, progress=Progress())
    if reused:
        print_line("mig: already done, skipped")
    elif ranking.unranked:
        print_line(f"mig: {ranking.unranked:,} of {len(corpus.labels):,} labels have no informative token in train")
    return ranking


def show_labels(corpus: Corpus, ranking: TokenRanking, labels: list[str], top: int) -> None:
    """Print the top tokens of labels. Default: the median and the most frequent label."""
    if not labels:
        order = np.argsort(np.asarray(corpus.labels.train_counts))
        labels = [corpus.labels.labels[int(order[len(order) // 2])], corpus.labels.labels[int(order[-1])]]
    console = Console()
    for label in labels:
        index = corpus.labels.index(label)
        name = corpus.labels.names[index]
        title = label if name == label else f"{label} {name}"
        console.print(show(ranking, index, corpus.tokenizer(), top, title=title))
