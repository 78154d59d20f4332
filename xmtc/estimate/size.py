"""The size of a corpus: of a prepared one, counted in its source, or assumed."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xmtc.data.corpus import Corpus
from xmtc.estimate.survey import SAMPLE, Survey
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths

_HEAPS = 0.7  # the number of distinct words grows as about this power of the number of documents


@dataclass(frozen=True, kw_only=True)
class Size:
    """Everything about a corpus that memory and time of a run depend on.

    Attributes:
        train, dev, test: numbers of documents.
        tokens: mean tokens of a document, cut at `data.max_length`.
        longest: tokens of the longest document, cut likewise.
        words: mean number of different words of a document, with their n-grams.
        labels: L.
        labels_per_document: their mean number.
        vocab_size: number of token ids; None: that of the backbone.
        prepared: whether these are of a prepared corpus.
        origin: where they come from, for messages.
    """

    train: int = 100_000
    dev: int = 10_000
    test: int = 10_000
    tokens: float = 1000.0
    longest: int = 6000
    words: float = 300.0
    labels: int = 10_000
    labels_per_document: float = 5.0
    vocab_size: int | None = None
    prepared: bool = False
    origin: str = "ASSUMED, because the source cannot be read here (tools/check/estimate.py accepts other sizes)"

    def terms(self, most: int) -> int:
        """Estimate the number of different words in train, at most `most`."""
        return min(round(self.words * self.train**_HEAPS / 4), most)


def size_of(config: RunConfig) -> Size:
    """Find the size of the prepared corpus, or assume one that respects `data.limit` and `data.max_length`."""
    if is_prepared(config):
        return size_of_corpus(Corpus.open(RunPaths.of(config).corpus))
    longest, limit, assumed = config.data.max_length, config.data.limit, Size()
    return replace(
        assumed,
        train=limit.train or assumed.train,
        dev=limit.dev or assumed.dev,
        test=limit.test or assumed.test,
        tokens=min(longest, max(longest / 2, 100)),
        longest=longest,
    )


def is_prepared(config: RunConfig) -> bool:
    """Whether the corpus of this configuration is here."""
    return (RunPaths.of(config).corpus / "manifest.json").is_file()


def size_of_corpus(corpus: Corpus) -> Size:
    """Find the size of a prepared corpus."""
    train = corpus.split("train")
    documents = {name: len(corpus.split(name)) for name in corpus.splits}
    some = np.arange(min(len(train), SAMPLE))
    return Size(
        train=len(train),
        dev=documents.get("dev", 0),
        test=documents.get("test", 0),
        tokens=float(train.lengths.mean()),
        longest=int(train.lengths.max()),
        words=train.word_rows(some).nnz / len(some),
        labels=len(corpus.labels),
        labels_per_document=float(corpus.labels.train_counts.sum()) / len(train),
        vocab_size=len(corpus.tokenizer()),
        prepared=True,
        origin="of the prepared corpus",
    )


def size_of_source(config: RunConfig, found: Survey, lengths: NDArray[np.int64]) -> Size:
    """Estimate the size of a configuration's corpus.

    Args:
        config: configuration of the run, with its limits.
        found: counts of the source.
        lengths: tokens of its sampled documents, before truncation.
    """
    limit, cut = config.data.limit, np.minimum(lengths, config.data.max_length)

    def documents(split: str, most: int | None) -> int:
        there = found.documents.get(split, 0)
        return min(there, most or there)

    return Size(
        train=documents("train", limit.train),
        dev=documents("dev", limit.dev),
        test=documents("test", limit.test),
        tokens=float(cut.mean()),
        longest=int(cut.max()),
        words=found.distinct_words * config.data.words.ngrams,
        labels=found.labels,
        labels_per_document=found.labels_per_document,
        origin="counted in the source" if found.exact else "extrapolated from a part of the source",
    )
