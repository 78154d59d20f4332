"""Annotations: documents with the labels that a person gave them. The file can be used as training data.

Documents of several fields, or with categories, have the columns of training instead of `text`. Beside `id`, `text` and
`labels`, a line says which `model` (name, version) it is about, `by` whom and when (`at`). If
the person saw suggestions, it has them (`suggested`: label, name, train_count, score, predicted, words), what came of
them (`accepted`, `rejected`, `added`) and the `seconds` taken. Labels in neither `labels` nor `rejected` were not
judged; they were if `rejected` is null. A model of one label per document is the exception: the label that is chosen
rejects the others. A second person's annotation of a document has an id of its own (`ID~2`), and the document's as
`document`. A document that comes without an identifier gets one from its text, so that the same text is the same
document.
"""

import errno
import hashlib
import io
import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_cell
from xmtc.data.readers.cells import absent, label_of
from xmtc.data.readers.columns import DocumentColumns
from xmtc.desk.annotate.writer import (
    WriterLock,
    is_cut_off,
    last_line_of,
    set_cut_line_aside,
)
from xmtc.errors import ConfigError, DataError
from xmtc.files import parse_json, read_file, reading, writing

KEYS = frozenset(
    (
        "id",
        "labels",
        "document",
        "model",
        "by",
        "at",
        "suggested",
        "accepted",
        "rejected",
        "added",
        "seconds",
    )
)
"""Keys of a line beside the columns of the document."""


@dataclass(frozen=True)
class AnnotatedDocument:
    """A document with the labels that a person gave it.

    Attributes:
        id: its identifier; None: it gets one.
        text: its text, or the texts of its fields, joined.
        labels: its labels.
        complete: whether no other label fits it; if not, labels that nobody rejected were not judged.
    """

    id: str | None
    text: str
    labels: Sequence[str]
    complete: bool = True


