"""Score a label by the similarity of its names and the document, both as pooled states of the encoder.

s(d, l) = max over the names w of label l of cos(h_d − mean h, g_w − mean g) − r_w / 2. Documents and names are centred
by their own means, because texts of one kind are similar to each other whatever they are about. r_w is the mean cosine
of a name and the ten training documents that are nearest to it: some names, the hubs, are near to all documents
(Conneau et al. 2018, "Word translation without parallel data", which also subtracts half of such a mean of the
document; it is the same for all labels).

Suffixes: N documents, K labels of a document, L labels, W names, F found names, D width of states, E = D + 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays
from xmtc.data.arrays import Floats
from xmtc.data.tensor_files import read_fields
from xmtc.errors import CheckpointError, DataError
from xmtc.files import read_json, reading, write_json
from xmtc.scorers.base import (
    Contribution,
    Features,
    LabelNames,
    Scored,
    Scorer,
    Training,
)
from xmtc.scorers.config import LabelEmbeddingsConfig
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.vectors import (
    centred_index,
    check_index,
    index_of,
    mean_row,
    nearest,
    read_index,
    unit_rows,
    vectors_at,
    write_index,
)

_INDEX = "names.faiss"
_TEXTS = "names.json"
_NAMES_A_LABEL = 4  # so many more names than labels are searched
NEAREST = 10
"""Training documents by which a hub is known."""


@dataclass(frozen=True)
class LabelEmbeddings(Scorer):
    """Vectors of names, centred and of unit length.

    Attributes:
        index: FAISS index of the names' vectors (W, E), whose last column is −r_w / 2. That of a document is 1.
        texts: W names.
        owners_W: label of each name, ascending; every label has at least one.
        documents_D, names_D: float32, means that are subtracted from states of documents and of names.
    """

    reads_states: ClassVar[bool] = True
    ARRAYS: ClassVar[Arrays | None] = {
        "owners_W": Array(
            "I64", "W", least=0, below="L", ascending=True, complete=True
        ),
        "documents_D": Array("F32", "D"),
        "names_D": Array("F32", "D"),
    }
    index: Any
    texts: Sequence[str]
    owners_W: NDArray[np.int64]
    documents_D: Floats
    names_D: Floats

    @property
    @override
    def labels(self) -> int:
        return int(self.owners_W.max(initial=-1)) + 1

    @classmethod
    @override
    def fit(cls, training: Training, settings: LabelEmbeddingsConfig) -> Self:
        names = training.names
        states_ND = training.features.states_ND
        if names is None or names.states_WD is None or states_ND is None:
            raise DataError(
                f"{settings.kind} needs pooled states of documents and of label names: leave it out"
            )
        names_D = mean_row(names.states_WD)
        names_WD = unit_rows(names.states_WD, names_D)
        documents, documents_D = centred_index(states_ND)
        index = index_of(_with_hubs(names_WD, nearness(documents, names_WD)))
        return cls(index, names.texts, names.owners_W, documents_D, names_D)

    @override
    def score(self, features: Features) -> Scored:
        states_ND = features.states("label_embeddings", len(self.documents_D))
        return _Similar(self, self._queries(states_ND))

    def _queries(self, states_ND: Floats) -> Floats:
        """Return the vectors (N, E) of documents."""
        return np.pad(
            unit_rows(states_ND, self.documents_D), ((0, 0), (0, 1)), constant_values=1
        )

    @override
    def contributions(
        self, features: Features, labels: Sequence[int]
    ) -> list[list[Contribution]]:
        """Finds each label's name that is most similar to the document."""
        states_1D = features.states("label_embeddings", len(self.documents_D))
        (query_E,) = self._queries(states_1D)
        rows, starts = self.names_of(np.asarray(labels))
        similarities = vectors_at(self.index, rows) @ query_E
        reasons = []
        for start, of_names in zip(
            starts, np.split(similarities, starts[1:]), strict=True
        ):
            best = int(np.argmax(of_names))
            name = self.texts[int(rows[start + best])]
            reasons.append([Contribution("name", 0, float(of_names[best]), name)])
        return reasons

    def names_of(
        self, labels_K: NDArray[np.integer]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List the rows of the names of some labels, and where the names of each begin."""
        first_K = np.searchsorted(self.owners_W, labels_K, side="left")
        last_K = np.searchsorted(self.owners_W, labels_K, side="right")
        counts_K = last_K - first_K
        starts_K = np.cumsum(counts_K) - counts_K
        return np.arange(counts_K.sum()) + np.repeat(
            first_K - starts_K, counts_K
        ), starts_K

    @override
    def extended(self, new: LabelNames) -> Self:
        """A new name is as near to documents as the known names that are most similar to it, on average."""
        assert new.states_WD is not None, "the model embeds the names of new labels"
        added_WD = unit_rows(new.states_WD, self.names_D)
        known_WE = self._all()
        similar_WK, _ = nearest(index_of(known_WE[:, :-1].copy()), added_WD, NEAREST)
        nearness_W = np.mean(
            -2 * known_WE[similar_WK, -1], axis=1, where=similar_WK >= 0
        )
        owners_W = np.concatenate([self.owners_W, self.labels + new.owners_W])
        return self._with(
            np.concatenate([known_WE, _with_hubs(added_WD, nearness_W)]),
            [*self.texts, *new.texts],
            owners_W,
        )

    @override
    def regrouped(self, regrouping: Regrouping) -> Self:
        """A merged label has the names of its parts."""
        owners_W = regrouping.new_L[self.owners_W]
        kept = np.argsort(owners_W, kind="stable")[np.count_nonzero(owners_W < 0) :]
        return self._with(
            self._all()[kept], [self.texts[int(row)] for row in kept], owners_W[kept]
        )

    def _all(self) -> Floats:
        return vectors_at(self.index, np.arange(len(self.texts)))

    def _with(
        self, vectors_WE: Floats, texts: Sequence[str], owners_W: NDArray[np.int64]
    ) -> Self:
        return replace(self, index=index_of(vectors_WE), texts=texts, owners_W=owners_W)

    @override
    def save(self, folder: Path) -> None:
        super().save(folder)
        write_index(folder / _INDEX, self.index)
        write_json(folder / _TEXTS, list(self.texts))

    @classmethod
    @override
    def load(cls, folder: Path) -> Self:
        with reading(folder / _TEXTS, CheckpointError, "export the model again"):
            texts = TypeAdapter(list[str]).validate_python(read_json(folder / _TEXTS))
        scorer = read_fields(
            folder / cls.FILE, cls, index=read_index(folder / _INDEX), texts=texts
        )
        check_index(
            folder / _INDEX, scorer.index, len(scorer.owners_W), len(scorer.names_D) + 1
        )
        if len(texts) != len(scorer.owners_W):
            raise CheckpointError(
                f"{folder / _TEXTS}: has {len(texts)} names, the scorer has {len(scorer.owners_W)}"
            )
        return scorer


def nearness(documents: Any, names_WD: Floats) -> Floats:
    """Compute r: the mean cosine (W,) of each name and the training documents that are nearest to it.

    Args:
        documents: FAISS index of the documents' vectors.
        names_WD: vectors of the names.
    """
    rows_WK, cosines_WK = nearest(documents, names_WD, NEAREST)
    return cosines_WK.mean(axis=1, where=rows_WK >= 0)


def _with_hubs(names_WD: Floats, nearness_W: Floats) -> Floats:
    column_W1 = (-nearness_W[:, None] / 2).astype(np.float32)
    return np.concatenate([names_WD, column_W1], axis=1)


@dataclass(frozen=True)
class _Similar(Scored):
    """Similarities of the names of labels to N documents."""

    scorer: LabelEmbeddings
    queries_NE: Floats

    @override
    def top(self, k: int) -> SparsePredictions:
        names_NF, similarities_NF = nearest(
            self.scorer.index, self.queries_NE, _NAMES_A_LABEL * k
        )
        ids_NK = np.full((len(names_NF), k), -1, np.int32)
        scores_NK = np.zeros((len(names_NF), k), np.float32)
        for row, (names_F, similarities_F) in enumerate(
            zip(names_NF, similarities_NF, strict=True)
        ):
            owners_F = self.scorer.owners_W[names_F[names_F >= 0]]
            labels, first_places = np.unique(
                owners_F, return_index=True
            )  # names are sorted, so the first is the best
            best = np.argsort(first_places)[:k]
            ids_NK[row, : len(best)] = labels[best]
            scores_NK[row, : len(best)] = similarities_F[first_places[best]]
        return SparsePredictions(ids_NK, scores_NK)

    @override
    def at(self, label_ids_NK: NDArray[np.int32]) -> NDArray[np.float32]:
        scores_NK = np.zeros(label_ids_NK.shape, np.float32)
        for row, (ids_K, query_E) in enumerate(
            zip(label_ids_NK, self.queries_NE, strict=True)
        ):
            is_label_K = ids_K >= 0
            if is_label_K.any():
                rows, starts = self.scorer.names_of(ids_K[is_label_K])
                similarities = vectors_at(self.scorer.index, rows) @ query_E
                scores_NK[row, is_label_K] = np.maximum.reduceat(similarities, starts)
        return scores_NK
