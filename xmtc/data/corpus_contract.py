"""What the files of a corpus must hold, checked before anything computes with them.

A corpus may come from a stranger, whose checksums show only that nothing has changed on the way. An id beyond its table
makes native code read memory that is not its own.

    check_places    the manifest, when a corpus is opened
    check_shard     columns and rows of a shard, when it is opened: takes time for each row, and none for tokens
    check_values    tokens, labels and words of a shard, when a run or an evaluation begins: reads everything
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.data.array_contract import all_below
from xmtc.data.manifest import Manifest, ShardInfo
from xmtc.data.readers.base import SPLITS
from xmtc.data.shards import SHARD_SCHEMA, UNJUDGED
from xmtc.errors import DataError
from xmtc.files import resolve_links

_AGAIN = "prepare the corpus again, or get it from its source again"
_SCHEMAS = (SHARD_SCHEMA, SHARD_SCHEMA.append(UNJUDGED))


def check_places(root: Path, manifest: Manifest) -> None:
    """Check splits and numbers in a manifest, and that its files lie in the corpus.

    Raises:
        DataError: says which do not.
    """

    def refuse(problem: str) -> DataError:
        return DataError(f"{root}/manifest.json: {problem}; {_AGAIN}")

    inside = resolve_links(root)
    paths = [file.path for file in manifest.files()]
    for path in paths:
        if "\0" in path or not resolve_links(root / path).is_relative_to(inside):
            raise refuse(f"the file {path[:60]!a} leads out of the corpus")
    if len(set(paths)) < len(paths):
        raise refuse("a file occurs twice")
    if manifest.max_length < 1 or "train" not in manifest.splits:
        raise refuse("max_length is less than 1, or there is no split train")
    for name, split in manifest.splits.items():
        if name not in SPLITS:
            raise refuse(f"{name[:60]!a} is no split; there are {', '.join(SPLITS)}")
        rows = sum(shard.rows for shard in split.shards)
        tokens = sum(shard.tokens for shard in split.shards)
        if not rows or (rows, tokens) != (split.rows, split.tokens):
            raise refuse(f"rows or tokens of {name} are not those of its shards")


def check_shard(path: Path, batch: pa.RecordBatch, expected: ShardInfo) -> None:
    """Check columns, rows and the places of lists of a shard.

    Args:
        path: the file.
        batch: its record batch.
        expected: what the manifest says of it.

    Raises:
        DataError: says what is wrong.
        ArrowInvalid: offsets lie outside the file, or an identifier is no text.
    """

    def refuse(problem: str) -> DataError:
        return DataError(f"{path}: {problem}; {_AGAIN}")

    if not any(batch.schema.equals(schema) for schema in _SCHEMAS):
        raise refuse(
            "its columns are other ones, or of other types, than those of a corpus"
        )
    batch.validate(full=True)
    for name in batch.schema.names:
        column = batch.column(name)
        has_nulls = column.null_count > 0
        if isinstance(column, pa.ListArray):
            has_nulls = has_nulls or column.values.null_count > 0
            offsets = column.offsets
            if offsets[0].as_py() != 0 or offsets[-1].as_py() != len(column.values):
                raise refuse(f"{name}: lists do not cover the values")
        if has_nulls:
            raise refuse(f"{name}: has empty cells")
    if not batch.column("word_ids").offsets.equals(batch.column("word_counts").offsets):
        raise refuse("a document has not as many word_counts as word_ids")
    found = (batch.num_rows, len(batch.column("input_ids").values))
    if found != (expected.rows, expected.tokens):
        raise refuse("rows or tokens are not as many as manifest.json says")


def check_values(
    path: Path, batch: pa.RecordBatch, limits: Mapping[str, int], longest: int
) -> None:
    """Check the values in a shard that `check_shard` has passed.

    Args:
        path: the file.
        batch: its record batch.
        limits: for each column of ids what they must be below; a column that is not there is left out.
        longest: most tokens of a document.

    Raises:
        DataError: an id is out of its range, a document has no tokens or too many, it has a word twice, or a word no
            time.
    """

    def refuse(problem: str) -> DataError:
        return DataError(f"{path}: {problem}; {_AGAIN}")

    for name, limit in limits.items():
        if name in batch.schema.names and not all_below(_values(batch, name), limit):
            raise refuse(f"{name}: an id is not from 0 to {limit - 1}")
    lengths = np.diff(batch.column("input_ids").offsets.to_numpy())
    if lengths.min() < 1 or lengths.max() > longest:
        raise refuse(f"input_ids: a document has not from 1 to {longest} tokens")
    words = _values(batch, "word_ids")
    ascends = words[1:] > words[:-1]
    starts = batch.column("word_ids").offsets.to_numpy()[1:-1]
    ascends[starts[(starts > 0) & (starts < len(words))] - 1] = True
    if not ascends.all():
        raise refuse("word_ids: the words of a document do not ascend")
    if (_values(batch, "word_counts") < 1).any():
        raise refuse("word_counts: a word occurs less than once")


def _values(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    values: NDArray[np.int32] = batch.column(name).values.to_numpy(zero_copy_only=True)
    return values
