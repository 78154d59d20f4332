"""Convert a source of documents to a corpus directory: read, select, tokenise and count in parallel, then rename."""

import functools
import hashlib
import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from xmtc.data import manifest as manifests
from xmtc.data.config import DataConfig
from xmtc.data.corpus import LABELS, TOKENIZER, Corpus
from xmtc.data.labels import LabelTable
from xmtc.data.manifest import Counts, Manifest, SplitInfo, TokenizerIdentity, file_info
from xmtc.data.parallel import MapUnordered, map_processes
from xmtc.data.progress import Progress, Silent
from xmtc.data.readers.base import SPLITS, quoted_cell
from xmtc.data.selection import Selection, select
from xmtc.data.shards import ShardResult, ShardTask, count_documents, make_shard
from xmtc.data.spool import Spool
from xmtc.data.tokenizer import PretrainedTokenizer, TokenizerSource, definition, identity
from xmtc.data.words import WORDS_FILES, Vocabulary, choose_words
from xmtc.errors import ConfigError, DataError
from xmtc.files import file_sha256, locked, publish_directory, writing

logger = logging.getLogger(__name__)

_SPOOL = "spool"
_SHARDS_PER_SPLIT, _MIN_ROWS, _MAX_ROWS = 16, 256, 16_384


def prepare(
    config: DataConfig,
    backbone: str | None,
    *,
    map_unordered: MapUnordered | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Prepare the corpus, or open it if it already exists with the same fingerprint.

    Args:
        config: settings of source and corpus.
        backbone: the model whose tokenizer is used if `config.tokenizer` is null.
        map_unordered: runs work in parallel. Default: a process per core. If it uses other machines, all must share the
            file system of the corpus directory.
        progress: progress bar.

    Raises:
        DataError: the source is wrong, or `config.corpus` is not a corpus.
        ConfigError: the tokenizer cannot be loaded, or there is none.
    """
    path = Path(config.corpus)
    source = _tokenizer_source(config, backbone)
    fingerprint = corpus_fingerprint(config, source)
    with locked(path):
        found = _reusable(path, fingerprint)
        if found is not None:
            return found
        work = path.parent / f".{path.name}.unfinished"
        shutil.rmtree(work, ignore_errors=True)
        try:
            with writing(path):
                _build(config, work, source, fingerprint, map_unordered or map_processes, progress or Silent())
                publish_directory(work, path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return Corpus.open(path)


def fingerprint(config: DataConfig, backbone: str | None) -> str:
    """Return the fingerprint of the corpus that `prepare` would return; see `corpus_fingerprint`."""
    return corpus_fingerprint(config, _tokenizer_source(config, backbone))


def corpus_fingerprint(config: DataConfig, tokenizer: TokenizerSource) -> str:
    """Hash everything that determines the corpus: source content, tokenizer and settings, but no paths or times.

    Raises:
        DataError: a file of the source is missing.
        ConfigError: the tokenizer cannot be loaded.
    """
    settings = {k: v for k, v in asdict(config).items() if k not in ("source", "corpus", "tokenizer")}
    words = tokenizer.identity()  # first: a wrong name should not wait until the source has been read
    content = [manifests.FORMAT, config.source.build().fingerprint(), words, settings]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _tokenizer_source(config: DataConfig, backbone: str | None) -> TokenizerSource:
    if config.tokenizer is not None:
        return config.tokenizer.build()
    if backbone is None:
        raise ConfigError("data.tokenizer: this model has no tokenizer; set, for example, {kind: trained}")
    return PretrainedTokenizer(backbone)


def _reusable(path: Path, fingerprint: str) -> Corpus | None:
    if not path.exists():
        return None
    if not (path / manifests.NAME).is_file():
        if path.is_dir() and not any(path.iterdir()):
            return None
        raise DataError(f"{path}: exists and is not a corpus; choose another data.corpus, or move it away")
    corpus = Corpus.open(path)
    if corpus.fingerprint == fingerprint:
        logger.info("corpus %s is up to date: reused", path)
        return corpus
    logger.warning(
        "corpus %s was made from other data, another tokenizer or other settings: making it again and deleting its "
        "cached hidden states, if any; to keep the old corpus, set another data.corpus",
        path,
    )
    return None


def _build(
    config: DataConfig,
    work: Path,
    source: TokenizerSource,
    fingerprint: str,
    map_unordered: MapUnordered,
    progress: Progress,
) -> None:
    spool = Spool(work / _SPOOL)
    chosen = _read(config, spool, map_unordered, progress)
    train = chosen.rows["train"]
    tokenizer = source.tokenizer(lambda: spool.texts(train), len(train))
    vocabulary = _vocabulary(config, spool, train, map_unordered, progress)
    vocabulary.save(work)
    tasks = list(_tasks(spool, chosen, max(config.max_length, len(vocabulary))))
    for split in chosen.rows:
        (work / split).mkdir()
    results = _tokenise(config, tasks, work, tokenizer, map_unordered, progress)
    counts = _counts(spool, chosen, results)
    shutil.rmtree(work / _SPOOL)
    tokenizer.save_pretrained(work / TOKENIZER)
    _counted(chosen.labels, results).save(work / LABELS)
    _write_manifest(config, work, identity(tokenizer, source.name), fingerprint, results, counts)
    _report(work, counts, config)


def _read(config: DataConfig, spool: Spool, map_unordered: MapUnordered, progress: Progress) -> Selection:
    """Read all documents into the spool, and select those of the corpus."""
    reader = config.source.build()
    info = reader.label_info()
    with progress.task("read documents") as task:
        rows = reader.read(map_unordered, progress)
        spool.fill(rows, info, config=config, task=task)
    return select(spool, info, reader.provides(), config)


def _vocabulary(
    config: DataConfig, spool: Spool, train: NDArray[np.int64], map_unordered: MapUnordered, progress: Progress
) -> Vocabulary:
    """Count the chosen training documents that contain each term, and choose the vocabulary."""
    frequencies: Counter[str] = Counter()
    count = functools.partial(count_documents, ngrams=config.words.ngrams)
    with progress.task("count words", len(train)) as bar:
        for documents, found in map_unordered(count, spool.pieces(train)):
            frequencies.update(found)
            bar.advance(documents)
    return choose_words(frequencies, len(train), config.words)


def _tasks(spool: Spool, chosen: Selection, longest: int) -> Iterator[ShardTask]:
    """Yield the shards to make; no list of a document has more than `longest` entries."""
    offsets, flat = spool.label_lists
    hashes = spool.hashes
    for split, rows in chosen.rows.items():
        size = int(np.clip(-(-len(rows) // _SHARDS_PER_SPLIT), _MIN_ROWS, _MAX_ROWS))
        size = max(min(size, (2**31 - 1) // longest), 1)  # Arrow's offsets inside a shard are int32
        for index, start in enumerate(range(0, len(rows), size)):
            part = rows[start : start + size]
            lists = [_label_ids(flat[offsets[row] : offsets[row + 1]], chosen.label_of) for row in part]
            ends = np.cumsum([0] + [len(one) for one in lists])
            yield ShardTask(split, index, spool.pieces(part), ends, np.concatenate(lists), hashes[part])


def _label_ids(provisional: NDArray[np.int32], label_of: NDArray[np.int32]) -> NDArray[np.int32]:
    ids = label_of[provisional]
    return np.unique(ids[ids >= 0])


def _tokenise(
    config: DataConfig,
    tasks: list[ShardTask],
    work: Path,
    tokenizer: PreTrainedTokenizerFast,
    map_unordered: MapUnordered,
    progress: Progress,
) -> list[ShardResult]:
    pad = tokenizer.pad_token_id
    make = functools.partial(
        make_shard,
        root=str(work.absolute()),
        definition=definition(tokenizer),
        words_sha256=file_sha256(work / WORDS_FILES[0]),
        max_length=config.max_length,
        pad_id=pad if isinstance(pad, int) else None,
    )
    results: list[ShardResult] = []
    with progress.task("tokenise", sum(len(task.label_offsets) - 1 for task in tasks)) as bar:
        for result in map_unordered(make, tasks):
            if result.without_tokens and config.on_bad_row == "error":
                raise DataError(
                    f"document {quoted_cell(result.without_tokens[0])} of {result.split}: the tokenizer finds no "
                    "tokens in its text, only padding; correct it, or set data.on_bad_row: skip"
                )
            results.append(result)
            bar.advance(result.rows)
    return sorted(results, key=lambda result: (SPLITS.index(result.split), result.index))


def _counts(spool: Spool, chosen: Selection, results: list[ShardResult]) -> Counts:
    return Counts(
        read=spool.read,
        rejected=spool.rejected + sum(len(result.without_tokens) for result in results),
        duplicates=chosen.duplicates,
        over_limit=chosen.over_limit,
        truncated=sum(result.truncated for result in results),
        without_labels=chosen.without_labels,
        dropped_labels=chosen.dropped_labels,
        absent_labels=spool.absent_labels,
        repeated_ids=spool.repeated_ids,
    )


def _counted(labels: LabelTable, results: list[ShardResult]) -> LabelTable:
    """Count each label again, without training documents in which the tokenizer found nothing."""
    counts = np.zeros(len(labels), dtype=np.int64)
    for result in results:
        if result.split == "train":
            counts[result.labels] += result.label_rows
    return replace(labels, train_counts=counts)


def _write_manifest(
    config: DataConfig,
    work: Path,
    tokenizer: TokenizerIdentity,
    fingerprint: str,
    results: list[ShardResult],
    counts: Counts,
) -> None:
    splits: dict[str, SplitInfo] = {}
    for name in SPLITS:
        shards = [result.shard for result in results if result.split == name and result.shard is not None]
        if shards:
            rows, tokens = sum(shard.rows for shard in shards), sum(shard.tokens for shard in shards)
            splits[name] = SplitInfo(rows=rows, tokens=tokens, shards=shards)
    if "train" not in splits:
        raise DataError("the tokenizer finds no tokens in any training document")
    Manifest(
        fingerprint=fingerprint,
        task=config.task,
        max_length=config.max_length,
        tokenizer=tokenizer,
        labels=file_info(work / LABELS, work),
        words=[file_info(work / name, work) for name in WORDS_FILES],
        splits=splits,
        counts=counts,
    ).save(work)


def _report(work: Path, counts: Counts, config: DataConfig) -> None:
    manifest = Manifest.load(work)
    rows = ", ".join(f"{name} {split.rows:,} documents" for name, split in manifest.splits.items())
    logger.info("corpus: %s", rows)
    notable = {k.replace("_", " "): v for k, v in asdict(counts).items() if v and k not in ("read", "without_labels")}
    if counts.without_labels:
        kept = config.without_labels == "keep" and not config.one_label
        what = "kept: no label fits them" if kept else "left out"
        logger.info("corpus: %s documents without labels (%s; data.without_labels)", f"{counts.without_labels:,}", what)
    if notable:
        logger.info("corpus: %s", ", ".join(f"{words} {number:,}" for words, number in notable.items()))
