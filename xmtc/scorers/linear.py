"""Ridge regression in closed form: one factorisation for all labels.

W = (AᵀA + λI)⁻¹AᵀY over TF-IDF rows A (N, P) and labels Y (N, L), see `factor`. Gram matrices are sums over shards
(`gram`), and chunks of labels are solved independently (`solve_labels`), so both steps can run in parallel.

W is linear in Y. If no document has both of two labels, and both have the same λ, the weights of their union are the
sum of their weights. A document with both labels counts twice in the sum.

Suffixes: N documents, P columns (terms, then dense columns), L labels, C labels of a chunk, S sampled documents.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Floats, Matrix
from xmtc.data.tensor_files import read_tensors, sparse_names, sparse_tensors, to_sparse, write_tensors
from xmtc.errors import DataError
from xmtc.scorers.base import (
    Communicator,
    Contribution,
    DenseScored,
    Features,
    Scored,
    SparseScored,
    Training,
    greatest_first,
    with_empty_columns,
)
from xmtc.scorers.bins import bins_of_labels
from xmtc.scorers.config import LinearConfig
from xmtc.scorers.factor import Factor, factorise, leave_one_out
from xmtc.scorers.gram import Design
from xmtc.scorers.regrouping import Regrouping

CHUNK = 512
"""Number of labels solved at once."""
_JUDGED = 256  # labels of a bin that are used to choose its penalty
_MAX_DENSE_LABELS = 50_000  # above this, scores stay sparse
_FILE = "linear.safetensors"


@dataclass(frozen=True)
class Linear:
    """A sparse table of weights.

    Attributes:
        weights_PL: float32, pruned.
        terms: number of columns that are words, the first ones of the vocabulary.
        states: scale of the pooled states in the other columns.
        mean_D: mean that is subtracted from the states first; empty without states.
    """

    weights_PL: Matrix
    terms: int
    states: float
    mean_D: Floats

    @property
    def labels(self) -> int:
        """L."""
        return int(self.weights_PL.shape[1])

    @property
    def reads_states(self) -> bool:
        """Whether pooled states are columns."""
        return self.states > 0

    def score(self, features: Features) -> Scored:
        """Compute scores ŷ: near 1 if the document has the label, near 0 if not."""
        return _scored(_products(self.design(features), self.weights_PL))

    def design(self, features: Features) -> Design:
        """Build the columns that the weights apply to."""
        words_NV = features.words_NV[:, : self.terms]
        if not self.states or features.states_ND is None:
            return Design(words_NV, np.zeros((len(features), 0), np.float32))
        return Design(words_NV, self.states * unit_rows(features.states_ND, self.mean_D))

    def extended(self, label_words_RV: Matrix) -> "Linear":
        """Return the scorer with more labels, which it never proposes because no training document has them."""
        return replace(self, weights_PL=with_empty_columns(self.weights_PL, len(label_words_RV.indptr) - 1))

    def regrouped(self, regrouping: Regrouping) -> "Linear":
        """Return the scorer with fewer labels; weights of merged labels are added, see the module."""
        return replace(self, weights_PL=regrouping.columns(self.weights_PL, np.add))

    @property
    def train_counts(self) -> None:
        """None: weights do not hold counts."""
        return None

    def contributions(self, features: Features, labels: Sequence[int]) -> list[list[Contribution]]:
        """Compute the product of value and weight for each term and state column that has both, greatest first."""
        row_P = self.design(features).toarray()[0]
        columns = np.flatnonzero(row_P)
        # A slice of these rows is cheap; a slice of the labels' columns would read all weights.
        values_SC = row_P[columns] * self.weights_PL[columns][:, labels].toarray().T
        return [
            [self._contribution(int(columns[place]), float(values_C[place])) for place in greatest_first(values_C)]
            for values_C in values_SC
        ]

    def _contribution(self, column: int, value: float) -> Contribution:
        return Contribution("term" if column < self.terms else "state", column % self.terms, value)

    def save(self, folder: Path) -> None:
        """Write `linear.safetensors`."""
        shape = np.array([self.terms], np.int64), np.array([self.states], np.float64)
        tensors = {"terms": shape[0], "states": shape[1], "mean_D": self.mean_D}
        write_tensors(folder / _FILE, tensors | sparse_tensors("weights", self.weights_PL))

    @classmethod
    def load(cls, folder: Path) -> "Linear":
        """Read saved files.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        found = read_tensors(folder / _FILE, ("terms", "states", "mean_D", *sparse_names("weights")))
        return cls(to_sparse("weights", found), int(found["terms"][0]), float(found["states"][0]), found["mean_D"])


