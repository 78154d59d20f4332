"""Predictions next to the truth: what metrics of documents are computed from.

Shapes: N documents, K kept predictions, L labels, P right predictions of some labels.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate.classification import Outcome
from xmtc.evaluate.histogram import Auc, ScoreHistogram
from xmtc.evaluate.ranked import average_precision
from xmtc.scorers.predictions import Gold, SparsePredictions, match

_PROPENSITY_RANKS = 5
_BLOCK = 1 << 15
"""Documents whose predictions are looked at at once."""
_SCORE_STEPS = 1000
_CALIBRATION_BINS = 15
_ALL = ""
"""The group of all labels."""


def discounts(k: int) -> NDArray[np.float64]:
    """Compute 1/log2(rank + 1) for ranks 1…k."""
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_gains(k: int, gold_counts_N: NDArray[np.integer]) -> NDArray[np.float64]:
    """Compute nDCG@k's normaliser Σ_{r ≤ min(k, |y|)} 1/log2(r+1) per document (N,)."""
    by_count = np.concatenate([[0.0], np.cumsum(discounts(k))])
    return by_count[np.minimum(gold_counts_N, k)]


class Rankings:
    """The rankings of some labels: gold labels of each document, and the ranks at which predictions are right.

    Other labels leave the ranking as well as the gold set (as EURLEX57K's authors do for few and zero labels); the
    ranking is that of the kept predictions.

    Args:
        predictions: (N, K) best first.
        hits_NK: which are right.
        gold: boolean (N, L).
        mask_L: the labels.

    Attributes:
        counts_N: gold labels of each document.
        at_least_one_N: the same, 1 in place of 0.
        with_gold_N: 1 for a document with gold labels, else 0; float32.
        every_N: 1 for every document; float32.
    """

    def __init__(
        self,
        predictions: SparsePredictions,
        hits_NK: NDArray[np.bool_],
        gold: Gold,
        mask_L: NDArray[np.bool_],
    ) -> None:
        counts_N = gold.astype(np.float64) @ mask_L.astype(
            np.float64
        )  # a matrix product of booleans is a boolean
        self.counts_N = np.asarray(counts_N).astype(np.int64)
        self.at_least_one_N = np.maximum(self.counts_N, 1)
        self.with_gold_N = (self.counts_N > 0).astype(np.float32)
        self.every_N = np.ones(len(self.counts_N), np.float32)
        self._documents_P, self._ranks_P, self._ranks_of_all_P = _right_ranks(
            predictions, hits_NK, mask_L
        )

    def right(self, k: int) -> NDArray[np.integer]:
        """Count the gold labels among the k best: (N,)."""
        return np.bincount(
            self._documents_P[self._ranks_P <= k], minlength=len(self.counts_N)
        )

    def right_of_all(self, k: int) -> NDArray[np.integer]:
        """Count the gold labels among the k best of all labels, also where the ranking is of some: (N,)."""
        return np.bincount(
            self._documents_P[self._ranks_of_all_P <= k], minlength=len(self.counts_N)
        )

    def gains(self, k: int) -> NDArray[np.float64]:
        """Compute Σ 1/log2(rank + 1) over the gold labels among the k best: (N,)."""
        best_P = self._ranks_P <= k
        gained_P = discounts(k)[self._ranks_P[best_P] - 1]
        gained_N = np.bincount(
            self._documents_P[best_P], gained_P, minlength=len(self.counts_N)
        )
        return gained_N.astype(np.float64)

    def ideal_gains(self, k: int) -> NDArray[np.float64]:
        """Compute the greatest possible `gains`; a document without gold labels counts as if it had one."""
        return ideal_gains(k, self.at_least_one_N)


