"""Tokenised documents from which batches are made: from a corpus, or from texts in memory.

N documents.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Documents(Protocol):
    """Tokenised documents, by number. `xmtc.data.corpus.Split` implements it."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Content tokens of each document, int32 (N,)."""
        ...

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Return token ids of a document, without special tokens."""
        ...

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids of a document; empty if they are unknown."""
        ...

    def unjudged_ids(self, document: int) -> NDArray[np.int32]:
        """Label ids that nobody judged for a document; usually none."""
        ...


class UnlabelledDocuments:
    """Documents in memory without known labels. Implements `Documents`.

    Attributes:
        ids_N: content tokens of each document, int32.
        lengths: content tokens of each document, int32 (N,).
    """

    def __init__(self, ids_N: Sequence[NDArray[np.int32]]) -> None:
        self.ids_N = ids_N
        self.lengths = np.array([len(ids) for ids in ids_N], np.int32)

    def __len__(self) -> int:
        return len(self.ids_N)

    def tokens(self, document: int) -> NDArray[np.int32]:
        """Content tokens of a document."""
        return self.ids_N[document]

    def label_ids(self, document: int) -> NDArray[np.int32]:
        """No labels are known."""
        del document
        return np.empty(0, np.int32)

    def unjudged_ids(self, document: int) -> NDArray[np.int32]:
        """Nothing is learned from such documents."""
        del document
        return np.empty(0, np.int32)
