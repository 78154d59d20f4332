"""Made-up documents of any number, with any number of labels and words, so that scale can be tried anywhere.

Labels follow Zipf's law. Every label has a few characteristic words. Some of them stand in its documents among filler
that follows Zipf's law too: labels can be learned, rare ones from few examples. Documents are made in blocks, each from
its own seed; nothing is held but a block.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.data.parallel import MapUnordered
from xmtc.data.readers.base import (
    LONGEST_DOCUMENT,
    SPLITS,
    Document,
    LabelInfo,
    Reader,
    ReaderSettings,
    Rejected,
)
from xmtc.track.progress import Progress

_BLOCK = 4096
_SPREAD = 2_654_435_761  # Knuth's multiplier: spreads neighbouring numbers over the vocabulary


@config
class SyntheticConfig(ReaderSettings):
    """Made-up documents with Zipf-distributed labels."""

    kind: Literal["synthetic"] = "synthetic"
    documents: Annotated[int, Field(ge=1)] = 10_000
    """Training documents."""
    dev_documents: Annotated[int, Field(ge=1)] = 1_000
    """Development documents."""
    test_documents: Annotated[int, Field(ge=0)] = 0
    """Test documents."""
    labels: Annotated[int, Field(ge=2)] = 1_000
    """Number of labels. Each has at least one training document."""
    vocabulary: Annotated[int, Field(ge=100)] = 30_000
    """Number of different words. Half are filler. The other half mark labels, which share words if there are too
    few."""
    labels_a_document: Annotated[float, Field(ge=1)] = 4.0
    """Mean number of labels drawn by Zipf's law, at least 1."""
    words_a_document: Annotated[int, Field(ge=1)] = 80
    """Number of filler words per document."""
    words_a_label: Annotated[int, Field(ge=1)] = 4
    """Number of words that mark a label; each of its documents contains about half of them."""
    exponent: Annotated[float, Field(gt=0)] = 1.0
    """Exponent of Zipf's law: the label of rank r is drawn with a probability proportional to r^−exponent."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of everything that is drawn."""

    @override
    def build(self) -> Reader:
        return SyntheticReader(self)


class SyntheticReader(Reader):
    """A `Reader`.

    Args:
        settings: the `data.source` section.
    """

    def __init__(self, settings: SyntheticConfig) -> None:
        self._settings = settings

    @override
    def fingerprint(self) -> str:
        """The settings are the content."""
        return repr(self._settings)

    @override
    def provides(self) -> frozenset[str]:
        return frozenset(
            split for split, count in zip(SPLITS, self._counts(), strict=True) if count
        )

    @override
    def read(
        self,
        map_unordered: MapUnordered,
        progress: Progress,
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        del map_unordered
        counts = self._counts()
        with progress.task("make documents", sum(counts), "documents") as task:
            for number, (split, count) in enumerate(zip(SPLITS, counts, strict=True)):
                for start in range(0, count, _BLOCK):
                    size = min(_BLOCK, count - start)
                    generator = np.random.default_rng(
                        (self._settings.seed, number, start)
                    )
                    yield from self._block(split, start, size, generator)
                    task.advance(size)

    @override
    def label_info(self) -> LabelInfo:
        """A label is its name."""
        return LabelInfo()

    def _counts(self) -> tuple[int, int, int]:
        return (
            self._settings.documents,
            self._settings.dev_documents,
            self._settings.test_documents,
        )

    def _block(
        self, split: str, start: int, size: int, generator: np.random.Generator
    ) -> Iterator[Document]:
        drawn_N = 1 + generator.poisson(self._settings.labels_a_document - 1, size)
        ranks = zipf(
            generator.random(int(drawn_N.sum())),
            self._settings.labels,
            self._settings.exponent,
        )
        fillers = zipf(
            generator.random((size, self._settings.words_a_document)),
            self._settings.vocabulary // 2,
            1.0,
        )
        own = np.split(ranks, np.cumsum(drawn_N)[:-1])
        for row in range(size):
            given = self._given(start + row) if split == "train" else []
            labels = np.unique([*own[row], *given]).astype(np.int64)
            words = np.concatenate([fillers[row], self._label_words(labels, generator)])
            text = " ".join(f"w{word}" for word in generator.permutation(words))
            yield Document(
                f"{split}-{start + row}",
                text,
                tuple(f"label-{label}" for label in labels),
                split,
            )

    def _given(self, document: int) -> range:
        """Return the labels that are assigned to this training document."""
        share = -(-self._settings.labels // self._settings.documents)
        return range(
            min(self._settings.labels, document * share),
            min(self._settings.labels, (document + 1) * share),
        )

    def _label_words(
        self, labels: NDArray[np.int64], generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw about half of the words of each label, at least one of each."""
        half = self._settings.vocabulary // 2
        number = labels[:, None] * self._settings.words_a_label + np.arange(
            self._settings.words_a_label
        )
        words = half + number * _SPREAD % (self._settings.vocabulary - half)
        chosen = generator.random(words.shape) < 0.5
        chosen[
            np.arange(len(labels)),
            generator.integers(self._settings.words_a_label, size=len(labels)),
        ] = True
        return words[chosen]


def zipf(
    uniform: NDArray[np.float64], count: int, exponent: float
) -> NDArray[np.int64]:
    """Draw numbers from 0 to `count` − 1 with probability about proportional to (number + 1)^−exponent.

    The continuous law's inverse, so that no table of probabilities is needed.

    Args:
        uniform: independent draws from [0, 1).
        count: how many numbers there are.
        exponent: positive.
    """
    top = count + 1
    if exponent == 1:
        values = top**uniform
    else:
        power = 1 - exponent
        values = (1 + uniform * (top**power - 1)) ** (1 / power)
    return np.minimum(values.astype(np.int64), count) - 1
