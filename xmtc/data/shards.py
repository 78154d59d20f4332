"""Spooled documents and tokenised shards: Arrow IPC files, one record batch each, so that reading copies nothing.

This module runs in worker processes and imports neither torch nor transformers.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xmtc.data.arrow_files import read_batch, write_arrow
from xmtc.data.fields import FieldText
from xmtc.data.manifest import ShardInfo, file_info
from xmtc.data.windows import first_tokens
from xmtc.data.words import TermRules, Vocabulary, document_frequencies

SHARD_SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("label_ids", pa.list_(pa.int32())),
        ("word_ids", pa.list_(pa.int32())),
        ("word_counts", pa.list_(pa.int32())),
        ("text_hash", pa.uint64()),
    ]
)
SPOOL_SCHEMA = pa.schema(
    [
        ("doc_id", pa.string()),
        ("text", pa.large_string()),
        ("field_ends", pa.list_(pa.int32())),
        ("categories", pa.list_(pa.string())),
    ]
)
UNJUDGED = pa.field("unjudged_ids", pa.list_(pa.int32()))
"""A further column of corpora in which some labels of some documents were not judged."""
Piece = tuple[str, NDArray[np.int64]]
"""A spool file, and the rows to take from it."""


@dataclass(frozen=True)
class ShardTask:
    """One shard to make.

    Attributes:
        split, index: split of the shard, and its index there.
        pieces: spool files and the rows to take from each, in order.
        label_offsets: (rows + 1,), where each row's labels begin in `label_ids`, int32.
        text_hashes: uint64 (rows,), equal for equal texts.
        unjudged: labels of each row that nobody judged; None if every label was judged.
    """

    split: str
    index: int
    pieces: Sequence[Piece]
    label_offsets: NDArray[np.integer]
    label_ids: NDArray[np.int32]
    text_hashes: NDArray[np.uint64]
    unjudged: Sequence[NDArray[np.int32]] | None = None


@dataclass(frozen=True)
class ShardResult:
    """The result of a task.

    Attributes:
        shard: the file, None if no row was left.
        truncated: rows cut to `max_length`.
        without_tokens: ids of documents in which the tokenizer found nothing.
        labels: int32, label ids that occur in the shard, ascending.
        label_rows: int64, number of rows with each of these labels.
    """

    split: str
    index: int
    shard: ShardInfo | None
    rows: int
    truncated: int
    without_tokens: list[str]
    labels: NDArray[np.int32]
    label_rows: NDArray[np.int64]


def count_documents(piece: Piece, *, rules: TermRules) -> tuple[int, Counter[str]]:
    """Count the rows of a piece, and for each term the rows that contain it.

    Args:
        piece: rows to count in.
        rules: what is a term.
    """
    path, rows = piece
    texts = _texts(read_batch(Path(path)).take(pa.array(rows)))
    return len(texts), document_frequencies(texts, rules)


def make_shard(
    task: ShardTask,
    *,
    root: str,
    definition: str,
    words_sha256: str,
    max_length: int,
    pad_id: int | None,
) -> ShardResult:
    """Tokenise the rows of a task, count their words and write them as `<root>/<split>/<index>.arrow`.

    Args:
        task: the shard to make.
        root: temporary directory of the corpus; it has the vocabulary and a folder for the split. (A worker that
            created the folder could restore what an interrupted run has just deleted.)
        definition: tokenizer as JSON.
        words_sha256: SHA-256 of the vocabulary's terms.
        max_length: longer documents are cut to this many tokens.
        pad_id: padding token; a document of padding alone counts as one without tokens.
    """
    pieces = [read_batch(Path(path)).take(pa.array(rows)) for path, rows in task.pieces]
    documents = pa.Table.from_batches(pieces)
    doc_ids = documents["doc_id"].to_pylist()
    texts = _texts(documents)
    encodings = first_tokens(_tokenizer(definition), texts, max_length)
    tokens = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
    labels = np.split(task.label_ids, task.label_offsets[1:-1])
    readable = [row for row, ids in enumerate(tokens) if (ids != pad_id).any()]
    without_tokens = sorted(set(range(len(tokens))) - set(readable))
    word_ids, word_counts = _word_lists(
        [texts[row] for row in readable], _vocabulary(root, words_sha256)
    )
    batch = pa.record_batch(
        [
            pa.array([doc_ids[row] for row in readable], pa.string()),
            _lists([tokens[row][:max_length] for row in readable]),
            _lists([labels[row] for row in readable]),
            word_ids,
            word_counts,
            pa.array(task.text_hashes[readable], pa.uint64()),
        ],
        schema=SHARD_SCHEMA,
    )
    if task.unjudged is not None:
        unjudged = _lists([task.unjudged[row] for row in readable])
        schema = SHARD_SCHEMA.append(UNJUDGED)
        batch = pa.RecordBatch.from_arrays([*batch.columns, unjudged], schema=schema)
    # A document has each label once, so that counting label ids counts documents.
    label_ids, label_rows = np.unique(
        batch.column("label_ids").values.to_numpy(), return_counts=True
    )
    return ShardResult(
        split=task.split,
        index=task.index,
        shard=_write_shard(batch, task, Path(root)),
        rows=len(doc_ids),
        truncated=sum(len(tokens[row]) > max_length for row in readable),
        without_tokens=[doc_ids[row] for row in without_tokens],
        labels=label_ids,
        label_rows=label_rows,
    )


def _texts(rows: pa.RecordBatch | pa.Table) -> list[FieldText]:
    """Read spooled documents."""
    texts = rows["text"].to_pylist()
    field_ends = rows["field_ends"].to_pylist()
    categories = rows["categories"].to_pylist()
    return [
        FieldText.of(*document)
        for document in zip(texts, field_ends, categories, strict=True)
    ]


@functools.lru_cache(maxsize=1)
def _tokenizer(definition: str) -> Tokenizer:
    """Load the tokenizer once per process, because this takes longer than tokenising a small shard."""
    return Tokenizer.from_str(definition)


@functools.lru_cache(maxsize=1)
def _vocabulary(root: str, sha256: str) -> Vocabulary:
    """Load the vocabulary once per process; the hash distinguishes a corpus from an earlier one in the same place."""
    del sha256
    return Vocabulary.load(Path(root))


def _word_lists(
    texts: Sequence[str], vocabulary: Vocabulary
) -> tuple[pa.ListArray, pa.ListArray]:
    """Make two list columns: the columns of the terms of each text, ascending, and how often each occurs."""
    counts_NC = vocabulary.words(texts).counts_NC
    counts_NC.sort_indices()
    offsets = pa.array(counts_NC.indptr.astype(np.int32))
    ids = pa.array(counts_NC.indices.astype(np.int32))
    counts = pa.array(counts_NC.data.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, ids), pa.ListArray.from_arrays(
        offsets, counts
    )


def _write_shard(
    batch: pa.RecordBatch, task: ShardTask, root: Path
) -> ShardInfo | None:
    """Write the shard of a task; None if no row is left."""
    if batch.num_rows == 0:
        return None
    path = root / task.split / f"{task.index:05d}.arrow"
    write_arrow(path, batch.schema, [batch])
    tokens = len(batch.column("input_ids").values)
    return ShardInfo(file=file_info(path, root), rows=batch.num_rows, tokens=tokens)


def _lists(rows: Sequence[NDArray[np.int32]]) -> pa.ListArray:
    """Make a list column of arrays."""
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.concatenate([*rows, np.empty(0, dtype=np.int32)])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.int32()))