def _right_ranks(
    predictions: SparsePredictions,
    hits_NK: NDArray[np.bool_],
    mask_L: NDArray[np.bool_],
) -> tuple[NDArray[np.integer], ...]:
    """Find the document of each right prediction of some labels, its rank among them and its rank of all: (P,)."""
    documents: list[NDArray[np.integer]] = []
    ranks_among_them: list[NDArray[np.integer]] = []
    ranks_of_all: list[NDArray[np.integer]] = []
    for start in range(0, len(predictions), _BLOCK):
        ids_BK = predictions.label_ids_NK[start : start + _BLOCK]
        inside_BK = mask_L[ids_BK] & (ids_BK >= 0)
        ranks_BK = np.cumsum(inside_BK, axis=1, dtype=np.int32)
        rows, columns = np.nonzero(inside_BK & hits_NK[start : start + _BLOCK])
        documents.append(rows + start)
        ranks_among_them.append(ranks_BK[rows, columns])
        ranks_of_all.append(columns + 1)
    return (
        np.concatenate(documents),
        np.concatenate(ranks_among_them),
        np.concatenate(ranks_of_all),
    )


class ScoreCounts:
    """How many kept predictions, how many right ones and what sum of scores fall where.

    Args:
        predictions: (N, K).
        hits_NK: which are right.
        groups: name → labels of the group, boolean (L,), to be counted apart as well.
    """

    def __init__(
        self,
        predictions: SparsePredictions,
        hits_NK: NDArray[np.bool_],
        groups: Mapping[str, NDArray[np.bool_]] | None = None,
    ):
        self.groups = groups or {}
        self.by_step = np.zeros((2, _SCORE_STEPS), np.int64)
        self.by_group = {
            name: np.zeros((3, _CALIBRATION_BINS)) for name in (_ALL, *self.groups)
        }
        for start in range(0, len(predictions), _BLOCK):
            rows = slice(start, start + _BLOCK)
            ids_BK = predictions.label_ids_NK[rows]
            used_BK = ids_BK >= 0
            scores = predictions.scores_NK[rows][used_BK]
            hits = hits_NK[rows][used_BK]
            self._count_steps(scores, hits)
            self._count_groups(ids_BK[used_BK], scores, hits)

    def _count_steps(
        self, scores: NDArray[np.float32], hits: NDArray[np.bool_]
    ) -> None:
        step = np.minimum((scores * _SCORE_STEPS).astype(np.int64), _SCORE_STEPS - 1)
        self.by_step[0] += np.bincount(step, minlength=_SCORE_STEPS)
        self.by_step[1] += np.bincount(step[hits], minlength=_SCORE_STEPS)

    def _count_groups(
        self,
        ids: NDArray[np.int32],
        scores: NDArray[np.float32],
        hits: NDArray[np.bool_],
    ) -> None:
        cell = np.minimum(
            (scores * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1
        )
        for name, table in self.by_group.items():
            inside = (
                np.ones(len(ids), np.bool_) if name == _ALL else self.groups[name][ids]
            )
            table[0] += np.bincount(cell[inside], minlength=_CALIBRATION_BINS)
            table[1] += np.bincount(cell[inside & hits], minlength=_CALIBRATION_BINS)
            table[2] += np.bincount(
                cell[inside], scores[inside], minlength=_CALIBRATION_BINS
            )

    def threshold_curve(self, positives: int) -> dict[str, list[float]]:
        """Compute micro precision, recall and F1 by threshold, from 0 to 1 in 200 steps."""
        all_above, all_right = np.cumsum(self.by_step[:, ::-1], axis=1)[:, ::-1]
        steps = np.unique(np.linspace(0, _SCORE_STEPS - 1, 201).astype(int))
        steps = steps[all_above[steps] > 0]
        above = all_above[steps]
        right = all_right[steps]
        return {
            "threshold": (steps / _SCORE_STEPS).tolist(),
            "precision": (right / above).tolist(),
            "recall": (right / max(positives, 1)).tolist(),
            "f1": (2 * right / (above + positives)).tolist(),
        }

    def reliability(self, group: str = _ALL) -> dict[str, Any]:
        """Compute mean score and share right in 15 equal score bins, and the expected calibration error (ECE).

        Only kept predictions count: the scores below a document's K best are unknown here.

        Args:
            group: name of the group of labels to count. Default: all labels.
        """
        count, right, total = self.by_group[group]
        used = count > 0
        return {
            "score": (total[used] / count[used]).tolist(),
            "right": (right[used] / count[used]).tolist(),
            "count": count[used].astype(int).tolist(),
            "ece": float(np.abs(right - total).sum() / max(count.sum(), 1)),
        }


class Judged(Rankings):
    """Predictions, decisions and gold labels of documents.

    Args:
        predictions: (N, K) best first.
        chosen_NK: the predictions that are made.
        gold: boolean (N, L), indices sorted.
        inverse_propensities_L: 1/p of each label.
        bins: name → labels of the bin, boolean (L,).
        histogram: all scores, if they were counted.

    Attributes:
        hits_NK: the predictions that are right.
        outcome: decisions and the truth.
    """

    def __init__(
        self,
        predictions: SparsePredictions,
        chosen_NK: NDArray[np.bool_],
        gold: Gold,
        inverse_propensities_L: NDArray[np.float64],
        bins: Mapping[str, NDArray[np.bool_]],
        histogram: ScoreHistogram | None = None,
    ) -> None:
        hits_NK = match(predictions.label_ids_NK, gold)
        all_labels_L = np.ones(len(inverse_propensities_L), np.bool_)
        super().__init__(predictions, hits_NK, gold, all_labels_L)
        self.predictions = predictions
        self.chosen_NK = chosen_NK
        self.hits_NK = hits_NK
        self.gold = gold
        self.bins = bins
        self.outcome = Outcome.of(predictions, chosen_NK, hits_NK, gold)
        self._inverse_propensities_L = inverse_propensities_L
        self._histogram = histogram

    def rankings(self, mask_L: NDArray[np.bool_]) -> Rankings:
        """Rank some labels alone."""
        return Rankings(self.predictions, self.hits_NK, self.gold, mask_L)

    @staticmethod
    def discounted(values_NK: NDArray[Any], k: int) -> NDArray[np.float64]:
        """Compute Σ value / log2(rank + 1) over the k best: (N,)."""
        return values_NK[:, :k] @ discounts(k)[: values_NK.shape[1]]

    @cached_property
    def propensity_scored(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inverse propensities of the five best labels, 0 where wrong, and the five greatest of the gold labels."""
        best_NK = self.predictions.label_ids_NK[:, :_PROPENSITY_RANKS]
        attained_NK = (
            self.hits_NK[:, :_PROPENSITY_RANKS] * self._inverse_propensities_L[best_NK]
        )
        return attained_NK, _best_attainable(
            self.gold, self._inverse_propensities_L, _PROPENSITY_RANKS
        )

    @cached_property
    def average_precision_L(self) -> NDArray[np.float64]:
        """Average precision of every label; NaN for a label without gold documents."""
        return average_precision(self.predictions, self.hits_NK, self.outcome.gold_L)

    @cached_property
    def auc(self) -> Auc | None:
        """Areas under the ROC curve; None if not all scores were counted."""
        return None if self._histogram is None else self._histogram.auc()

    @cached_property
    def score_counts(self) -> ScoreCounts:
        """Where scores and right predictions fall, by bin too."""
        return ScoreCounts(self.predictions, self.hits_NK, self.bins)


def _best_attainable(
    gold: Gold, weights_L: NDArray[np.float64], k: int
) -> NDArray[np.float64]:
    """Find the k greatest weights among each document's gold labels, descending, padded with 0: (N, k)."""
    counts_N = np.diff(gold.indptr)
    rows = np.repeat(np.arange(len(counts_N)), counts_N)
    weights = weights_L[gold.indices]
    greatest_first = np.lexsort((-weights, rows))
    places = np.arange(len(rows)) - gold.indptr[rows]
    among_best = places < k
    best_NK = np.zeros((len(counts_N), k))
    best_NK[rows[among_best], places[among_best]] = weights[greatest_first][among_best]
    return best_NK
