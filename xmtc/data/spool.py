"""First pass of preparation: read every document once, and write its text to a temporary file to save memory.

The files are in the corpus's temporary directory and are deleted before the corpus is published. N documents so far.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.config import DataConfig
from xmtc.data.fields import categories_of, field_ends
from xmtc.data.readers.base import SPLITS, Document, LabelInfo, Rejected, quoted_cell
from xmtc.data.readers.cells import label_of, near_pairs
from xmtc.data.shards import SPOOL_SCHEMA, read_batch, write_batch
from xmtc.errors import DataError
from xmtc.track.progress import ConsoleTask

ROWS = 4096
_BYTES = 256 << 20
_NO_SPLIT = -1


def text_hash(text: str) -> int:
    """Hash a text, with its title; equal texts have equal hashes, in corpora too (`Split.text_hashes`)."""
    return xxhash.xxh3_64_intdigest(text.encode())


class Spool:
    """Documents in temporary files, with the data that selection needs in memory.

    Args:
        directory: directory of the files; it is created.
        fields: number of fields of a document.

    Attributes:
        rejected: number of bad rows left out; `first_rejected` gives the place and problem of the first.
        read: rows read.
        absent_labels: null, NaN or blank labels left out.
        dropped_bare: documents without labels left out (`without_labels: drop`).
        repeated_ids: documents whose doc_id an earlier document of the same split has.
        labels: all labels, by provisional id.
    """

    def __init__(self, directory: Path, fields: int):
        directory.mkdir(mode=0o700, parents=True)  # others may read a corpus, but not the texts
        self._directory, self._fields = directory, fields
        self._doc_ids: list[str] = []
        self._texts: list[str] = []
        self._bytes = 0
        self.files: list[Path] = []
        self._file_rows: list[int] = []
        self._splits, self._hashes = array("b"), array("Q")
        self._label_offsets, self._label_ids = array("q", [0]), array("i")
        self._known: dict[str, int] = {}
        self._ids_seen: set[int] = set()  # hashes: identifiers themselves would take several times the memory
        self.rejected = self.read = self.repeated_ids = self.absent_labels = self.dropped_bare = 0
        self.first_rejected = ""

    @property
    def labels(self) -> list[str]:
        """All labels, by provisional id."""
        return list(self._known)

    def fill(
        self, rows: Iterable[Document | Rejected], info: LabelInfo, *, config: DataConfig, task: ConsoleTask
    ) -> None:
        """Read all documents of a reader.

        Args:
            rows: result of `Reader.read`.
            info: names and hierarchy of the labels.
            config: defines bad rows, and what happens to them and to documents without labels.
            task: progress, advanced by one per row.

        Raises:
            DataError: a bad row with `on_bad_row: error`.
        """
        spelled = _Spellings(info.names, fold=config.fold_label_case)
        for row in rows:
            self.read += 1
            row = _checked(row, spelled, info, config) if isinstance(row, Document) else row
            if isinstance(row, Rejected):
                self.first_rejected = self.first_rejected or f"{row.where}: {row.reason}"
                if config.on_bad_row == "error":
                    raise DataError(f"{self.first_rejected}; correct the row, or set data.on_bad_row: skip")
                self.rejected += 1
            elif row.labels or config.without_labels != "drop":
                self._add(row)
            else:
                self.dropped_bare += 1
            task.advance()
        self._flush()

    def _add(self, document: Document) -> None:
        seen = len(self._ids_seen)
        self._ids_seen.add(xxhash.xxh3_64_intdigest(f"{document.split}\0{document.doc_id}".encode()))
        self.repeated_ids += len(self._ids_seen) == seen
        self.absent_labels += document.absent_labels
        self._doc_ids.append(document.doc_id)
        self._texts.append(document.text)
        self._bytes += len(document.text)
        self._hashes.append(text_hash(document.text))
        self._splits.append(_NO_SPLIT if document.split is None else SPLITS.index(document.split))
        self._label_ids.extend(self._known.setdefault(label, len(self._known)) for label in document.labels)
        self._label_offsets.append(len(self._label_ids))
        if len(self._texts) >= ROWS or self._bytes >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._texts:
            return
        path = self._directory / f"{len(self.files):06d}.arrow"
        ends = [field_ends(text, self._fields) for text in self._texts]
        columns = self._doc_ids, self._texts, ends, list(map(categories_of, self._texts))
        write_batch(path, pa.record_batch(list(map(pa.array, columns, SPOOL_SCHEMA.types)), schema=SPOOL_SCHEMA))
        self.files.append(path)
        self._file_rows.append(len(self._texts))
        self._doc_ids, self._texts, self._bytes = [], [], 0

    @property
    def splits(self) -> NDArray[np.int8]:
        """(N,) index into SPLITS, -1 where the source does not say."""
        return np.array(self._splits, dtype=np.int8)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """(N,) of the texts."""
        return np.array(self._hashes, dtype=np.uint64)

    @property
    def label_matrix(self) -> sparse.csr_array:
        """True where a document has a label, boolean (N, provisional labels)."""
        offsets, ids = np.array(self._label_offsets, np.int64), np.array(self._label_ids, np.int32)
        return sparse.csr_array((np.ones(len(ids), np.bool_), ids, offsets), (len(offsets) - 1, len(self._known)))

    def pieces(self, rows: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
        """Find where sorted `rows` are: files and the rows inside each."""
        starts = np.cumsum([0, *self._file_rows])
        cuts = np.searchsorted(rows, starts)
        return [
            (str(path), rows[cuts[i] : cuts[i + 1]] - starts[i])
            for i, path in enumerate(self.files)
            if cuts[i] < cuts[i + 1]
        ]

    def texts(self, rows: NDArray[np.int64]) -> Iterator[str]:
        """Yield texts of sorted `rows`, for training a tokenizer."""
        for path, inside in self.pieces(rows):
            yield from read_batch(Path(path)).column("text").take(pa.array(inside)).to_pylist()


class _Spellings(dict[str, str]):
    """The label that a label stands for: the same, or, without regard to case, the known one or the first.

    Args:
        known: labels of the label file.
        fold: whether case does not matter.
    """

    def __init__(self, known: Iterable[str], *, fold: bool) -> None:
        self._fold = fold
        self._first = {label.casefold(): label for label in known} if fold else {}

    def __missing__(self, label: str) -> str:
        composed = label_of(label) or ""
        self[label] = self._first.setdefault(composed.casefold(), composed) if self._fold else composed
        return self[label]


def _checked(row: Document, spelled: _Spellings, info: LabelInfo, config: DataConfig) -> Document | Rejected:
    """Spell the labels of a document as the corpus does, or say why it is none."""
    row = replace(row, labels=tuple(filter(None, dict.fromkeys(spelled[label] for label in row.labels))))
    where = f"document {quoted_cell(row.doc_id)}"
    if not row.text.strip():
        return Rejected(where, "no text")
    if not row.labels and config.without_labels != "drop" and (config.one_label or config.without_labels == "error"):
        why = "data.task is single_label" if config.one_label else "data.without_labels is error"
        return Rejected(where, f"no labels, but {why} (without_labels: drop leaves it out)")
    if config.one_label and len(row.labels) > 1:
        return Rejected(where, f"{len(row.labels)} labels, but data.task is single_label")
    unknown = [label for label in row.labels if label not in info.names] if info.closed else []
    if unknown:
        near = "".join(f"; did you mean {quoted_cell(other)}?" for other, _ in near_pairs(unknown[:1], info.names))
        return Rejected(
            where, f"label {quoted_cell(unknown[0])} is not in the label file (closed: false admits it){near}"
        )
    return row
