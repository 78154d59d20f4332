"""A prepared corpus on disk: token ids, label ids and word counts of its splits, memory-mapped.

N documents of a split, L labels, R documents asked for.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse
from transformers import PreTrainedTokenizerFast

from xmtc.data.array_contract import Sizes, check_tensors
from xmtc.data.arrow_files import read_batch
from xmtc.data.corpus_contract import check_places, check_shard, check_values
from xmtc.data.labels import LabelTable, check_labels
from xmtc.data.list_column import ListColumn
from xmtc.data.manifest import FileInfo, Manifest, ShardInfo, SplitInfo, file_info
from xmtc.data.shards import UNJUDGED
from xmtc.data.tokenizer import load_saved
from xmtc.data.words import WORDS_FILES, Vocabulary, Words
from xmtc.errors import CheckpointError, DataError
from xmtc.files import reading

LABELS = "labels.arrow"
TOKENIZER = "tokenizer"

# Corpora that are open at the same time share their label table, because one of millions of labels is large.
_OPEN_LABELS: WeakValueDictionary[tuple[Path, str], LabelTable] = WeakValueDictionary()


class Split:
    """Documents of one split.

    Attributes:
        name: `train`, `dev` or `test`.
        lengths: int32 (N,), content tokens per document, without special tokens.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        info: SplitInfo,
        labels: int,
        vocabulary: Callable[[], Vocabulary],
    ):
        self.name = name
        self.info = info
        self._labels = labels
        self._vocabulary = vocabulary
        self._batches = [_open_shard(root, shard) for shard in info.shards]
        self._tokens = ListColumn(self._batches, "input_ids")
        self._label_ids = ListColumn(self._batches, "label_ids")
        has_unjudged = (
            bool(self._batches) and UNJUDGED.name in self._batches[0].schema.names
        )
        self._unjudged_ids = (
            ListColumn(self._batches, UNJUDGED.name) if has_unjudged else None
        )
        self._word_ids = ListColumn(self._batches, "word_ids")
        self._word_counts = ListColumn(self._batches, "word_counts")
        self.lengths: NDArray[np.int32] = self._tokens.lengths.astype(np.int32)

    def __len__(self) -> int:
        return len(self._tokens)

    def doc_ids(self) -> list[str]:
        """Return the N identifiers."""
        return [
            doc_id
            for batch in self._batches
            for doc_id in batch.column("doc_id").to_pylist()
        ]

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Return token ids of a document, without special tokens: a view of the file, not a copy."""
        return self._tokens.row(document)

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids of a document: a view of the file."""
        return self._label_ids.row(document)

    def unjudged_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids that nobody judged for a document; usually none."""
        if self._unjudged_ids is None:
            return np.empty(0, np.int32)
        return self._unjudged_ids.row(document)

    def token_blocks(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Yield (flat token ids, offsets (rows + 1,)) of each shard, in the order of the documents."""
        yield from self._tokens.blocks()

    def label_matrix(self) -> sparse.csr_array:
        """Make a boolean matrix (N, L), True where a document has a label."""
        label_ids = self._label_ids.values()
        pointers = np.concatenate([[0], np.cumsum(self._label_ids.lengths)])
        parts = (np.ones(len(label_ids), dtype=bool), label_ids, pointers)
        matrix = sparse.csr_array(parts, shape=(len(self), self._labels))
        matrix.sort_indices()
        return matrix

    def unjudged_matrix(self) -> sparse.csr_array | None:
        """Make a boolean matrix (N, L), True where nobody judged a label; None if every label was judged."""
        if self._unjudged_ids is None:
            return None
        label_ids = self._unjudged_ids.values()
        pointers = np.concatenate([[0], np.cumsum(self._unjudged_ids.lengths)])
        parts = (np.ones(len(label_ids), dtype=bool), label_ids, pointers)
        return sparse.csr_array(parts, shape=(len(self), self._labels))

    def words(self, rows: NDArray[np.int64] | None = None) -> Words:
        """Return the words of whole texts.

        Args:
            rows: R documents in any order; None: all N.

        Raises:
            IndexError: no such document.
            DataError: the vocabulary is missing or damaged.
        """
        vocabulary = self._vocabulary()
        columns = self._word_ids.values(rows)
        counts = self._word_counts.values(rows).astype(np.float32)
        lengths = self._word_ids.lengths
        if rows is not None:
            lengths = lengths[rows]
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        shape = (len(lengths), vocabulary.columns)
        return Words(
            sparse.csr_array((counts, columns, pointers), shape=shape), vocabulary
        )

    def text_hashes(self) -> NDArray[np.uint64]:
        """Return hashes (N,) of whole texts: equal texts have equal ones."""
        parts = [
            batch.column("text_hash").to_numpy(zero_copy_only=True)
            for batch in self._batches
        ]
        return np.concatenate([np.empty(0, np.uint64), *parts])


