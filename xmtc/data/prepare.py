"""Convert a source of documents to a corpus directory: read, select, tokenise and count in parallel, then rename."""

import functools
import hashlib
import json
import logging
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from xmtc.data import manifest as manifests
from xmtc.data.config import DataConfig, PretrainedTokenizerConfig, TokenizerConfig
from xmtc.data.corpus import LABELS, TOKENIZER, Corpus
from xmtc.data.labels import LabelTable
from xmtc.data.languages import languages_of
from xmtc.data.manifest import Counts, Manifest, SplitInfo, file_info
from xmtc.data.parallel import MapUnordered, map_processes
from xmtc.data.readers.base import SPLITS, LabelInfo, Reader, quoted_cell
from xmtc.data.selection import Selection, select
from xmtc.data.shards import ShardResult, ShardTask, count_documents, make_shard
from xmtc.data.spool import Spool
from xmtc.data.tokenizer import definition, identity
from xmtc.data.words import WORDS_FILES, TermRules, Vocabulary, choose_words
from xmtc.errors import ConfigError, DataError
from xmtc.files import (
    file_sha256,
    holding,
    lock_of,
    locked,
    publish_directory,
    resolve_links,
    writing,
)
from xmtc.track.console import counted
from xmtc.track.progress import Progress

logger = logging.getLogger(__name__)

_SPOOL = "spool"
_UNFINISHED = ".unfinished"
_SAMPLE = 1000
"""Texts of a split whose language is looked at."""
_SHARDS_PER_SPLIT = 16
"""Shards to aim at, so that all cores have work."""
_MIN_ROWS = 256
_MAX_ROWS = 16_384
"""Fewest and most documents of a shard, where the shards of a split do not decide."""
_MAX_OFFSET = 2**31 - 1
"""Arrow's offsets inside a shard are int32."""


