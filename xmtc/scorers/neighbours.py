"""Votes of the most similar training documents, by words or by pooled states.

s(d, l) = Σ_j w(cos(d, j)) · Y[j, l] / Σ_j w(cos(d, j)) over the k nearest training documents j of document d.

Suffixes: B query documents, N training documents, K neighbours, L labels, V terms, F terms with a dense column, D
width of states.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Floats, Matrix
from xmtc.data.tensor_files import read_tensors, sparse_names, sparse_tensors, to_sparse, write_tensors
from xmtc.errors import DataError
from xmtc.scorers.base import BLOCK, Contribution, Features, SparseScored, Training, with_empty_columns
from xmtc.scorers.config import StateNeighboursConfig, WordNeighboursConfig
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.state_index import StateIndex

_SPARE = 16  # extra neighbours to look for, because copies of a document do not vote on it
_DENSE_SHARE = 0.02
_MAX_DENSE = 1_000


class Search(Protocol):
    """Finds the nearest training documents."""

    def nearest(self, features: Features, k: int) -> tuple[NDArray[np.int64], Floats]:
        """Find rows (B, K) and cosines (B, K) of the k nearest training documents, nearest first; -1 pads."""
        ...

    def save(self, folder: Path) -> None:
        """Write the search structure."""
        ...


class Weights(Protocol):
    """Maps a cosine to the weight of a vote."""

    def __call__(self, cosines: Floats) -> Floats:
        """Compute weights ≥ 0, larger for larger cosines."""
        ...


@dataclass(frozen=True)
class Power:
    """The weight cos^p, and 0 for cosines that are not positive."""

    p: float

    def __call__(self, cosines: Floats) -> Floats:
        """Compute weights of cosines."""
        return np.power(np.maximum(cosines, 0), np.float32(self.p), dtype=np.float32)


@dataclass(frozen=True)
class Exponential:
    """The weight exp(t · (cos − 1))."""

    t: float

    def __call__(self, cosines: Floats) -> Floats:
        """Compute weights of cosines."""
        return np.exp(self.t * (cosines - 1))


@dataclass(frozen=True)
class WordSearch:
    """Exact search by cosine of TF-IDF rows, with a dense product for frequent terms and a sparse one for the others.

    Attributes:
        words_NV: float32, rows of unit length.
        frequent_F: terms with a dense column.
        dense_NF: float32.
        rare_VN: float32, columns of the other terms.
    """

    words_NV: Matrix
    frequent_F: NDArray[np.int64]
    dense_NF: Floats
    rare_VN: Matrix

    @property
    def reads_states(self) -> bool:
        """No: it reads words."""
        return False

    @classmethod
    def of(cls, words_NV: Matrix) -> "WordSearch":
        """Prepare training rows for search."""
        documents_V = np.bincount(words_NV.indices, minlength=words_NV.shape[1])
        most = np.argsort(-documents_V, kind="stable")[:_MAX_DENSE]
        frequent_F = np.sort(most[documents_V[most] > _DENSE_SHARE * (words_NV.indptr.size - 1)])
        dense_NF = words_NV[:, frequent_F].toarray()
        return cls(words_NV, frequent_F, dense_NF, sparse.csr_array(_without(words_NV, frequent_F).T.tocsr()))

    def nearest(self, features: Features, k: int) -> tuple[NDArray[np.int64], Floats]:
        """Find rows and cosines of the nearest training documents."""
        cosines_BN = features.words_NV[:, self.frequent_F].toarray() @ self.dense_NF.T
        rare = sparse.csr_array(_without(features.words_NV, self.frequent_F) @ self.rare_VN)
        cosines_BN += rare.toarray()
        k = min(k, cosines_BN.shape[1])
        found_BK = np.sort(np.argpartition(-cosines_BN, k - 1, axis=1)[:, :k], axis=1)
        values_BK = np.take_along_axis(cosines_BN, found_BK, axis=1)
        order_BK = np.argsort(-values_BK, axis=1, kind="stable")
        return np.take_along_axis(found_BK, order_BK, axis=1), np.take_along_axis(values_BK, order_BK, axis=1)

    def save(self, folder: Path) -> None:
        """Write `documents.safetensors`."""
        write_tensors(folder / "documents.safetensors", sparse_tensors("words", self.words_NV))

    @classmethod
    def load(cls, folder: Path) -> "WordSearch":
        """Read saved files."""
        found = read_tensors(folder / "documents.safetensors", sparse_names("words"))
        return cls.of(to_sparse("words", found))


def _without(words_BV: Matrix, frequent_F: NDArray[np.int64]) -> Matrix:
    """Remove frequent terms from the rows."""
    rare_V = np.ones(words_BV.shape[1], np.float32)
    rare_V[frequent_F] = 0
    kept = sparse.csr_array(words_BV @ sparse.diags_array(rare_V, format="csr"))
    kept.eliminate_zeros()
    return kept


@dataclass(frozen=True)
class Neighbours:
    """Scores labels by a vote of the nearest training documents.

    Attributes:
        search: finds the nearest documents.
        labels_NL: float32 ones, labels of the training documents.
        k: number of documents that vote.
        weights: weights of their votes.
    """

    search: WordSearch | StateIndex
    labels_NL: Matrix
    k: int
    weights: Power | Exponential

    @property
    def labels(self) -> int:
        """L."""
        return int(self.labels_NL.shape[1])

    @property
    def reads_states(self) -> bool:
        """Whether neighbours are found by pooled states."""
        return self.search.reads_states

    def score(self, features: Features) -> SparseScored:
        """Compute each label's share of the votes."""
        return self.vote(*self.search.nearest(features, self.k))

    def vote(self, found_BK: NDArray[np.int64], cosines_BK: Floats) -> SparseScored:
        """Compute each label's share of the votes of these neighbours; ids of -1 do not vote."""
        weights_BK = np.where(found_BK >= 0, self.weights(cosines_BK), 0)
        weights_BK /= np.maximum(weights_BK.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        rows, places = np.nonzero(weights_BK)
        shape = (len(found_BK), int(self.labels_NL.shape[0]))
        voters = sparse.csr_array((weights_BK[rows, places], (rows, found_BK[rows, places])), shape=shape)
        scores = sparse.csr_array(voters @ self.labels_NL)
        scores.sort_indices()
        return SparseScored(scores)

    def extended(self, label_words_RV: Matrix) -> "Neighbours":
        """Return the scorer with more labels, which it never proposes because no training document has them."""
        return replace(self, labels_NL=with_empty_columns(self.labels_NL, len(label_words_RV.indptr) - 1))

    def regrouped(self, regrouping: Regrouping) -> "Neighbours":
        """Return the scorer with fewer labels; a document has a merged label if it has one of its parts."""
        return replace(self, labels_NL=regrouping.columns(self.labels_NL, np.maximum))

    @property
    def train_counts(self) -> NDArray[np.int64]:
        """Training documents of each label."""
        return np.bincount(self.labels_NL.indices, minlength=self.labels).astype(np.int64)

    def contributions(self, features: Features, labels: Sequence[int]) -> list[list[Contribution]]:
        """Find the neighbours that have a label, and the share of each in the votes, greatest first."""
        found_BK, cosines_BK = self.search.nearest(features, self.k)
        weights_K = np.where(found_BK[0] >= 0, self.weights(cosines_BK[0]), 0)
        shares_K = weights_K / max(weights_K.sum(), np.finfo(np.float32).tiny)
        voters_SK = (self.labels_NL[found_BK[0]][:, labels].toarray().T != 0) & (shares_K > 0)
        return [
            [
                Contribution("document", int(found_BK[0, place]), float(shares_K[place]))
                for place in np.flatnonzero(has_K)
            ]
            for has_K in voters_SK
        ]

    def save(self, folder: Path) -> None:
        """Write `votes.safetensors` and the search structure."""
        kind, value = (0, self.weights.p) if isinstance(self.weights, Power) else (1, self.weights.t)
        numbers = {"k": np.array([self.k], np.int64), "weights": np.array([kind, value], np.float64)}
        write_tensors(folder / "votes.safetensors", numbers | sparse_tensors("labels", self.labels_NL))
        self.search.save(folder)

    @classmethod
    def load(cls, folder: Path) -> "Neighbours":
        """Read saved files.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        found = read_tensors(folder / "votes.safetensors", ("k", "weights", *sparse_names("labels")))
        kind, value = found["weights"].tolist()
        search, weights = (
            (StateIndex.load(folder), Exponential(value)) if kind else (WordSearch.load(folder), Power(value))
        )
        return cls(search, to_sparse("labels", found), int(found["k"][0]), weights)


def fit_word_neighbours(training: Training, config: WordNeighboursConfig) -> Neighbours:
    """Fit neighbours by words; choose k and p by leave-one-out."""
    weights = [Power(p) for p in config.power]
    first = Neighbours(WordSearch.of(training.features.words_NV), _ones(training), max(config.neighbours), weights[0])
    return _chosen(first, training, config.neighbours, weights, config.sample)


def fit_state_neighbours(training: Training, config: StateNeighboursConfig) -> Neighbours:
    """Fit neighbours by pooled states; choose k and t by leave-one-out.

    Raises:
        DataError: there are no states.
    """
    states_ND = training.features.states_ND
    if states_ND is None:
        raise DataError("state_neighbours needs pooled states, but there are none: leave it out")
    weights = [Exponential(t) for t in config.sharpness]
    index = StateIndex.of(states_ND, config.index, config.probes)
    first = Neighbours(index, _ones(training), max(config.neighbours), weights[0])
    return _chosen(first, training, config.neighbours, weights, config.sample)


def _ones(training: Training) -> Matrix:
    return training.labels_NL.astype(np.float32)


def _chosen(
    scorer: Neighbours,
    training: Training,
    numbers: tuple[int, ...],
    weights: list[Power] | list[Exponential],
    sample: int,
) -> Neighbours:
    """Choose the number of neighbours and the weights with the best leave-one-out nDCG@5."""
    options = [(k, weight) for k in numbers for weight in weights]
    rows_S = training.sample(sample)
    if len(options) == 1 or not len(rows_S):
        return scorer
    blocks = [rows_S[start : start + BLOCK] for start in range(0, len(rows_S), BLOCK)]
    parts = [others(scorer, training, block, max(numbers)) for block in blocks]
    found, cosines = (np.concatenate(part) for part in zip(*parts, strict=True))
    gold = training.labels_NL[rows_S]
    quality = [
        ndcg_at_5(replace(scorer, k=k, weights=weight).vote(found[:, :k], cosines[:, :k]), gold)
        for k, weight in options
    ]
    k, weight = options[int(np.argmax(quality))]
    return replace(scorer, k=k, weights=weight)


def others(
    scorer: Neighbours, training: Training, rows_S: NDArray[np.integer], k: int
) -> tuple[NDArray[np.int64], Floats]:
    """Find rows and cosines (S, k) of the training documents nearest to some of them, without copies of their texts."""
    found, cosines = scorer.search.nearest(training.features.take(rows_S), k + _SPARE)
    texts_N = training.texts_N
    same = (texts_N[found] == texts_N[rows_S][:, None]) | (found < 0)
    order = np.argsort(same, axis=1, kind="stable")[:, :k]
    chosen = np.where(np.take_along_axis(same, order, axis=1), -1, np.take_along_axis(found, order, axis=1))
    return chosen, np.take_along_axis(cosines, order, axis=1)


def ndcg_at_5(scored: SparseScored, gold_NL: Matrix) -> float:
    """Compute the mean nDCG@5 over documents with labels."""
    ids_NK = scored.top(5).label_ids_NK
    hits_NK = SparseScored(gold_NL.astype(np.float32)).at(ids_NK) > 0
    discounts = 1 / np.log2(np.arange(2, 7))
    counts_N = np.diff(gold_NL.indptr)
    ideal_N = np.concatenate([[0], np.cumsum(discounts)])[np.minimum(counts_N, 5)]
    some = counts_N > 0
    return float(((hits_NK @ discounts)[some] / ideal_N[some]).mean()) if some.any() else 0.0
