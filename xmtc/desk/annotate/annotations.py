"""Annotations: documents with the labels that a person gave them. The file can be used as training data.

Documents of several fields, or with categories, have the columns of training instead of `text`. Beside `id`, `text` and
`labels`, a line says which `model` (name, version) it is about, `by` whom and when (`at`). If
the person saw suggestions, it has them (`suggested`: label, name, train_count, score, predicted, words), what came of
them (`accepted`, `rejected`, `added`) and the `seconds` taken. Predicted labels that were not accepted are
rejected. A second person's annotation of a document has an id of its own (`ID~2`), and the document's as `document`.
"""

import errno
import io
import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_cell
from xmtc.data.readers.cells import absent, label_of
from xmtc.data.readers.columns import DocumentColumns
from xmtc.errors import ConfigError, DataError
from xmtc.files import parse_json, read_file, reading, writing

_KEYS = {"id", "labels", "document", "model", "by", "at", "suggested", "accepted", "rejected", "added", "seconds"}


class Annotations:
    """A file to which each annotation adds one line. Lines are written atomically and flushed to the disk.

    Args:
        path: the file; it may exist.
        labels: labels that annotations may use.
        one_label: whether every document has exactly one label.
        columns: columns of a document.

    Raises:
        StorageError: the file cannot be written.
        DataError: the file is not an annotations file.
        ConfigError: a column has the name of another key.
    """

    def __init__(
        self, path: Path, labels: LabelTable, *, one_label: bool = False, columns: DocumentColumns | None = None
    ) -> None:
        self.path, self.labels, self.one_label, self.columns = path, labels, one_label, columns or DocumentColumns()
        if taken := _KEYS & {*self.columns.text, *self.columns.categories}:
            raise ConfigError(f"--annotations: {min(taken)!r} is a key of annotations: rename this column in training")
        self._lock = threading.Lock()
        self._known = Counter((document_of(line), line.get("by")) for line in annotation_lines(path))
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open().close()

    def __len__(self) -> int:
        return self._known.total()

    @property
    def ids(self) -> set[str]:
        """Identifiers of the annotated documents."""
        return {doc_id for doc_id, _ in self._known}

    def save(
        self,
        documents: Sequence[tuple[str | None, str, Sequence[str]]],
        *,
        model: Mapping[str, str] | None = None,
        by: str | None = None,
        review: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Append either all documents or none.

        Args:
            documents: identifier or None, text, and labels of each.
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
        for row, (doc_id, text, labels) in enumerate(documents):
            for what, value in (("text", text), ("id", doc_id or "given")):
                if absent(value):
                    raise DataError(f"document {row}: training reads the {what} {value.strip()!r} as none; change it")
            if self.one_label and len(set(map(label_of, labels))) != 1:
                raise DataError(f"document {row}: {len(set(labels))} labels; this model's documents have exactly one")
            shown = [one["label"] for one in review["suggested"]] + review["rejected"] if review else []
            for label in (*labels, *shown):
                if label not in self.labels:
                    message = f"document {row}: {self.labels.unknown(label)}"
                    raise DataError(f"{message}: search labels with GET /labels?query=")
        ids = [doc_id or f"annotation-{uuid4().hex[:12]}" for doc_id, _, _ in documents]
        common = {"model": model, "by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")}
        with self._lock:
            saved, lines = [], []
            for doc_id, (_, text, labels) in zip(ids, documents, strict=True):
                people = [one for known, one in self._known if known == doc_id]
                if by in people or (people and None in (by, *people)) or ids.count(doc_id) > 1:
                    raise DataError(f"id {quoted_cell(doc_id)}: this document is annotated already; choose another id")
                saved.append(f"{doc_id}~{len(people) + 1}" if people else doc_id)
                given: list[Any] = list(dict.fromkeys(map(label_of, labels)))
                line = {"id": saved[-1], **self.columns.cells(text), "labels": given}
                line |= ({"document": doc_id} if people else {}) | common | self._outcome(given, review)
                lines.append(json.dumps(line, ensure_ascii=False))
            self._append("".join(f"{line}\n" for line in lines).encode())
            self._known.update((doc_id, by) for doc_id in ids)
        return saved

    def _outcome(self, labels: Sequence[str], review: Mapping[str, Any] | None) -> dict[str, Any]:
        """Say what became of the suggestions."""
        if review is None:
            return {}
        suggested = [one | self._about(one["label"]) for one in review["suggested"]]
        refused = {label_of(label) for label in review["rejected"]}
        offered = {one["label"]: one["predicted"] or one["label"] in refused for one in suggested}
        return {
            "suggested": suggested,
            "accepted": [label for label in offered if label in labels],
            "rejected": [label for label, refused in offered.items() if refused and label not in labels],
            "added": [self._about(label) for label in labels if label not in offered],
            "seconds": review["seconds"],
        }

    def _about(self, label: str) -> dict[str, Any]:
        table, at = self.labels, self.labels.index(label)
        return {"label": table.labels[at], "name": table.names[at], "train_count": int(table.train_counts[at])}

    def _open(self) -> io.FileIO:
        """Open the file to append. It may have become a pipe or device, which is refused and not waited for."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = io.FileIO(self.path, "ab", opener=lambda path, _: os.open(path, flags, 0o666))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EINVAL, "a pipe or device, not a regular file", str(self.path))
        return file

    def _append(self, data: bytes) -> None:
        """Write all data, or leave the file unchanged."""
        with writing(self.path), self._open() as file:
            before = file.seek(0, os.SEEK_END)
            if before and not _ends_a_line(self.path):  # an editor may have left it so
                data = b"\n" + data
            try:
                if file.write(data) != len(data):
                    raise OSError(f"only a part of {len(data)} bytes was written")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


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
        lines = enumerate(read_file(path).decode("utf-8-sig").split("\n"), start=1)
    for number, line in (one for one in lines if one[1].strip()):
        with reading(f"{path}: line {number}", fix="give another file", what="not an annotation"):
            row = parse_json(line)
        names = (row.get("id"), row.get("document") or "", row.get("by") or "") if isinstance(row, dict) else (None,)
        if not all(isinstance(name, str) for name in names):
            raise DataError(f"{path}: line {number}: not an annotation; give another file")
        yield row