class Annotations:
    """A file to which each annotation adds one line. Lines are written atomically and flushed to the disk.

    One process writes into the file at a time, until it is closed. A last line that was cut off, because the machine
    died, is set aside.

    Args:
        path: the file; it may exist.
        labels: labels that annotations may use.
        one_label: whether every document has exactly one label.
        columns: columns of a document.

    Raises:
        StorageError: the file cannot be written, or another process writes into it.
        DataError: the file is not an annotations file.
        ConfigError: a column has the name of another key.
    """

    def __init__(
        self,
        path: Path,
        labels: LabelTable,
        *,
        one_label: bool = False,
        columns: DocumentColumns | None = None,
    ) -> None:
        self.path = path
        self.labels = labels
        self.one_label = one_label
        self.columns = columns or DocumentColumns()
        clashing_columns = KEYS & {*self.columns.text, *self.columns.categories}
        if clashing_columns:
            name = min(clashing_columns)
            raise ConfigError(
                f"--annotations: {name!r} is a key of annotations: rename this column in training"
            )
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = WriterLock(path)
        self._saving = threading.Lock()
        set_cut_line_aside(path)
        self._annotators = Counter(
            (document_of(line), line.get("by")) for line in annotation_lines(path)
        )
        with writing(path):
            self._open().close()

    def __len__(self) -> int:
        return self._annotators.total()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes write into the file."""
        self._writer.release()

    @property
    def ids(self) -> set[str]:
        """Identifiers of the annotated documents."""
        return {doc_id for doc_id, _ in self._annotators}

    def save(
        self,
        documents: Sequence[AnnotatedDocument],
        *,
        model: Mapping[str, str] | None = None,
        by: str | None = None,
        review: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Append either all documents or none.

        Args:
            documents: documents with their labels.
            model: name and version of the model.
            by: name of the person, if it is known.
            review: of one document, `suggested`, `rejected` and `seconds`.

        Returns:
            The identifiers.

        Raises:
            DataError: the model has no such label, a document does not have exactly one label where it must, training
                would read its text or identifier as none, or the person, or somebody unknown, has annotated a document
                with the same identifier already.
            StorageError: the file cannot be written.
        """
        for row, document in enumerate(documents):
            self._check(row, document, review)
        document_ids = [
            document.id or _id_of_text(document.text) for document in documents
        ]
        common = {
            "model": model,
            "by": by,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        with self._saving:
            line_ids = [
                self._line_id(row, document, doc_id, by, document_ids)
                for row, (document, doc_id) in enumerate(
                    zip(documents, document_ids, strict=True)
                )
            ]
            lines = []
            for line_id, doc_id, document in zip(
                line_ids, document_ids, documents, strict=True
            ):
                labels = list(dict.fromkeys(map(label_of, document.labels)))
                line = {
                    "id": line_id,
                    **self.columns.cells(document.text),
                    "labels": labels,
                }
                if line_id != doc_id:
                    line["document"] = doc_id
                line |= common | self._outcome(document, labels, review)
                lines.append(json.dumps(line, ensure_ascii=False))
            self._append("".join(f"{line}\n" for line in lines).encode())
            self._annotators.update((doc_id, by) for doc_id in document_ids)
        return line_ids

    def _check(
        self, row: int, document: AnnotatedDocument, review: Mapping[str, Any] | None
    ) -> None:
        """Refuse a document that training could not read, or a label that the model does not have."""
        for what, value in (("text", document.text), ("id", document.id)):
            if value and absent(value):
                raise DataError(
                    f"document {row}: training reads the {what} {value.strip()!r} as none; change it"
                )
        if absent(document.text):
            raise DataError(
                f"document {row}: the text is empty; leave the document out"
            )
        number = len(set(map(label_of, document.labels)))
        if self.one_label and number != 1:
            raise DataError(
                f"document {row}: {number} labels; this model's documents have exactly one"
            )
        suggested = (
            []
            if review is None
            else [suggestion["label"] for suggestion in review["suggested"]]
        )
        rejected = [] if review is None else review["rejected"]
        for label in (*document.labels, *suggested, *rejected):
            if label not in self.labels:
                message = f"document {row}: {self.labels.unknown(label)}"
                raise DataError(f"{message}: search labels with GET /labels?query=")
        if document.labels or rejected:
            return
        if review is not None:
            raise DataError(
                f"document {row}: no label is accepted or rejected, so there is nothing to save; judge at least one"
            )
        if not document.complete:
            raise DataError(
                f"document {row}: no label is given, so that nothing is judged; give labels, or complete: true if no "
                "label fits"
            )

    def _line_id(
        self,
        row: int,
        document: AnnotatedDocument,
        doc_id: str,
        by: str | None,
        document_ids: Sequence[str],
    ) -> str:
        """Return the identifier of the line: that of the document, with a number for its second person and more."""
        people = [
            person
            for annotated_id, person in self._annotators
            if annotated_id == doc_id
        ]
        is_unclear = bool(people) and (
            by is None or None in people
        )  # it may be the same person
        if by in people or is_unclear or document_ids.count(doc_id) > 1:
            if document.id is None:
                raise DataError(
                    f"document {row}: its text is annotated already; leave it out, or give it an id of its own"
                )
            raise DataError(
                f"id {quoted_cell(doc_id)}: this document is annotated already; choose another id"
            )
        return f"{doc_id}~{len(people) + 1}" if people else doc_id

    def _outcome(
        self,
        document: AnnotatedDocument,
        labels: Sequence[str | None],
        review: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Say what was judged, and what became of the suggestions."""
        if review is None:
            return {"rejected": None if document.complete or self.one_label else []}
        suggested = [
            suggestion | self._about(suggestion["label"])
            for suggestion in review["suggested"]
        ]
        seen = list(dict.fromkeys(suggestion["label"] for suggestion in suggested))
        if self.one_label:
            rejected = [label for label in seen if label not in labels]
        else:
            named = dict.fromkeys(map(label_of, review["rejected"]))
            rejected = [label for label in named if label not in labels]
        return {
            "suggested": suggested,
            "accepted": [label for label in seen if label in labels],
            "rejected": rejected,
            "added": [self._about(str(label)) for label in labels if label not in seen],
            "seconds": review["seconds"],
        }

    def _about(self, label: str) -> dict[str, Any]:
        label_id = self.labels.index(label)
        return {
            "label": self.labels.labels[label_id],
            "name": self.labels.names[label_id],
            "train_count": int(self.labels.train_counts[label_id]),
        }

    def _open(self) -> io.FileIO:
        """Open the file to append. It may have become a pipe or device, which is refused and not waited for."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = io.FileIO(
            self.path, "ab", opener=lambda path, _: os.open(path, flags, 0o666)
        )
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(
                errno.EINVAL, "a pipe or device, not a regular file", str(self.path)
            )
        return file

    def _append(self, data: bytes) -> None:
        """Write all data, or leave the file unchanged."""
        with writing(self.path), self._open() as file:
            size_before = file.seek(0, os.SEEK_END)
            if last_line_of(self.path):  # an editor may have left it without an end
                data = b"\n" + data
            try:
                if file.write(data) != len(data):
                    raise OSError(f"only a part of {len(data)} bytes was written")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size_before)
                raise


def _id_of_text(text: str) -> str:
    """Make the identifier of a document that has none: always the same one for a text."""
    return f"annotation-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def document_of(line: Mapping[str, Any]) -> str:
    """Return the identifier of the annotated document."""
    return line.get("document") or line["id"]


def annotation_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the existing annotations.

    Raises:
        DataError: a line is not an annotation.
    """
    if not path.exists():
        return
    with reading(path, DataError, "give another file"):
        content = read_file(path)
        if is_cut_off(content.rpartition(b"\n")[2]):
            raise ValueError(
                "the last line is cut off; xmtc serve --annotations sets it aside"
            )
        lines = content.decode("utf-8-sig").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        with reading(
            f"{path}: line {number}", fix="give another file", what="not an annotation"
        ):
            row = parse_json(line)
        if not _is_annotation(row):
            raise DataError(
                f"{path}: line {number}: not an annotation; give another file"
            )
        yield row


def _is_annotation(row: object) -> bool:
    """Whether a line is an object whose names are texts; other keys are checked by who needs them."""
    if not isinstance(row, dict):
        return False
    names = (row.get("id"), row.get("document") or "", row.get("by") or "")
    return all(isinstance(name, str) for name in names)
