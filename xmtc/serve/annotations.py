"""Annotations: documents with the labels that a person gave them. The file can be used as training data."""

import errno
import io
import json
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_cell
from xmtc.data.readers.cells import label_of
from xmtc.errors import DataError
from xmtc.files import read_file, reading, writing


class Annotations:
    """A file to which each annotation adds one line. Lines are written atomically and flushed to the disk.

    Args:
        path: the file; it may exist.
        labels: labels that annotations may use.
        one_label: whether every document has exactly one label.

    Raises:
        StorageError: the file cannot be written.
        DataError: the file is not an annotations file.
    """

    def __init__(self, path: Path, labels: LabelTable, *, one_label: bool = False) -> None:
        self.path, self.labels, self.one_label = path, labels, one_label
        self._lock = threading.Lock()
        self.ids = {line["id"] for line in _lines(path)}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as file:
                if file.seek(0, os.SEEK_END) and not _ends_a_line(path):
                    file.write(b"\n")

    def save(self, documents: Sequence[tuple[str | None, str, Sequence[str]]]) -> list[str]:
        """Append either all documents or none.

        Args:
            documents: identifier or None, text, and labels of each.

        Returns:
            The identifiers.

        Raises:
            DataError: the model has no such label, a document does not have exactly one label where it must, or a
                document with the same identifier is annotated already.
            StorageError: the file cannot be written.
        """
        for row, (_, _, labels) in enumerate(documents):
            if self.one_label and len(set(map(label_of, labels))) != 1:
                raise DataError(f"document {row}: {len(set(labels))} labels; this model's documents have exactly one")
            for label in labels:
                if label not in self.labels:
                    message = f"document {row}: {self.labels.unknown(label)}"
                    raise DataError(f"{message}: search labels with GET /labels?query=")
        ids = [doc_id or f"annotation-{uuid4().hex[:12]}" for doc_id, _, _ in documents]
        lines = [
            json.dumps(
                {"id": doc_id, "text": text, "labels": list(dict.fromkeys(map(label_of, labels)))}, ensure_ascii=False
            )
            for doc_id, (_, text, labels) in zip(ids, documents, strict=True)
        ]
        with self._lock:
            if known := [doc_id for doc_id in ids if doc_id in self.ids]:
                raise DataError(f"id {quoted_cell(known[0])}: this document is annotated already; choose another id")
            self._append("".join(f"{line}\n" for line in lines).encode())
            self.ids.update(ids)
        return ids

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


def _lines(path: Path) -> Iterator[dict[str, str]]:
    """Read the existing annotations."""
    if not path.exists():
        return
    with reading(path, DataError, "choose another --annotations"):
        lines = read_file(path).decode().split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            raise DataError(f"{path}: line {number}: not an annotation; choose another --annotations file")
        yield row