def prepare(
    config: DataConfig,
    backbone: str | None,
    *,
    map_unordered: MapUnordered | None = None,
    progress: Progress | None = None,
    check_replaced: Callable[[str], None] | None = None,
) -> Corpus:
    """Prepare the corpus, or open it if it already exists with the same fingerprint.

    Args:
        config: settings of source and corpus.
        backbone: the model whose tokenizer is used if `config.tokenizer` is null.
        map_unordered: runs work in parallel. Default: a process per core. If it uses other machines, all must share the
            file system of the corpus directory.
        progress: progress bar.
        check_replaced: called with the fingerprint of a corpus that is about to be replaced; it raises if that must
            not happen.

    Raises:
        DataError: the source is wrong, or `config.corpus` is not a corpus.
        ConfigError: the tokenizer cannot be loaded, or there is none.
    """
    path = resolve_links(Path(config.corpus))
    source = tokenizer_source(config, backbone)
    fingerprint = corpus_fingerprint(config, backbone)
    with locked(path):
        _remove_abandoned(path.parent)
        earlier_corpus = _reusable(path, fingerprint, check_replaced)
        if earlier_corpus is not None:
            return earlier_corpus
        work = path.parent / f".{path.name}{_UNFINISHED}"
        shutil.rmtree(work, ignore_errors=True)
        try:
            with manifests.replaceable(path), writing(path):
                preparation = _Work(
                    config=config,
                    folder=work,
                    map=map_unordered or map_processes,
                    progress=progress or Progress(enabled=False),
                )
                preparation.build(source, fingerprint)
                if corpus_fingerprint(config, backbone) != fingerprint:
                    raise DataError(
                        "the source changed while it was read; run the same command again"
                    )
                publish_directory(work, path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Corpus.open(path)


def _remove_abandoned(folder: Path) -> None:
    """Remove what preparations left that were killed, of any corpus in a folder: texts are in it."""
    for work in folder.glob(f".*{_UNFINISHED}"):
        corpus = work.with_name(work.stem.removeprefix("."))
        with suppress(OSError), holding(lock_of(corpus), alone=True) as is_free:
            if is_free:
                shutil.rmtree(work, ignore_errors=True)


def corpus_fingerprint(config: DataConfig, backbone: str | None) -> str:
    """Hash everything that determines the corpus: source content, tokenizer and settings, but no paths or times.

    Args:
        config: see `prepare`.
        backbone: see `prepare`.

    Raises:
        DataError: a file of the source is missing.
        ConfigError: the tokenizer cannot be loaded.
    """
    settings = asdict(config)
    for key in ("source", "corpus", "tokenizer"):
        del settings[key]
    tokenizer_identity = tokenizer_source(
        config, backbone
    ).identity()  # first, to refuse a wrong name before reading
    content = [
        manifests.FORMAT,
        config.source.build().fingerprint(),
        tokenizer_identity,
        settings,
    ]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def tokenizer_source(config: DataConfig, backbone: str | None) -> TokenizerConfig:
    """Find the tokenizer of a corpus.

    Raises:
        ConfigError: there is none.
    """
    if config.tokenizer is not None:
        return config.tokenizer
    if backbone is None:
        raise ConfigError(
            "data.tokenizer: this model has no tokenizer; set, for example, {kind: trained}"
        )
    return PretrainedTokenizerConfig(name=backbone)


def _reusable(
    path: Path, fingerprint: str, check_replaced: Callable[[str], None] | None
) -> Corpus | None:
    """Open the corpus that is there if it is the one that would be made; say so if it is another one."""
    if not path.exists():
        return None
    if not (path / manifests.NAME).is_file():
        if path.is_dir() and not any(path.iterdir()):
            return None
        raise DataError(
            f"{path}: exists and is not a corpus; choose another data.corpus, or move it away"
        )
    corpus = Corpus.open(path)
    if corpus.fingerprint == fingerprint:
        logger.info("corpus %s is up to date: reused", path)
        return corpus
    if check_replaced is not None:
        check_replaced(corpus.fingerprint)
    logger.warning(
        "corpus %s was made from other data, another tokenizer or other settings: making it again and deleting its "
        "cached hidden states, if any; to keep the old corpus, set another data.corpus",
        path,
    )
    return None


@dataclass(frozen=True)
class _Work:
    """Preparation in a temporary folder."""

    config: DataConfig
    folder: Path
    map: MapUnordered
    progress: Progress

    def build(self, source: TokenizerConfig, fingerprint: str) -> None:
        """Make the corpus."""
        reader = self.config.source.build()
        folder = self.folder
        spool = Spool(folder / _SPOOL, len(reader.fields()))
        info = reader.label_info()
        chosen = self._read(reader, info, spool)
        train = chosen.rows["train"]
        tokenizer = source.load(lambda: spool.texts(train), len(train))
        languages = languages_of(spool.texts(_sample(train)))
        dev_languages: Counter[str] = Counter()
        if "dev" in chosen.rows:
            dev_languages = languages_of(spool.texts(_sample(chosen.rows["dev"])))
        vocabulary = self._vocabulary(spool, train, reader)
        vocabulary.save(folder)
        results = self._tokenise(
            spool, chosen, tokenizer, max(self.config.max_length, vocabulary.columns)
        )
        shutil.rmtree(folder / _SPOOL)
        tokenizer.save_pretrained(folder / TOKENIZER)
        _counted(chosen.labels, results).save(folder / LABELS)
        manifest = Manifest(
            fingerprint=fingerprint,
            task=self.config.task,
            max_length=self.config.max_length,
            tokenizer=identity(tokenizer, source.describe()),
            labels=file_info(folder / LABELS, folder),
            words=[file_info(folder / name, folder) for name in WORDS_FILES],
            splits=_splits(results),
            counts=_counts(spool, chosen, results),
            vocabulary=info.version,
            languages=dict(languages),
            dev_languages=dict(dev_languages),
        )
        manifest.save(folder)
        _report(manifest, self.config)

    def _read(self, reader: Reader, info: LabelInfo, spool: Spool) -> Selection:
        """Read all documents into the spool, and select those of the corpus."""
        with self.progress.task("read documents", reader.count()) as task:
            rows = reader.read(self.map, self.progress, self.config.longest_document)
            spool.fill(rows, info, config=self.config, task=task)
        return select(spool, info, reader.provides(), self.config)

    def _vocabulary(
        self, spool: Spool, train: NDArray[np.int64], reader: Reader
    ) -> Vocabulary:
        """Count the chosen training documents that contain each term, and choose the vocabulary."""
        frequencies: Counter[str] = Counter()
        count = functools.partial(
            count_documents, rules=TermRules.by(self.config.words)
        )
        with self.progress.task("count words", len(train)) as bar:
            for documents, frequencies_of_piece in self.map(count, spool.pieces(train)):
                frequencies.update(frequencies_of_piece)
                bar.advance(documents)
        return choose_words(
            frequencies,
            len(train),
            self.config.words,
            reader.fields(),
            reader.categories(),
        )

    def _tokenise(
        self,
        spool: Spool,
        chosen: Selection,
        tokenizer: PreTrainedTokenizerFast,
        longest: int,
    ) -> list[ShardResult]:
        """Write the shards; no list of a document has more than `longest` entries."""
        pad_id = tokenizer.pad_token_id
        make = functools.partial(
            make_shard,
            root=str(self.folder.absolute()),
            definition=definition(tokenizer),
            words_sha256=file_sha256(self.folder / WORDS_FILES[0]),
            max_length=self.config.max_length,
            pad_id=pad_id if isinstance(pad_id, int) else None,
        )
        for split in chosen.rows:
            (self.folder / split).mkdir()
        results: list[ShardResult] = []
        documents = sum(len(rows) for rows in chosen.rows.values())
        with self.progress.task("tokenise", documents) as bar:
            for result in self.map(make, list(_tasks(spool, chosen, longest))):
                if result.without_tokens and self.config.on_bad_row == "error":
                    raise DataError(
                        f"document {quoted_cell(result.without_tokens[0])} of {result.split}: the tokenizer finds no "
                        "tokens in its text, only padding; correct it, or set data.on_bad_row: skip"
                    )
                results.append(result)
                bar.advance(result.rows)
        return sorted(
            results, key=lambda result: (SPLITS.index(result.split), result.index)
        )


def _sample(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Take at most `_SAMPLE` rows at equal distances."""
    distance = math.ceil(len(rows) / _SAMPLE) or 1
    return rows[::distance]


def _tasks(spool: Spool, chosen: Selection, longest: int) -> Iterator[ShardTask]:
    """Divide the splits into shards; no list of a document has more than `longest` entries."""
    hashes = spool.hashes
    for split, rows in chosen.rows.items():
        size = math.ceil(len(rows) / _SHARDS_PER_SPLIT)
        size = min(max(size, _MIN_ROWS), _MAX_ROWS)
        size = max(min(size, _MAX_OFFSET // longest), 1)
        for index, start in enumerate(range(0, len(rows), size)):
            part = rows[start : start + size]
            labels = chosen.label_matrix[part]
            unjudged = None
            if chosen.unjudged_matrix is not None:
                unjudged_rows = chosen.unjudged_matrix[part]
                unjudged = np.split(
                    unjudged_rows.indices.astype(np.int32), unjudged_rows.indptr[1:-1]
                )
            yield ShardTask(
                split=split,
                index=index,
                pieces=spool.pieces(part),
                label_offsets=labels.indptr,
                label_ids=labels.indices.astype(np.int32),
                text_hashes=hashes[part],
                unjudged=unjudged,
            )


def _counts(spool: Spool, chosen: Selection, results: list[ShardResult]) -> Counts:
    return Counts(
        read=spool.read,
        rejected=spool.rejected + sum(len(result.without_tokens) for result in results),
        unjudged=spool.unjudged,
        duplicates=chosen.duplicates,
        over_limit=chosen.over_limit,
        truncated=sum(result.truncated for result in results),
        without_labels=chosen.without_labels,
        dropped_labels=chosen.dropped_labels,
        unused_labels=chosen.unused_labels,
        absent_labels=spool.absent_labels,
        repeated_ids=spool.repeated_ids,
        added=chosen.added,
        replaced=chosen.replaced,
    )


def _counted(labels: LabelTable, results: list[ShardResult]) -> LabelTable:
    """Count each label again, without training documents in which the tokenizer found nothing."""
    counts = np.zeros(len(labels), dtype=np.int64)
    for result in results:
        if result.split == "train":
            counts[result.labels] += result.label_rows
    return replace(labels, train_counts=counts)


def _splits(results: list[ShardResult]) -> dict[str, SplitInfo]:
    splits: dict[str, SplitInfo] = {}
    for name in SPLITS:
        shards = [
            result.shard
            for result in results
            if result.split == name and result.shard is not None
        ]
        if shards:
            splits[name] = SplitInfo(
                rows=sum(shard.rows for shard in shards),
                tokens=sum(shard.tokens for shard in shards),
                shards=shards,
            )
    if "train" not in splits:
        raise DataError(
            "the tokenizer finds no tokens in any training document; check the text columns of data.source, and choose "
            "a tokenizer of the texts' language"
        )
    return splits


_SAID = frozenset(("read", "without_labels", "added", "replaced", "unused_labels"))
"""Counts that have a sentence of their own."""


def _report(manifest: Manifest, config: DataConfig) -> None:
    """Log the numbers of documents, and of what was left out or kept in spite of something."""
    counts = manifest.counts
    documents = [
        f"{name} {counted(split.rows, 'document')}"
        for name, split in manifest.splits.items()
    ]
    logger.info("corpus: %s", ", ".join(documents))
    if counts.without_labels:
        are_kept = config.without_labels == "keep" and not config.one_label
        what = "kept: no label fits them" if are_kept else "left out"
        logger.info(
            "corpus: %s without labels (%s; data.without_labels)",
            counted(counts.without_labels, "document"),
            what,
        )
    if counts.added:
        logger.info(
            "corpus: %s, all for training; left out for them: %s of the same text, from which only what an annotation "
            "did not judge was taken",
            counted(counts.added, "added document"),
            counted(counts.replaced, "other document"),
        )
    if counts.unused_labels:
        logger.info(
            "corpus: %s of the label file without a document, left out of the model; xmtc labels add gives it labels "
            "by their names alone",
            counted(counts.unused_labels, "label"),
        )
    notable: list[str] = []
    for name, number in asdict(counts).items():
        if number and name not in _SAID:
            notable.append(f"{name.replace('_', ' ')} {number:,}")
    if notable:
        logger.info("corpus: %s", ", ".join(notable))