def _products(design: Design, weights_PL: Matrix) -> Matrix:
    """Compute scores (N, L) of documents."""
    columns_NP = design.words_NV
    if design.dense_ND.shape[1]:
        columns_NP = sparse.csr_array(sparse.hstack([columns_NP, sparse.csr_array(design.dense_ND)], format="csr"))
    return sparse.csr_array(columns_NP @ weights_PL)


def _scored(scores_NL: Matrix) -> Scored:
    """Wrap scores in the class that suits the number of labels."""
    if scores_NL.shape[1] <= _MAX_DENSE_LABELS:
        return DenseScored(scores_NL.toarray())
    scores_NL.sort_indices()
    return SparseScored(scores_NL)


def unit_rows(states_ND: NDArray[np.floating], mean_D: Floats) -> Floats:
    """Subtract the corpus mean from states, and scale them to unit length."""
    centred_ND = states_ND.astype(np.float32) - mean_D
    norms_N1 = np.linalg.norm(centred_ND, axis=1, keepdims=True)
    return centred_ND / np.maximum(norms_N1, np.finfo(np.float32).tiny)


def fit_linear(training: Training, config: LinearConfig) -> Linear:
    """Fit all labels.

    Raises:
        DataError: the states are missing, or a penalty is too small.
    """
    scorer = _empty(training, config)
    design = scorer.design(training.features)
    scale_V = _log_odds(design.words_NV, training.labels_NL) if config.weighting == "log_odds" else None
    if scale_V is not None:
        design = replace(design, words_NV=_scaled(design.words_NV, scale_V))
    factors = factorise(design, config.penalties, training.ranks)
    factor_L = _choose(design, training, config, factors)
    used = np.unique(factor_L)
    factors, factor_L = [factors[index] for index in used], np.searchsorted(used, factor_L).astype(np.int8)
    own = solve_labels(training.labels_NL, factors, factor_L, config.prune, training.ranks)
    chunks = sorted((chunk for part in training.ranks.gather(list(own)) for chunk in part), key=lambda chunk: chunk[0])
    weights_LP = sparse.vstack([rows for _, rows in chunks], format="csr")
    if scale_V is not None:
        weights_LP = _scaled(weights_LP, np.pad(scale_V, (0, design.columns - len(scale_V)), constant_values=1))
    weights_PL = sparse.csr_array(weights_LP.T.tocsr())
    return replace(scorer, weights_PL=weights_PL)


def _scaled(matrix: Matrix, scale_V: Floats) -> Matrix:
    """Scale the columns of a matrix."""
    data = matrix.data * scale_V[matrix.indices]
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _log_odds(words_NV: Matrix, labels_NL: Matrix) -> Floats:
    """Compute max over labels |log(share of the label's documents with the term / share of the others)|, (V,).

    Counts are smoothed by one document. The mean square of a scaled row is 1, like that of an unscaled row.
    """
    documents = len(words_NV.indptr) - 1
    present_VN = sparse.csr_array(words_NV.astype(bool).T.tocsr()).astype(np.float32)
    by_label = sparse.csc_array(labels_NL.astype(np.float32))
    frequency_V1 = np.bincount(words_NV.indices, minlength=words_NV.shape[1])[:, None]
    scale_V = np.zeros(len(frequency_V1))
    for start in range(0, int(labels_NL.shape[1]), CHUNK):
        labels_NC = by_label[:, start : start + CHUNK]
        having_VC, size_C = np.asarray((present_VN @ labels_NC).toarray(), np.float64), labels_NC.sum(axis=0)
        inside_VC = (having_VC + 1) / (size_C + 2)
        outside_VC = (frequency_V1 - having_VC + 1) / (documents - size_C + 2)
        scale_V = np.maximum(scale_V, np.abs(np.log(inside_VC / outside_VC)).max(axis=1))
    square = np.square(words_NV.data * scale_V[words_NV.indices]).sum() / documents
    return (scale_V / np.sqrt(square)).astype(np.float32)


