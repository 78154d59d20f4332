"""The interface of scorers: they score labels of a document, find the best, and explain the scores.

    training = Training(Features(words), labels_NL, names=None)
    scorer = settings.fit(training)                  # ScorerSettings, one member of the family
    scored = scorer.score(features)                  # Scored, of unseen documents
    best = scored.top(50)                            # SparsePredictions
    values_NK = scored.at(best.label_ids_NK)         # scores of these or other labels

Suffixes: N documents, L labels, K kept labels of a document, V terms, F fields, D width of pooled states.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.array_contract import Arrays
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.tensor_files import read_fields, write_fields
from xmtc.data.words import Vocabulary, Words
from xmtc.errors import ConfigError, DataError
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.regrouping import Regrouping

T = TypeVar("T")
BLOCK = 512
"""Default number of documents scored at once."""
CATEGORY = 0.5
"""Weight of a category beside words, unless the settings say another."""


@dataclass(frozen=True)
class Features:
    """The features of N documents that scorers read.

    Attributes:
        words: words of whole texts.
        states_ND: pooled states of the backbone; None if no scorer needs them.
    """

    words: Words
    states_ND: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.words)

    def states(self, scorer: str, width: int) -> NDArray[np.floating]:
        """Return the pooled states for a scorer that was fitted on states of this width.

        Raises:
            DataError: the documents have no states, or of another width.
        """
        if self.states_ND is None or self.states_ND.shape[1] != width:
            states = (
                "none"
                if self.states_ND is None
                else f"states of width {self.states_ND.shape[1]}"
            )
            raise DataError(
                f"{scorer} needs pooled states of width {width}, but was given {states}"
            )
        return self.states_ND

    def take(self, rows: NDArray[np.integer] | slice) -> "Features":
        """Select some of the documents."""
        return Features(
            self.words.take(rows),
            None if self.states_ND is None else self.states_ND[rows],
        )


@dataclass(frozen=True)
class LabelNames:
    """The names of labels, at least one of each.

    Attributes:
        texts: W names.
        owners_W: label of each, ascending.
        words_WV: float32, see `xmtc.scorers.label_text.label_words`.
        states_WD: float32, pooled states of the names; None if no scorer needs them.
    """

    texts: Sequence[str]
    owners_W: NDArray[np.int64]
    words_WV: Matrix
    states_WD: Floats | None = None

    def __len__(self) -> int:
        """Number of labels."""
        return int(self.owners_W.max(initial=-1)) + 1


@dataclass(frozen=True)
class Training:
    """The training data of scorers.

    Attributes:
        features: features of N documents.
        labels_NL: boolean.
        names: names of the labels; None if there are none.
        unjudged_NL: True where nobody judged whether a document has a label; None if everything was judged. Scorers
            whose settings say so leave these pairs out, others read them as absent.
    """

    features: Features
    labels_NL: Matrix
    names: LabelNames | None = None
    unjudged_NL: Matrix | None = None

    def __post_init__(self) -> None:
        sizes = {len(self.features), int(self.labels_NL.indptr.size - 1)}
        if len(sizes) > 1:
            raise DataError(
                f"features and labels are of {sorted(sizes)} documents; the numbers must be equal"
            )

    def __len__(self) -> int:
        return len(self.features)


class Scored(Protocol):
    """One scorer's scores of the labels of some documents."""

    def top(self, k: int) -> SparsePredictions:
        """Find the k best labels of each document, without labels that the scorer does not know."""
        ...

    def at(self, label_ids_NK: NDArray[np.int32]) -> NDArray[np.float32]:
        """Compute scores (N, K) of these labels; 0 if the id is -1 or the scorer does not know the label."""
        ...


@dataclass(frozen=True)
class SparseScored:
    """Scores as a sparse matrix.

    Attributes:
        scores_NL: float32; a label that is not stored has score 0 and is not a candidate.
    """

    scores_NL: Matrix

    def top(self, k: int) -> SparsePredictions:
        """Find the k best labels of each document; of equal scores, the lower label id first."""
        scores = self.scores_NL
        starts = scores.indptr
        documents = len(starts) - 1
        ids_NK = np.full((documents, k), -1, np.int32)
        scores_NK = np.zeros((documents, k), np.float32)
        for row in range(documents):
            part = slice(starts[row], starts[row + 1])
            columns, values = _best(scores.indices[part], scores.data[part], k)
            ids_NK[row, : len(columns)] = columns
            scores_NK[row, : len(columns)] = values
        return SparsePredictions(ids_NK, scores_NK)

    def at(self, label_ids_NK: NDArray[np.int32]) -> NDArray[np.float32]:
        """Compute scores (N, K) of these labels."""
        rows_NK = np.broadcast_to(
            np.arange(len(label_ids_NK))[:, None], label_ids_NK.shape
        )
        is_label_NK = label_ids_NK >= 0
        values_NK = np.zeros(label_ids_NK.shape, np.float32)
        if is_label_NK.any():
            values = self.scores_NL[rows_NK[is_label_NK], label_ids_NK[is_label_NK]]
            values_NK[is_label_NK] = np.asarray(values).ravel()
        return values_NK


