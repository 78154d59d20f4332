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

from xmtc.data.arrow_files import read_batch, write_arrow
from xmtc.data.config import DataConfig
from xmtc.data.fields import categories_of, field_ends
from xmtc.data.readers.base import (
    SPLITS,
    Document,
    LabelInfo,
    Rejected,
    check_length,
    quoted_cell,
)
from xmtc.data.readers.cells import label_of, near_pairs
from xmtc.data.shards import SPOOL_SCHEMA, Piece
from xmtc.errors import DataError
from xmtc.track.progress import ConsoleTask

ROWS = 4096
"""Most documents of a file."""
_MAX_CHARACTERS = 256 << 20
"""Characters of texts in memory from which on a file is written before it has `ROWS` documents."""
NO_SPLIT = -1
"""Stands for the split of a document of which the source says none."""


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
        unjudged: documents left out because nobody has judged them, or because their labels were refused.
        replaced_rows: rows of documents whose text an added document has, too, which takes their place.
        labels: all labels, by provisional id.
    """

    def __init__(self, directory: Path, fields: int):
        directory.mkdir(
            mode=0o700, parents=True
        )  # others may read a corpus, but not the texts
        self._directory = directory
        self._fields = fields
        # Documents that are not in a file yet.
        self._doc_ids: list[str] = []
        self._texts: list[str] = []
        self._characters = 0
        # Files, and the number of documents in each.
        self.files: list[Path] = []
        self._file_rows: list[int] = []
        # What selection needs of every document.
        self._splits = array("b")
        self._hashes = array("Q")
        self._label_offsets = array("q", [0])
        self._label_ids = array("i")
        # Rows of which not every label was judged, and the labels that were judged not to fit them.
        self._partial_rows = array("q")
        self._rejected_offsets = array("q", [0])
        self._rejected_ids = array("i")
        self._provisional_ids: dict[str, int] = {}
        # Added documents, and what they need of those that were read before.
        self._is_added = array("b")
        self._earlier: _Earlier | None = None
        self.replaced_rows: set[int] = set()
        self._doc_id_hashes = array(
            "Q"
        )  # identifiers themselves would take many times the memory
        self.read = 0
        self.rejected = 0
        self.first_rejected = ""
        self.absent_labels = 0
        self.dropped_bare = 0
        self.unjudged = 0

    @property
    def labels(self) -> list[str]:
        """All labels, by provisional id."""
        return list(self._provisional_ids)

    def fill(
        self,
        rows: Iterable[Document | Rejected],
        info: LabelInfo,
        *,
        config: DataConfig,
        task: ConsoleTask,
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
        spellings = _Spellings(info, fold=config.fold_label_case)
        for row in rows:
            self.read += 1
            if isinstance(row, Document):
                row = _checked(row, spellings, info, config)
            if isinstance(row, Rejected) and row.unjudged:
                self.unjudged += 1
            elif isinstance(row, Rejected):
                self._reject(row, config)
            else:
                if row.added:
                    row = self._in_place_of_earlier(row, one_label=config.one_label)
                if row.labels or config.without_labels != "drop":
                    self._add(row)
                else:
                    self.dropped_bare += 1
            task.advance()
        self._flush()

    def _reject(self, row: Rejected, config: DataConfig) -> None:
        """Count a bad row, or stop at it."""
        description = f"{row.where}: {row.reason}"
        if config.on_bad_row == "error":
            raise DataError(
                f"{description}; correct the row, or set data.on_bad_row: skip"
            )
        self.first_rejected = self.first_rejected or description
        self.rejected += 1

    def _in_place_of_earlier(self, document: Document, *, one_label: bool) -> Document:
        """Let an added document take the place of earlier ones of its text, and judge by them what it does not judge.

        Args:
            document: the added document.
            one_label: whether its label rejects all others.
        """
        if self._earlier is None:
            self._earlier = _Earlier(self)
        rows = self._earlier.rows_of(text_hash(document.text))
        self.replaced_rows.update(rows)
        if not rows or document.rejected_labels is None or one_label:
            return document
        labels = dict.fromkeys(document.labels)
        for row in rows:
            labels.update(dict.fromkeys(self._earlier.labels_of(row)))
        kept = tuple(label for label in labels if label not in document.rejected_labels)
        judged = None if self._earlier.are_whole(rows) else document.rejected_labels
        return replace(document, labels=kept, rejected_labels=judged)

    def _add(self, document: Document) -> None:
        self._doc_id_hashes.append(
            xxhash.xxh3_64_intdigest(f"{document.split}\0{document.doc_id}".encode())
        )
        self.absent_labels += document.absent_labels
        self._doc_ids.append(document.doc_id)
        self._texts.append(document.text)
        self._characters += len(document.text)
        self._hashes.append(text_hash(document.text))
        self._is_added.append(document.added)
        self._splits.append(
            NO_SPLIT if document.split is None else SPLITS.index(document.split)
        )
        for label in document.labels:
            label_id = self._provisional_ids.setdefault(
                label, len(self._provisional_ids)
            )
            self._label_ids.append(label_id)
        self._label_offsets.append(len(self._label_ids))
        if document.rejected_labels is not None:
            self._partial_rows.append(len(self._label_offsets) - 2)
            for label in document.rejected_labels:
                self._rejected_ids.append(
                    self._provisional_ids.setdefault(label, len(self._provisional_ids))
                )
            self._rejected_offsets.append(len(self._rejected_ids))
        if len(self._texts) >= ROWS or self._characters >= _MAX_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        """Write the documents in memory to a file."""
        if not self._texts:
            return
        path = self._directory / f"{len(self.files):06d}.arrow"
        columns = {
            "doc_id": self._doc_ids,
            "text": self._texts,
            "field_ends": [field_ends(text, self._fields) for text in self._texts],
            "categories": [categories_of(text) for text in self._texts],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in SPOOL_SCHEMA]
        write_arrow(path, SPOOL_SCHEMA, [pa.record_batch(arrays, schema=SPOOL_SCHEMA)])
        self.files.append(path)
        self._file_rows.append(len(self._texts))
        self._doc_ids = []
        self._texts = []
        self._characters = 0

    @property
    def partial_rows(self) -> frozenset[int]:
        """Documents of which not every label was judged."""
        return frozenset(self._partial_rows)

    @property
    def repeated_ids(self) -> int:
        """Number of documents whose doc_id an earlier document of the same split has."""
        hashes = np.array(self._doc_id_hashes, dtype=np.uint64)
        return len(hashes) - len(np.unique(hashes))

    @property
    def splits(self) -> NDArray[np.int8]:
        """(N,) index into SPLITS, -1 where the source does not say."""
        return np.array(self._splits, dtype=np.int8)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """(N,) of the texts."""
        return np.array(self._hashes, dtype=np.uint64)

    @property
    def is_added(self) -> NDArray[np.bool_]:
        """(N,) whether a document was added to the others."""
        return np.array(self._is_added, dtype=np.bool_)

    @property
    def label_matrix(self) -> sparse.csr_array:
        """True where a document has a label, boolean (N, provisional labels)."""
        offsets = np.array(self._label_offsets, np.int64)
        ids = np.array(self._label_ids, np.int32)
        shape = (len(offsets) - 1, len(self._provisional_ids))
        return sparse.csr_array((np.ones(len(ids), np.bool_), ids, offsets), shape)

    def unjudged_matrix(self, label_ids: NDArray[np.int64]) -> sparse.csr_array | None:
        """Mark labels that nobody judged for a document, boolean (N, selected labels); None if all were judged.

        Args:
            label_ids: provisional ids of the selected labels.
        """
        if not self._partial_rows:
            return None
        documents = len(self._label_offsets) - 1
        offsets = np.array(self._rejected_offsets, np.int64)
        rejected_ids = np.array(self._rejected_ids, np.int32)
        shape = (len(self._partial_rows), len(self._provisional_ids))
        rejected_RL = sparse.csr_array(
            (np.ones(len(rejected_ids), np.bool_), rejected_ids, offsets), shape
        )
        partial_rows = np.array(self._partial_rows, np.int64)
        judged_RL = sparse.csr_array(self.label_matrix[partial_rows] + rejected_RL)[
            :, label_ids
        ]
        pointers = np.zeros(documents + 1, np.int64)
        columns: list[NDArray[np.int32]] = []
        for place, row in enumerate(partial_rows):
            judged = judged_RL.indices[
                judged_RL.indptr[place] : judged_RL.indptr[place + 1]
            ]
            unjudged = np.setdiff1d(np.arange(len(label_ids), dtype=np.int32), judged)
            columns.append(unjudged)
            pointers[row + 1] = len(unjudged)
        ids = np.concatenate(columns)
        shape = (documents, len(label_ids))
        return sparse.csr_array(
            (np.ones(len(ids), np.bool_), ids, np.cumsum(pointers)), shape
        )

    def pieces(self, rows: NDArray[np.int64]) -> list[Piece]:
        """Find where sorted `rows` are: files and the rows inside each."""
        starts = np.cumsum([0, *self._file_rows])
        cuts = np.searchsorted(rows, starts)
        pieces: list[Piece] = []
        for number, path in enumerate(self.files):
            rows_inside = rows[cuts[number] : cuts[number + 1]] - starts[number]
            if len(rows_inside):
                pieces.append((str(path), rows_inside))
        return pieces

    def texts(self, rows: NDArray[np.int64]) -> Iterator[str]:
        """Yield texts of sorted `rows`, for training a tokenizer."""
        for path, rows_inside in self.pieces(rows):
            texts = read_batch(Path(path)).column("text")
            yield from texts.take(pa.array(rows_inside)).to_pylist()


class _Earlier:
    """The documents that a spool has before the first added one, by their texts; those of dev and test are left out.

    Args:
        spool: the spool at that time.
    """

    def __init__(self, spool: Spool) -> None:
        rows = np.flatnonzero(spool.splits <= SPLITS.index("train"))
        hashes = spool.hashes[rows]
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = rows[order]
        self._matrix = spool.label_matrix
        self._labels = spool.labels
        self._partial_rows = spool.partial_rows

    def rows_of(self, text: int) -> list[int]:
        """List the documents with a text, by its hash."""
        hash_ = np.uint64(text)
        first = np.searchsorted(self._hashes, hash_, "left")
        last = np.searchsorted(self._hashes, hash_, "right")
        return self._rows[first:last].tolist()

    def labels_of(self, row: int) -> list[str]:
        """List the labels of a document."""
        ids = self._matrix.indices[
            self._matrix.indptr[row] : self._matrix.indptr[row + 1]
        ]
        return [self._labels[label_id] for label_id in ids]

    def are_whole(self, rows: Iterable[int]) -> bool:
        """Whether every label of these documents was judged."""
        return self._partial_rows.isdisjoint(rows)


class _Spellings(dict[str, str]):
    """The label that a label stands for: the same, or the one of the label file that it means.

    Without regard to case, it is that of the label file or the first.

    Args:
        info: what the label file says.
        fold: whether case does not matter.
    """

    def __init__(self, info: LabelInfo, *, fold: bool) -> None:
        self._info = info
        self._fold = fold
        self._by_folded = (
            {label.casefold(): label for label in info.names} if fold else {}
        )
        if fold:
            for spelling, label in info.written.items():
                self._by_folded.setdefault(spelling.casefold(), label)

    def __missing__(self, label: str) -> str:
        spelling = self._info.meant_by(label_of(label) or "")
        if self._fold:
            spelling = self._by_folded.setdefault(spelling.casefold(), spelling)
        self[label] = spelling
        return spelling


def _checked(
    row: Document, spellings: _Spellings, info: LabelInfo, config: DataConfig
) -> Document | Rejected:
    """Spell the labels of a document as the corpus does, or say why the row is no document."""
    labels = dict.fromkeys(spellings[label] for label in row.labels)
    row = replace(row, labels=tuple(label for label in labels if label))
    if row.rejected_labels is not None:
        rejected = dict.fromkeys(spellings[label] for label in row.rejected_labels)
        row = replace(
            row,
            rejected_labels=tuple(
                label for label in rejected if label and label not in labels
            ),
        )
    where = f"document {quoted_cell(row.doc_id)}"
    if not row.text.strip():
        return Rejected(where, "no text")
    try:
        check_length(row.text, config.longest_document)
    except ValueError as problem:
        return Rejected(where, str(problem))
    if not row.labels and config.without_labels != "drop":
        if config.one_label:
            return Rejected(
                where,
                "no labels, but data.task is single_label (without_labels: drop leaves it out)",
            )
        if config.without_labels == "error":
            return Rejected(
                where,
                "no labels, but data.without_labels is error (without_labels: drop leaves it out)",
            )
    if config.one_label and len(row.labels) > 1:
        return Rejected(
            where, f"{len(row.labels)} labels, but data.task is single_label"
        )
    unknown = (
        [label for label in row.labels if label not in info.names]
        if info.closed
        else []
    )
    if unknown:
        near = near_pairs(unknown[:1], info.names)
        hint = "".join(f"; did you mean {quoted_cell(similar)}?" for similar, _ in near)
        label = quoted_cell(unknown[0])
        return Rejected(
            where,
            f"label {label} is not in the label file (closed: false admits it){hint}",
        )
    return row
