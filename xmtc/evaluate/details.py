"""What the report draws beyond the headline: curves, calibration, lengths.

Shapes: N documents, K kept predictions, L labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate.classification import Outcome
from xmtc.evaluate.predictions import Gold, SparsePredictions
from xmtc.evaluate.ranking import Ratio, discounts, ideal_gains

_CURVE_K = 20
_SCORE_STEPS = 1000
_CALIBRATION_BINS = 15
_CONFUSION_LABELS = 100
_LENGTH_GROUPS = 5
_CONFUSIONS = 50
_BLOCK = 1 << 15
_ALL = ""  # the group of all labels


def cutoff_curves(hits_NK: NDArray[np.bool_], gold: Gold) -> dict[str, list[float]]:
    """P@k, R@k and nDCG@k for k = 1…20 (or K): as `ranking_ratios`, P@k over all documents, the others over those that
    have gold labels (0 without any).
    """
    counts_N = np.diff(gold.indptr)
    some, least = counts_N > 0, max(int((counts_N > 0).sum()), 1)
    width = min(_CURVE_K, hits_NK.shape[1])
    weights = discounts(width)
    curves: dict[str, list[float]] = {"k": list(range(1, width + 1)), "p": [], "r": [], "ndcg": []}
    found_N, gains_N = np.zeros(len(counts_N)), np.zeros(len(counts_N))
    for k in range(1, width + 1):
        found_N += hits_NK[:, k - 1]
        gains_N += hits_NK[:, k - 1] * weights[k - 1]
        curves["p"].append(float(found_N.mean() / k))
        curves["r"].append(float((found_N[some] / counts_N[some]).sum() / least))
        curves["ndcg"].append(float((gains_N[some] / ideal_gains(k, counts_N[some])).sum() / least))
    return curves


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
        self.by_group = {name: np.zeros((3, _CALIBRATION_BINS)) for name in (_ALL, *self.groups)}
        for start in range(0, len(predictions), _BLOCK):
            rows = slice(start, start + _BLOCK)
            used_BK = predictions.label_ids_NK[rows] >= 0
            scores, hits = predictions.scores_NK[rows][used_BK], hits_NK[rows][used_BK]
            self._count_steps(scores, hits)
            self._count_groups(predictions.label_ids_NK[rows][used_BK], scores, hits)

    def _count_steps(self, scores: NDArray[np.float32], hits: NDArray[np.bool_]) -> None:
        step = np.minimum((scores * _SCORE_STEPS).astype(np.int64), _SCORE_STEPS - 1)
        self.by_step[0] += np.bincount(step, minlength=_SCORE_STEPS)
        self.by_step[1] += np.bincount(step[hits], minlength=_SCORE_STEPS)

    def _count_groups(self, ids: NDArray[np.int32], scores: NDArray[np.float32], hits: NDArray[np.bool_]) -> None:
        cell = np.minimum((scores * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
        for name, table in self.by_group.items():
            inside = np.ones(len(ids), np.bool_) if name == _ALL else self.groups[name][ids]
            counted = cell[inside]
            for row, (cells, weights) in enumerate(
                ((counted, None), (counted[hits[inside]], None), (counted, scores[inside]))
            ):
                table[row] += np.bincount(cells, weights, minlength=_CALIBRATION_BINS)

    def threshold_curve(self, positives: int) -> dict[str, list[float]]:
        """Compute micro precision, recall and F1 by threshold, from 0 to 1 in 200 steps."""
        above, right = np.cumsum(self.by_step[:, ::-1], axis=1)[:, ::-1]
        steps = np.unique(np.linspace(0, _SCORE_STEPS - 1, 201).astype(int))
        steps = steps[above[steps] > 0]
        above, right = above[steps], right[steps]
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


def score_details(
    predictions: SparsePredictions, hits_NK: NDArray[np.bool_], gold: Gold, bins: Mapping[str, NDArray[np.bool_]]
) -> dict[str, Any]:
    """Compute threshold curve and reliability; the error of the latter also per frequency bin."""
    counts = ScoreCounts(predictions, hits_NK, bins)
    by_bin = {name: counts.reliability(name)["ece"] for name in bins}
    return {
        "threshold_curve": counts.threshold_curve(gold.nnz),
        "reliability": counts.reliability() | {"ece_by_bin": by_bin},
    }


def by_length(lengths_N: NDArray[np.int32], ratios: Mapping[str, Ratio], outcome: Outcome) -> list[dict[str, Any]]:
    """Compute metrics of documents grouped by length in tokens, in groups of about equal size."""
    edges = np.unique(np.quantile(lengths_N, np.linspace(0, 1, _LENGTH_GROUPS + 1), method="nearest"))
    place_N = np.searchsorted(edges[1:-1], lengths_N, "right")
    right_N, predicted_N, gold_N = (np.diff(m.indptr) for m in (outcome.right, outcome.predicted, outcome.gold))
    rows = []
    for group in np.unique(place_N):
        inside = place_N == group
        decided = int(predicted_N[inside].sum() + gold_N[inside].sum())
        row: dict[str, Any] = {"low": int(lengths_N[inside].min()), "high": int(lengths_N[inside].max())}
        row |= {"docs": int(inside.sum()), "micro_f1": 2 * int(right_N[inside].sum()) / max(decided, 1)}
        for name in ("p@5", "ndcg@5"):
            ratio = ratios[name]
            row[name] = Ratio(ratio.numerator_N[inside], ratio.denominator_N[inside]).value
        rows.append(row)
    return rows


def confusion(outcome: Outcome) -> dict[str, Any]:
    """Count gold by predicted classes of a single-label task.

    Returns:
        `confusion`: documents by gold (rows) and predicted class (columns); beyond 100 classes `confusions` in its
        place: gold class, predicted class and documents of the 50 most frequent mistakes.
    """
    counts = (outcome.gold.T @ outcome.predicted).tocoo()
    if counts.shape[0] <= _CONFUSION_LABELS:
        return {"confusion": counts.toarray().astype(int).tolist()}
    wrong = counts.row != counts.col
    gold, predicted, documents = (x[wrong].astype(int) for x in (counts.row, counts.col, counts.data))
    order = np.lexsort((predicted, gold, -documents))[:_CONFUSIONS]
    return {"confusions": np.column_stack([gold, predicted, documents])[order].tolist()}