def _empty(training: Training, config: LinearConfig) -> Linear:
    """Make a scorer without weights that knows its columns."""
    terms = min(config.most_terms, training.features.words_NV.shape[1])
    states_ND = training.features.states_ND
    if config.states and states_ND is None:
        raise DataError("the linear scorer reads pooled states, but there are none: set its states to 0")
    mean_D = np.zeros(0, np.float32)
    if config.states and states_ND is not None:
        mean_D = states_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
    return Linear(sparse.csr_array((0, 0), dtype=np.float32), terms, config.states, mean_D)


def solve_labels(
    labels_NL: Matrix, factors: list[Factor], factor_L: NDArray[np.int8], prune: float, ranks: Communicator
) -> Iterator[tuple[int, Matrix]]:
    """Solve this rank's share of the labels, chunk by chunk: yield the first label, and pruned weights (C, P).

    Args:
        labels_NL: boolean labels of the training documents.
        factors: factors of the penalties in use.
        factor_L: index of each label's factor.
        prune: see `LinearConfig.prune`.
        ranks: ranks, which take chunks in turn.
    """
    by_label = sparse.csc_array(labels_NL)
    for start in range(ranks.rank * CHUNK, len(factor_L), ranks.size * CHUNK):
        chunk = slice(start, start + CHUNK)
        chosen = [(factor, np.flatnonzero(factor_L[chunk] == index)) for index, factor in enumerate(factors)]
        solved = [factor.weights(by_label[:, start + columns]) for factor, columns in chosen if len(columns)]
        order = np.argsort(np.concatenate([columns for _, columns in chosen]))
        yield start, pruned(np.concatenate(solved, axis=1)[:, order], prune)


def pruned(weights_PC: Floats, share: float) -> Matrix:
    """Drop each label's smallest weights, (C, P), while their norm is below this share of the norm of all.

    The score of a row of unit length then changes by at most `share` times the norm of the label's weights
    (Cauchy-Schwarz).
    """
    squares_CP = np.square(weights_PC.T)
    order_CP = np.argsort(squares_CP, axis=1)
    lost_CP = np.cumsum(np.take_along_axis(squares_CP, order_CP, axis=1), axis=1)
    dropped_CP = lost_CP <= share**2 * lost_CP[:, -1:]
    kept_CP = np.empty_like(dropped_CP)
    np.put_along_axis(kept_CP, order_CP, ~dropped_CP, axis=1)
    return sparse.csr_array(np.where(kept_CP, weights_PC.T, 0))


def _choose(design: Design, training: Training, config: LinearConfig, factors: list[Factor]) -> NDArray[np.int8]:
    """Choose each label's factor: for each bin, the one with the greatest leave-one-out mean average precision."""
    factor_L = np.zeros(training.labels_NL.shape[1], np.int8)
    if len(factors) == 1:
        return factor_L
    rows_S = training.sample(config.sample)
    sample, truth_SL = design.take(rows_S), sparse.csc_array(training.labels_NL[rows_S])
    leverages_FS = [factor.leverages(rows_S) for factor in factors]
    by_label = sparse.csc_array(training.labels_NL)
    for bin_L in bins_of_labels(config.bins, training.train_counts):
        present = np.flatnonzero(bin_L & (np.diff(truth_SL.indptr) > 0))
        judged = present[np.linspace(0, len(present) - 1, min(_JUDGED, len(present)), dtype=np.int64)]
        if not len(judged):
            continue
        labels_NC, truth_SC = by_label[:, judged], truth_SL[:, judged].toarray()
        scores = [
            _mean_average_precision(
                leave_one_out(_product(sample, factor.weights(labels_NC)), truth_SC, h_S[:, None]), truth_SC
            )
            for factor, h_S in zip(factors, leverages_FS, strict=True)
        ]
        factor_L[bin_L] = int(np.argmax(scores))
    return factor_L


def _product(design: Design, weights_PC: Floats) -> Floats:
    terms = design.words_NV.shape[1]
    return design.words_NV @ weights_PC[:terms] + design.dense_ND @ weights_PC[terms:]


def _mean_average_precision(scores_SC: Floats, truth_SC: NDArray[np.bool_]) -> float:
    order_SC = np.argsort(-scores_SC, axis=0, kind="stable")
    right_SC = np.take_along_axis(truth_SC, order_SC, axis=0)
    precision_SC = np.cumsum(right_SC, axis=0) / np.arange(1, len(right_SC) + 1)[:, None]
    return float(((precision_SC * right_SC).sum(axis=0) / right_SC.sum(axis=0)).mean())
