"""Small splits to rank, and their counts by brute force."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
from scipy import sparse


class RandomSplit:
    """Documents of Zipf-like tokens, some empty; label 0 puts token 5 into nine of ten of its documents."""

    def __init__(self, documents: int, vocab_size: int, labels: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.vocab_size, self.labels = vocab_size, labels
        weights = 1 / np.arange(1, vocab_size + 1)
        self.documents = [
            rng.choice(
                vocab_size, rng.integers(0, 40), p=weights / weights.sum()
            ).tolist()
            for _ in range(documents)
        ]
        label_weights = 1 / np.arange(1, labels + 1)
        self.label_ids = [
            np.unique(
                rng.choice(
                    labels, rng.integers(0, 4), p=label_weights / label_weights.sum()
                )
            ).tolist()
            for _ in range(documents)
        ]
        for tokens, label_ids in zip(self.documents, self.label_ids, strict=True):
            tokens[:] = [token for token in tokens if token != 5]
            if (0 in label_ids) == (rng.random() < 0.9):
                tokens.append(5)

    @classmethod
    def of(
        cls,
        documents: list[list[int]],
        label_ids: list[list[int]],
        *,
        vocab_size: int,
        labels: int,
    ) -> "RandomSplit":
        """A split with given content."""
        split = cls.__new__(cls)
        split.documents, split.label_ids, split.vocab_size, split.labels = (
            documents,
            label_ids,
            vocab_size,
            labels,
        )
        return split

    def token_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of seven documents."""
        for first in range(0, len(self.documents), 7):
            block = self.documents[first : first + 7]
            yield (
                np.array(list(chain(*block)), np.int32),
                np.cumsum([0, *map(len, block)]),
            )

    def label_matrix(self) -> sparse.csr_array:
        """(N, L) bool."""
        indptr = np.cumsum([0, *map(len, self.label_ids)])
        indices = np.array(list(chain(*self.label_ids)), np.int32)
        return sparse.csr_array(
            (np.ones(len(indices), bool), indices, indptr),
            shape=(len(indptr) - 1, self.labels),
        )


def brute_force_counts(split: RandomSplit) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Presence (N, V), occurrences (N, V) and labels (N, L), dense."""
    occurrences = np.zeros((len(split.documents), split.vocab_size), np.int64)
    labels = np.zeros((len(split.documents), split.labels), np.int64)
    for row, (tokens, label_ids) in enumerate(
        zip(split.documents, split.label_ids, strict=True)
    ):
        np.add.at(occurrences[row], tokens, 1)
        labels[row, label_ids] = 1
    return (occurrences > 0).astype(np.int64), occurrences, labels


def contingency(documents: int, together: int, token: int, label: int) -> np.ndarray:
    """The 2×2 table of a pair: rows token present or not, columns label present or not."""
    return np.array(
        [
            [together, token - together],
            [label - together, documents - token - label + together],
        ]
    )
