"""The size of a corpus: of a prepared one, counted in its source, or assumed."""

import random
import time
from array import array
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xmtc.data.analyzer import words_of
from xmtc.data.config import DataConfig
from xmtc.data.corpus import Corpus
from xmtc.data.languages import languages_of
from xmtc.data.prepare import corpus_fingerprint
from xmtc.data.readers.base import (
    SPLITS,
    Document,
    LabelInfo,
    Rejected,
    quoted_cell,
)
from xmtc.data.selection import SourceRows, choose_rows, expected_rows, limits_of
from xmtc.data.spool import NO_SPLIT, text_hash
from xmtc.data.tokenizer import load_pretrained
from xmtc.data.windows import first_tokens
from xmtc.data.words import TermRules
from xmtc.errors import XmtcError
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.progress import Progress

_HEAPS = 0.7
"""The number of different words grows as about this power of the number of documents (Heaps' law)."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Everything about a corpus that memory and time of a run depend on.

    Attributes:
        train, dev, test: numbers of documents.
        tokens: mean tokens of a document, cut at `data.max_length`.
        longest: tokens of the longest document, cut likewise.
        words: mean number of different words of a document, with their n-grams and stems.
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
    longest = config.data.max_length
    limit = config.data.limit
    assumed = Size()
    return replace(
        assumed,
        train=limit.train or assumed.train,
        dev=limit.dev or assumed.dev,
        test=limit.test or assumed.test,
        tokens=min(longest, max(longest / 2, 100)),
        longest=longest,
    )


def is_prepared(config: RunConfig) -> bool:
    """Whether the corpus of this configuration is here; of one whose source is not, settings are not compared."""
    folder = RunPaths.of(config).corpus
    if not (folder / "manifest.json").is_file():
        return False
    with suppress(XmtcError):
        return Corpus.open(folder).fingerprint == corpus_fingerprint(
            config.data, config.model.encoder.tokenizer_name
        )
    return True


def size_of_corpus(corpus: Corpus) -> Size:
    """Find the size of a prepared corpus."""
    train = corpus.split("train")
    documents = {name: len(corpus.split(name)) for name in corpus.splits}
    sample = np.arange(min(len(train), SAMPLE))
    return Size(
        train=len(train),
        dev=documents.get("dev", 0),
        test=documents.get("test", 0),
        tokens=float(train.lengths.mean()),
        longest=int(train.lengths.max()),
        words=train.words(sample).counts_NC.nnz / len(sample),
        labels=len(corpus.labels),
        labels_per_document=float(corpus.labels.train_counts.sum()) / len(train),
        vocab_size=len(corpus.tokenizer()),
        prepared=True,
        origin="of the prepared corpus",
    )


SAMPLE = 400
"""Number of texts in the sample."""
_SECONDS = 60.0
"""Time for which a source is read."""
_LONGEST = 100_000
"""Tokens at which a sampled text is cut."""
_SEED = 13
"""Of the sample."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Counts of a source.

    Attributes:
        documents: by split, documents that the future corpus keeps, after `data.split` and `data.limit`.
        label_counts: number of documents of each label, of those read.
        labels_per_document: their mean number.
        bare: number of documents without labels.
        rejected: number of bad rows.
        first_rejected: place and problem of the first; empty if there is none.
        unjudged: number of documents that nobody has judged, or whose labels were refused.
        repeated: number of documents whose text occurred before.
        relabelled: share of documents whose text occurred before with other labels.
        added: number of documents that are added to the others for training.
        replaced: number of training documents whose text an added document has, too.
        leaked: number of dev and test documents whose text occurs in train.
        named: number of labels whose name is in a label file.
        unused_labels: number of labels of the label file that no document has.
        texts: a random sample of texts.
        exact: False if reading stopped early and the numbers are extrapolated.
    """

    documents: Mapping[str, int]
    label_counts: Counter[str]
    labels_per_document: float
    bare: int
    rejected: int
    first_rejected: str
    unjudged: int
    repeated: int
    relabelled: float
    added: int
    replaced: int
    leaked: int
    named: int
    unused_labels: int
    texts: list[str]
    exact: bool

    @cached_property
    def languages(self) -> Counter[str]:
        """Texts of the sample by language."""
        return languages_of(self.texts)

    @property
    def part(self) -> str:
        """Words before numbers that are of the rows read, if these are not all."""
        return "" if self.exact else "in the part read: "

    @property
    def total(self) -> int:
        """Documents of all splits."""
        return sum(self.documents.values())

    @property
    def labels(self) -> int:
        """L."""
        return len(self.label_counts)

    def token_ids(self, tokenizer: str) -> list[NDArray[np.int32]]:
        """Tokenise the sampled texts; very long ones are cut.

        Raises:
            ConfigError: there is no such tokenizer on this machine.
        """
        backend = load_pretrained(tokenizer).backend_tokenizer
        return [
            np.array(encoding.ids, np.int32)
            for encoding in first_tokens(backend, self.texts, _LONGEST)
        ]


def survey(config: DataConfig, progress: Progress, seconds: float = _SECONDS) -> Survey:
    """Read a source, for at most `seconds` after its first document: some readers need a pass before that one.

    Raises:
        DataError: a file is missing, or cannot be read.
    """
    reader = config.source.build()
    counted = _Counted(random.Random(_SEED), config)
    begun = None
    whole = True
    with progress.task("look at documents") as task:
        for row in reader.read(
            lambda function, items: map(function, items),
            progress,
            config.longest_document,
        ):
            if begun is None:
                begun = time.perf_counter()
            counted.add(row)
            task.advance()
            if time.perf_counter() - begun > seconds:
                whole = False
                break
    rows = counted.rows
    if not whole:
        rows = max(rows, reader.count() or 0)
    return counted.survey(reader.provides(), rows, reader.label_info(), exact=whole)


def _why_rejected(row: Document | Rejected) -> str:
    if isinstance(row, Rejected):
        return f"{row.where}: {row.reason}"
    return f"document {quoted_cell(row.doc_id)}: no text"


class _Counted:
    """Counts of the rows read so far."""

    def __init__(self, draw: random.Random, config: DataConfig) -> None:
        self._config = config
        self.rows = 0
        self.rejected = 0
        self.first_rejected = ""
        self.unjudged = 0
        self.bare = 0
        self.labels: Counter[str] = Counter()
        self.texts: list[str] = []
        self._splits = array("b")
        self._hashes = array("Q")
        self._is_added = array("b")
        self._labelled: set[tuple[int, tuple[str, ...]]] = set()
        self._draw = draw

    def add(self, row: Document | Rejected) -> None:
        """Add one row."""
        self.rows += 1
        if isinstance(row, Rejected) and row.unjudged:
            self.unjudged += 1
            return
        if isinstance(row, Rejected) or not row.text.strip():
            self.rejected += 1
            self.first_rejected = self.first_rejected or _why_rejected(row)
            return
        self.bare += not row.labels
        if not row.labels and (
            self._config.one_label or self._config.without_labels == "drop"
        ):
            return
        self._splits.append(NO_SPLIT if row.split is None else SPLITS.index(row.split))
        self.labels.update(row.labels)
        text = text_hash(row.text)
        self._hashes.append(text)
        self._is_added.append(row.added)
        self._labelled.add((text, row.labels))
        self._sample(row.text)

    def _sample(self, text: str) -> None:
        """Keep the text, or replace one of the sample by it: each text read so far has the same chance to be in it."""
        if len(self.texts) < SAMPLE:
            self.texts.append(text)
            return
        place = self._draw.randrange(len(self._hashes))
        if place < SAMPLE:
            self.texts[place] = text

    def survey(
        self,
        provides: frozenset[str],
        rows: int,
        info: LabelInfo,
        *,
        exact: bool,
    ) -> Survey:
        """Make the result, extrapolated to `rows` rows."""
        source = self._source()
        chosen = choose_rows(source, provides, self._config)
        documents = {name: len(part) for name, part in chosen.rows.items() if len(part)}
        if not exact:
            documents = self._extrapolated(source, provides, self.rows / rows)
        label_counts: Counter[str] = Counter()
        for spelling, number in self.labels.items():
            label_counts[info.meant_by(spelling)] += number
        different = len(np.unique(source.hashes))
        read = len(source.hashes)
        return Survey(
            documents=documents,
            label_counts=label_counts,
            labels_per_document=self.labels.total() / max(read, 1),
            bare=self.bare,
            rejected=self.rejected,
            first_rejected=self.first_rejected,
            unjudged=self.unjudged,
            repeated=read - different,
            relabelled=(len(self._labelled) - different) / max(read, 1),
            added=int(source.is_added.sum()),
            replaced=len(source.replaced),
            leaked=chosen.duplicates,
            named=len(info.names.keys() & label_counts.keys()),
            unused_labels=len(info.names.keys() - label_counts.keys()),
            texts=self.texts,
            exact=exact,
        )

    def _source(self) -> SourceRows:
        """Describe the documents read so far as preparation will find them."""
        splits = np.array(self._splits, np.int8)
        hashes = np.array(self._hashes, np.uint64)
        is_added = np.array(self._is_added, np.bool_)
        is_trained_on = (splits <= SPLITS.index("train")) & ~is_added
        replaced = is_trained_on & np.isin(hashes, hashes[is_added])
        return SourceRows(splits, hashes, is_added, np.flatnonzero(replaced).tolist())

    def _extrapolated(
        self, source: SourceRows, provides: frozenset[str], read_share: float
    ) -> dict[str, int]:
        """Estimate the documents of each split from those of a part of the rows."""
        counts: dict[str | None, int] = {}
        for number, split in ((-1, None), *enumerate(SPLITS)):
            of_split = np.flatnonzero((source.splits == number) & ~source.is_added)
            if len(of_split):
                counts[split] = round(len(of_split) / read_share)
        documents = expected_rows(counts, provides, self._config)
        added = round(int(source.is_added.sum()) / read_share)
        return documents | {"train": documents.get("train", 0) + added}


def size_of_source(
    config: RunConfig, found: Survey, lengths: NDArray[np.int64]
) -> Size:
    """Estimate the size of a configuration's corpus.

    Args:
        config: configuration of the run, with its limits.
        found: counts of the source.
        lengths: tokens of its sampled documents, before truncation.
    """
    documents = dict.fromkeys(SPLITS, 0) | dict(found.documents)
    for split, limit in limits_of(config.data).items():
        if limit is not None:
            documents[split] = min(documents[split], limit)
    tokens = np.minimum(lengths, config.data.max_length)
    words = config.data.words
    single_words = TermRules.by(words)._replace(ngrams=1)
    different_words = [
        len(set(single_words.of(words_of(text)))) for text in found.texts
    ]
    return Size(
        train=documents["train"],
        dev=documents["dev"],
        test=documents["test"],
        tokens=float(tokens.mean()),
        longest=int(tokens.max()),
        words=float(np.mean(different_words)) * words.ngrams,
        labels=found.labels,
        labels_per_document=found.labels_per_document,
        origin="counted in the source"
        if found.exact
        else "extrapolated from a part of the source",
    )
