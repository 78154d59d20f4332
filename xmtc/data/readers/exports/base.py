"""What a format of other tools says about itself, and the documents that it has.

To add one, write a module with a class of `Export`, and put the class into `EXPORTS` of this package.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.endings import COMPRESSIONS, ending_of
from xmtc.data.readers.files import open_text
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.table import Row, TableFormat
from xmtc.errors import DataError

_HEAD = 1 << 14
"""Characters of a file by which its format is recognised."""
_OBJECTS = 5
"""Rows of JSON by which its format is recognised."""
_BINARY = frozenset({".parquet", ".arrow", ".feather"})

LABELS = "labels"
"""Column of an export with the labels of a document."""
OF_QUESTION = "labels."
"""How the columns begin with the labels that answer one of several questions, such as `labels.topic`."""
REJECTED = "rejected"
"""Column with the labels that were judged not to fit it, if not all others were judged."""
ID = "id"
"""Column with its identifier."""


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, or the names in a folder.

    Attributes:
        path: the file or folder.
        head: the first characters; empty for a folder, and for what is no text.
        objects: the first rows, if it is JSON.
        names: names of the files in the folder.
    """

    path: Path
    head: str = ""
    objects: Sequence[Mapping[str, Any]] = ()
    names: Sequence[str] = ()

    @classmethod
    def of(cls, path: Path) -> "Sample":
        """Read the beginning of a file."""
        if path.is_dir():
            return cls(
                path,
                names=sorted(child.name for child in path.iterdir() if child.is_file()),
            )
        if ending_of(path) in _BINARY:
            return cls(path)
        try:
            with open_text(path) as text:
                head = text.read(_HEAD)
            objects = _first_objects(path) if head.lstrip()[:1] in ("{", "[") else []
        except DataError:  # whoever reads the file says why it cannot be read
            return cls(path)
        return cls(path, head, objects)

    def lines(self, least: int = 1) -> list[str]:
        """Return the lines of the head that are whole and not blank; none if there are fewer than `least`."""
        lines = [line for line in self.head.splitlines() if line.strip()]
        if len(self.head) == _HEAD:
            lines = lines[:-1]
        return lines if len(lines) >= least else []


def _first_objects(path: Path) -> list[Mapping[str, Any]]:
    objects: list[Mapping[str, Any]] = []
    for row in JsonLines().rows(path, None):
        if isinstance(row, Row):
            objects.append(row.cells)
        if len(objects) == _OBJECTS:
            break
    return objects


class Export(TableFormat):
    """A format of files that another tool writes.

    Its rows have the columns of the tool's documents, and besides `labels`, `rejected` and `id` where it knows them.

    Attributes:
        what: what a file is, for messages.
    """

    what: ClassVar[str]

    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        """Whether a file has this format."""
        raise NotImplementedError

    @override
    def count(self, path: Path) -> int | None:
        """Nobody knows before the file is read."""
        return None


class JsonExport(Export):
    """An export whose documents are JSON objects, on a line each or in an array."""

    @classmethod
    def is_document(cls, item: Mapping[str, Any]) -> bool:
        """Whether an object is a document of this tool."""
        raise NotImplementedError

    def document(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the cells of a document.

        Raises:
            ValueError: it is none, and the message says why.
            UnjudgedError: nobody has judged it.
        """
        raise NotImplementedError

    @override
    @classmethod
    def recognises(cls, sample: Sample) -> bool:
        return bool(sample.objects) and all(
            cls.is_document(item) for item in sample.objects
        )

    @override
    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        for row in JsonLines().rows(path, None, longest):
            yield row if isinstance(row, Rejected) else self._converted(row)

    def _converted(self, row: Row) -> Row | Rejected:
        try:
            return Row(self.document(row.cells), row.where, row.number)
        except UnjudgedError as problem:
            return Rejected(row.where, str(problem), unjudged=True)
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            reason = (
                str(problem)
                if isinstance(problem, ValueError)
                else f"not as {self.what} writes it"
            )
            return Rejected(row.where, reason)


def answers_to(labels_by_question: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the labels that answer each question about a document, and those of all together."""
    every: dict[str, None] = {}
    cells: dict[str, Any] = {}
    for question, labels in labels_by_question.items():
        every.update(dict.fromkeys(labels))
        if question:
            cells[f"{OF_QUESTION}{question}"] = list(dict.fromkeys(labels))
    return cells | {LABELS: list(every)}


class UnjudgedError(Exception):
    """Raised for a document that nobody has judged, or whose labels were refused."""


def stem_of(path: Path) -> str:
    """Return a file's name without its endings."""
    name = path.name
    while Path(name).suffix.lower() in COMPRESSIONS:
        name = Path(name).stem
    return Path(name).stem