class Corpus:
    """A prepared corpus directory, memory-mapped.

    Attributes:
        path: the directory.
        manifest: format, fingerprint, counts and files.
        labels: every label, with its name and number of training documents.
    """

    def __init__(self, path: Path, manifest: Manifest, labels: LabelTable):
        self.path = path
        self.manifest = manifest
        self.labels = labels
        self._splits: dict[str, Split] = {}

    @staticmethod
    def open(path: str | Path) -> "Corpus":
        """Open a finished corpus.

        Raises:
            DataError: the directory holds no corpus, or it is damaged.
        """
        root = Path(path)
        manifest = Manifest.load(root)
        check_places(root, manifest)
        labels_path = _sized(root, manifest.labels)
        key = (labels_path.absolute(), manifest.labels.sha256)
        labels = _OPEN_LABELS.get(key) or LabelTable.load(labels_path)
        _OPEN_LABELS[key] = labels
        return Corpus(root, manifest, labels)

    @property
    def fingerprint(self) -> str:
        """Identity of source, tokenizer and settings: equal fingerprints mean equal corpora."""
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
        """Return a split by name.

        Raises:
            DataError: no such split, or a shard is missing or damaged.
        """
        if name not in self.manifest.splits:
            splits = ", ".join(self.splits)
            duplicates = self.manifest.counts.duplicates
            why = (
                f" ({duplicates:,} documents of dev and test are also in train)"
                if duplicates
                else ""
            )
            raise DataError(
                f"{self.path}: no split {name!r}{why}; the corpus has: {splits}; see data.split and data.source"
            )
        if name not in self._splits:
            info = self.manifest.splits[name]
            self._splits[name] = Split(
                self.path, name, info, len(self.labels), self.vocabulary
            )
        return self._splits[name]

    @cached_property
    def _words(self) -> Vocabulary:
        for expected in self.manifest.words:
            _sized(self.path, expected)
        try:
            vocabulary = Vocabulary.load(self.path)
            counts = self.path / WORDS_FILES[1]
            check_tensors(counts, Vocabulary.ARRAYS, Sizes({"V": len(vocabulary)}))
            return vocabulary
        except CheckpointError as error:
            raise DataError(
                f"{self.path}: the vocabulary is damaged; delete {self.path} and prepare it again"
            ) from error

    def vocabulary(self) -> Vocabulary:
        """Return the terms, with their weights, and the fields whose terms `word_ids` number; read once.

        Raises:
            DataError: it is missing or damaged.
        """
        return self._words

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        return load_saved(
            self.path / TOKENIZER,
            self.manifest.tokenizer.vocab_size,
            DataError,
            f"delete {self.path} and prepare it again",
        )

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the tokenizer that made the token ids; the corpus contains it.

        Raises:
            DataError: it is missing or damaged.
        """
        return self._tokenizer

    def verify(self) -> None:
        """Compare every file with its hash in the manifest, and its ids with what they stand for. Reads everything.

        Raises:
            DataError: a file differs, or holds what no corpus does.
        """
        for expected in self.manifest.files():
            if file_info(_sized(self.path, expected), self.path) != expected:
                raise DataError(
                    f"{self.path / expected.path}: changed since it was written; prepare the corpus again"
                )
        labels = check_labels(
            self.path / self.manifest.labels.path, DataError, "prepare the corpus again"
        )
        limits = {
            "input_ids": len(self.tokenizer()),
            "label_ids": labels,
            UNJUDGED.name: labels,
            "word_ids": self.vocabulary().columns,
        }
        for split in self.manifest.splits.values():
            for shard in split.shards:
                check_values(
                    self.path / shard.file.path,
                    _open_shard(self.path, shard),
                    limits,
                    self.manifest.max_length,
                )


def _sized(root: Path, expected: FileInfo) -> Path:
    """Return the path of a file of the corpus, after a look at its size, which takes no time."""
    path = root / expected.path
    if not path.is_file():
        raise DataError(
            f"{path}: missing from the corpus; delete {root} and prepare it again"
        )
    size = path.stat().st_size
    if size != expected.bytes:
        raise DataError(
            f"{path}: {size:,} bytes instead of {expected.bytes:,}; delete {root} and prepare it again"
        )
    return path


def _open_shard(root: Path, expected: ShardInfo) -> pa.RecordBatch:
    path = _sized(root, expected.file)
    with reading(path, fix=f"delete {root} and prepare it again"):
        batch = read_batch(path)
        check_shard(path, batch, expected)
    return batch
