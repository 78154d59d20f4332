"""Documents that wait for annotation, in a useful order."""

import itertools
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from xmtc.data.labels import LabelTable
from xmtc.data.readers import Rejected
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.data.readers.columns import DocumentColumns
from xmtc.desk.config import Order
from xmtc.errors import DataError
from xmtc.predict.predictions import Prediction
from xmtc.score.inputs import (
    InputFile,
    TextColumns,
    input_files,
    read_rows,
    text_columns,
)

MAX_DOCUMENTS = 10_000
_LEASE_S = 600.0
TOP_K = 20

RankOf = Callable[[Sequence[Prediction]], float]


class Worklist:
    """Hands out documents, lowest rank first, each to one person at a time.

    Args:
        documents: texts by identifier.
        annotated: identifiers of annotated documents.
        clock: returns the time in seconds; for tests.
    """

    def __init__(
        self,
        documents: dict[str, str],
        annotated: Collection[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._texts = {
            doc_id: text
            for doc_id, text in documents.items()
            if doc_id not in annotated
        }
        self._clock = clock
        self._ranks: dict[str, tuple[float, int]] = {}
        self._order = (
            itertools.count()
        )  # of equal ranks, the earlier document comes first
        self._leases: dict[str, float] = {}
        self.waiting = len(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def unranked(self) -> list[tuple[str, str]]:
        """List identifiers and texts of documents without a rank, in the order of the file."""
        return list(self._texts.items())

    def rank(self, doc_id: str, rank: float) -> None:
        """Insert a document by its rank, after others with the same rank."""
        self.waiting -= 1
        self._ranks[doc_id] = rank, next(self._order)

    def next(self, skip: str | None = None) -> tuple[str, str] | None:
        """Hand out the first free document. It is free again after ten minutes, unless it is annotated.

        Args:
            skip: a document to move to the end of the list.
        """
        if skip in self._ranks:
            self._leases.pop(skip, None)
            self._ranks[skip] = np.inf, next(self._order)
        for doc_id in sorted(self._ranks, key=self._ranks.__getitem__):
            if doc_id in self._texts and self._leases.get(doc_id, 0.0) <= self._clock():
                self._leases[doc_id] = self._clock() + _LEASE_S
                return doc_id, self._texts[doc_id]
        return None

    def leave_out(self, doc_id: str) -> None:
        """Remove a document that the model cannot read, or that is released."""
        self.waiting -= 1
        self.done(doc_id)

    def done(self, doc_id: str) -> None:
        """Remove an annotated document."""
        self._texts.pop(doc_id, None)
        self._leases.pop(doc_id, None)


def read_documents(
    path: Path,
    trained_on: DocumentColumns | None = None,
    longest: int = LONGEST_DOCUMENT,
) -> dict[str, str]:
    """Read identifiers and texts from a file or folder with the columns of training, or `text` and, optionally, `id`.

    Args:
        path: the file or folder.
        trained_on: the columns of training.
        longest: most characters of a document.

    Raises:
        DataError: the file cannot be read, has no documents or too many, or one that is too long.
    """
    documents: dict[str, str] = {}
    files = input_files([str(path)])
    for row in itertools.chain.from_iterable(
        read_rows(file, _columns(file, trained_on, longest)) for file in files
    ):
        if isinstance(row, Rejected):
            raise DataError(f"--queue {row.where}: {row.reason}")
        if row.doc_id in documents:
            raise DataError(
                f"--queue {path}: two documents have the id {row.doc_id!r}; ids must be unique"
            )
        documents[row.doc_id] = row.text
        if len(documents) > MAX_DOCUMENTS:
            raise DataError(
                f"--queue {path}: more than {MAX_DOCUMENTS:,} documents; give a sample of them"
            )
    if not documents:
        raise DataError(f"--queue {path}: no documents")
    return documents


def _columns(
    file: InputFile, trained_on: DocumentColumns | None, longest: int
) -> TextColumns:
    """Choose the columns: the first that the first row has; at last `text` alone."""
    ids = ((trained_on and trained_on.id) or "id", "id", None)
    tried = [
        text_columns(text, doc_id, trained_on, longest)
        for text in (None, ["text"])
        for doc_id in ids
    ]
    for columns in tried[:-1]:
        with suppress(DataError):  # a table without that column
            if not isinstance(next(iter(read_rows(file, columns)), None), Rejected):
                return columns
    return tried[-1]


def order_by(order: Order, labels: LabelTable) -> RankOf:
    """Make the function that ranks a document by its best labels; low ranks come first."""
    if order == "rare":
        return lambda best: rarest(best, labels)
    return expected_correct if order == "uncertain" else (lambda best: 0.0)


def expected_correct(best: Sequence[Prediction]) -> float:
    """Negate the expected number of labels that a person would change, if the probabilities are exact."""
    return -sum(1 - one.score if one.predicted else one.score for one in best)


def rarest(best: Sequence[Prediction], labels: LabelTable) -> float:
    """Return the training documents of the rarest predicted label, or of the best label if none is predicted."""
    chosen = [one for one in best if one.predicted] or best[:1]
    return float(
        min(
            (labels.train_counts[labels.index(one.label)] for one in chosen),
            default=np.inf,
        )
    )