@dataclass(frozen=True)
class DenseScored:
    """Scores as a dense table.

    Attributes:
        scores_NL: float32; every label is a candidate.
    """

    scores_NL: NDArray[np.float32]

    def top(self, k: int) -> SparsePredictions:
        """Find the k best labels of each document; of equal scores, the lower label id first."""
        k = min(k, self.scores_NL.shape[1])
        best_NK = np.argpartition(-self.scores_NL, k - 1, axis=1)[:, :k]
        ids_NK = np.sort(best_NK, axis=1)
        scores_NK = np.take_along_axis(self.scores_NL, ids_NK, axis=1)
        order_NK = np.argsort(-scores_NK, axis=1, kind="stable")
        return SparsePredictions(
            np.take_along_axis(ids_NK, order_NK, axis=1).astype(np.int32),
            np.take_along_axis(scores_NK, order_NK, axis=1),
        )

    def at(self, label_ids_NK: NDArray[np.int32]) -> NDArray[np.float32]:
        """Compute scores (N, K) of these labels."""
        values_NK = np.take_along_axis(
            self.scores_NL, np.maximum(label_ids_NK, 0), axis=1
        )
        return np.where(label_ids_NK >= 0, values_NK, 0).astype(np.float32)


def _best(
    columns: NDArray[np.integer], values: NDArray[np.floating], k: int
) -> tuple[NDArray[np.integer], NDArray[np.floating]]:
    if len(values) > k:
        greatest = np.argpartition(-values, k - 1)[:k]
        columns = columns[greatest]
        values = values[greatest]
    order = np.lexsort((columns, -values))
    return columns[order], values[order]


@dataclass(frozen=True)
class Contribution:
    """One reason for a score.

    Attributes:
        source: what the reason is.
        number: column of the term in `Words.counts_NC`, or index of the training document; 0 for a name.
        value: share of the score; the shares sum to the score.
        name: the label's name that the document is similar to.
    """

    source: Literal["term", "document", "name"]
    number: int
    value: float
    name: str = ""


class Scorer(Protocol):
    """A fitted scorer. It is read-only and sees documents only through their features."""

    reads_states: ClassVar[bool] = False
    """Whether `Features.states_ND` must be given."""
    FILE: ClassVar[str] = "scorer.safetensors"
    """The file of its arrays in its folder."""
    ARRAYS: ClassVar[Arrays | None] = None
    """Its arrays in `FILE`: L labels, V terms, F fields and categories, C = F · V, N training documents, D width of
    states. None: a scorer of another package, whose sparse matrices alone are checked."""

    @property
    def labels(self) -> int:
        """L."""
        ...

    @property
    def train_counts(self) -> NDArray[np.int64] | None:
        """Number of training documents of each label, (L,), if the scorer still has them."""
        return None

    @classmethod
    def fit(cls, training: Training, settings: Any) -> Self:
        """Fit the scorer.

        Args:
            training: see `ScorerSettings.needs`.
            settings: the member of the family whose scorer this is.

        Raises:
            DataError: the scorer cannot be fitted on these documents; the message says why.
        """
        ...

    def score(self, features: Features) -> Scored:
        """Score a block of documents; the caller keeps the block small (`BLOCK`)."""
        ...

    def contributions(
        self, features: Features, labels: Sequence[int]
    ) -> list[list[Contribution]]:
        """Explain one document's (N = 1) scores of some labels, greatest reasons first.

        The values of a label sum to its score. A scorer that cannot explain itself returns no reasons.
        """
        del features
        return [[] for _ in labels]

    def closeness(self, words: Words) -> Floats | None:
        """Return the cosine of each document's nearest training document, if the scorer finds it by words alone."""
        del words
        return None

    def extended(self, new: LabelNames) -> Self:
        """Return the scorer with more labels, known only by their names."""
        ...

    def regrouped(self, regrouping: Regrouping) -> Self:
        """Return the scorer with fewer labels. Its scores of labels that are not merged stay the same.

        Raises:
            ConfigError: the scorer cannot merge labels.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the scorer: the arrays, sparse matrices and integers of a dataclass."""
        write_fields(folder / self.FILE, self)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a saved scorer.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        return read_fields(folder / cls.FILE, cls)


def field_weights(
    chosen: Sequence[str] | Mapping[str, float] | None,
    kind: str,
    vocabulary: Vocabulary,
    category: float = CATEGORY,
) -> Floats:
    """Return the weight (F,) of each field and category; 0 if a scorer does not read it.

    Args:
        chosen: `ScorerSettings.fields`; a field has weight 1 unless they say another, and None is all fields.
        kind: name of the scorer.
        vocabulary: has the fields and categories of the documents.
        category: weight of a category if `chosen` is None.

    Raises:
        ConfigError: the documents have no such field.
    """
    names = (*vocabulary.fields, *vocabulary.categories)
    if chosen is None:
        chosen = dict.fromkeys(vocabulary.fields, 1.0) | dict.fromkeys(
            vocabulary.categories, category
        )
    check_fields(chosen, kind, names)
    weights = chosen if isinstance(chosen, Mapping) else dict.fromkeys(chosen, 1.0)
    return np.array([weights.get(name, 0.0) for name in names], np.float32)


def check_fields(chosen: Iterable[str], kind: str, known: Sequence[str]) -> None:
    """Refuse a field that the documents do not have.

    Args:
        chosen: fields and categories that a scorer reads.
        kind: name of the scorer.
        known: those of the documents.

    Raises:
        ConfigError: names the first unknown one.
    """
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ConfigError(
            f"model.scorers: {kind}: fields: the documents have no field {unknown[0]!r}; they have {', '.join(known)}"
        )


def with_empty_columns(matrix: Matrix, columns: int) -> Matrix:
    """Append empty columns to a sparse matrix."""
    shape = (matrix.shape[0], matrix.shape[1] + columns)
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=shape)
