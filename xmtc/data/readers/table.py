"""What all formats of files have in common that have a document in each row, and what each has to say."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from xmtc.data.readers.base import LONGEST_DOCUMENT, Rejected
from xmtc.data.readers.columns import ColumnsConfig


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes:
        cells: column -> value.
        where: file and line or row, for messages.
        number: number of the row in its file, which names documents that have no identifier.
    """

    cells: Mapping[str, Any]
    where: str
    number: int


class TableFormat(Protocol):
    """Reads the rows of one format of files.

    Attributes:
        identity: identity of the format and its settings; part of the source's fingerprint.
        counts_exactly: whether `count` does not estimate.
    """

    identity: str
    counts_exactly: bool = False

    def parts(self, path: Path) -> list[Path]:
        """List the files that a path stands for: itself, unless the format is one of folders."""
        return [path]

    def rows(
        self, path: Path, columns: ColumnsConfig | None, longest: int = LONGEST_DOCUMENT
    ) -> Iterator[Row | Rejected]:
        """Yield the rows of a file.

        Args:
            path: the file.
            columns: the columns that it must have; None reads all there are.
            longest: see `Reader.read`.

        Raises:
            DataError: the file cannot be read, or a column is missing.
        """
        ...

    def count(self, path: Path) -> int | None:
        """Count the rows of a file, or estimate them; None if that would take about as long as reading them.

        Raises:
            DataError: the file cannot be read.
        """
        ...
