"""A prepared corpus on disk: splits of token ids and label ids, memory-mapped.

N documents of a split, L labels.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from xmtc.data.labels import LabelTable
from xmtc.data.manifest import FileInfo, Manifest, SplitInfo, file_info
from xmtc.data.shards import read_batch
from xmtc.errors import DataError

LABELS, TOKENIZER = "labels.arrow", "tokenizer"


class Split:
    """Documents of one split.

    Attributes:
        name: `train`, `dev` or `test`.
        lengths: int32 (N,), content tokens per document, without special tokens.
    """

    def __init__(self, root: Path, name: str, info: SplitInfo, labels: int):
        self.name, self.info, self._labels = name, info, labels
        self._batches = [_open_shard(root, shard.file) for shard in info.shards]
        self._starts = np.cumsum([0] + [batch.num_rows for batch in self._batches])
        self._tokens = [_flat(batch, "input_ids") for batch in self._batches]
        self._label_ids = [_flat(batch, "label_ids") for batch in self._batches]
        empty = [np.empty(0, dtype=np.int32)]
        self.lengths: NDArray[np.int32] = np.concatenate(
            empty + [np.diff(offsets).astype(np.int32) for _, offsets in self._tokens]
        )

    def __len__(self) -> int:
        return int(self._starts[-1])

    def doc_ids(self) -> list[str]:
        """N identifiers."""
        return [doc_id for batch in self._batches for doc_id in batch.column("doc_id").to_pylist()]

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Token ids of a document, without special tokens: a view of the file, not a copy."""
        return self._row(self._tokens, document)

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids of a document: a view of the file."""
        return self._row(self._label_ids, document)

    def _row(self, flat: list[tuple[NDArray[np.int32], NDArray[np.int32]]], document: int) -> NDArray[np.int32]:
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} of {len(self)}")
        shard = int(np.searchsorted(self._starts, document, side="right")) - 1
        values, offsets = flat[shard]
        row = document - self._starts[shard]
        return values[offsets[row] : offsets[row + 1]]

    def token_blocks(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """(flat token ids, offsets (rows + 1,)) of one shard after the other, in the order of the documents."""
        for values, offsets in self._tokens:
            yield values, offsets.astype(np.int64)

    def label_matrix(self) -> sparse.csr_array:
        """Boolean (N, L), True where a document has a label."""
        indices = np.concatenate([np.empty(0, dtype=np.int32)] + [values for values, _ in self._label_ids])
        counts = np.concatenate([np.empty(0, dtype=np.int64)] + [np.diff(offsets) for _, offsets in self._label_ids])
        pointers = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        matrix = sparse.csr_array((np.ones(len(indices), dtype=bool), indices, pointers), (len(self), self._labels))
        matrix.sort_indices()
        return matrix


class Corpus:
    """A corpus directory, see DESIGN.

    Attributes:
        path: the directory.
        manifest: what is in it.
        labels: all labels.
    """

    def __init__(self, path: Path, manifest: Manifest, labels: LabelTable):
        self.path, self.manifest, self.labels = path, manifest, labels
        self._splits: dict[str, Split] = {}

    @staticmethod
    def open(path: str | Path) -> "Corpus":
        """Open a finished corpus.

        Raises:
            DataError: there is none, or it is damaged.
        """
        root = Path(path)
        manifest = Manifest.load(root)
        return Corpus(root, manifest, LabelTable.load(_sized(root, manifest.labels)))

    @property
    def fingerprint(self) -> str:
        """Of source, tokenizer and settings: equal fingerprints, equal corpora."""
        return self.manifest.fingerprint

    @property
    def splits(self) -> list[str]:
        """Names of the splits that have documents."""
        return list(self.manifest.splits)

    @property
    def train_documents(self) -> int:
        """Documents of the training split."""
        return self.manifest.splits["train"].rows

    def split(self, name: str) -> Split:
        """A split by name.

        Raises:
            DataError: no such split, or a shard is missing or damaged.
        """
        if name not in self.manifest.splits:
            there = ", ".join(self.splits)
            raise DataError(f"{self.path}: no split {name!r}; the corpus has: {there}; see data.split and data.source")
        if name not in self._splits:
            self._splits[name] = Split(self.path, name, self.manifest.splits[name], len(self.labels))
        return self._splits[name]

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        place = self.path / TOKENIZER
        try:
            return AutoTokenizer.from_pretrained(place, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise DataError(f"{place}: missing or damaged; delete {self.path} and prepare it again") from error

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer that made the token ids; it is kept in the corpus.

        Raises:
            DataError: it is missing or damaged.
        """
        return self._tokenizer

    def verify(self) -> None:
        """Compare every file with its hash in the manifest, which reads the whole corpus.

        Raises:
            DataError: a file differs.
        """
        for expected in self.manifest.files():
            if file_info(_sized(self.path, expected), self.path) != expected:
                raise DataError(f"{self.path / expected.path}: changed since it was written; prepare the corpus again")


def _sized(root: Path, expected: FileInfo) -> Path:
    path = root / expected.path
    if not path.is_file():
        raise DataError(f"{path}: missing from the corpus; delete {root} and prepare it again")
    if path.stat().st_size != expected.bytes:
        found = path.stat().st_size
        raise DataError(f"{path}: {found} bytes instead of {expected.bytes}; delete {root} and prepare it again")
    return path


def _open_shard(root: Path, expected: FileInfo) -> pa.RecordBatch:
    path = _sized(root, expected)
    try:
        return read_batch(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: damaged: {error}; delete {root} and prepare it again") from error


def _flat(batch: pa.RecordBatch, name: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    column = batch.column(name)
    return column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True)
