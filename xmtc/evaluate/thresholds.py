"""From which score on a label counts as predicted.

Shapes: N documents, K kept predictions, L labels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate.predictions import Gold, SparsePredictions, match, shape_of
from xmtc.evaluate.ranked import rank_by_label

_LEAST_SUPPORT = 10
"""Gold documents of a label that gets its own threshold."""


@dataclass(frozen=True)
class Thresholds:
    """Scores (probabilities) at or above which a label is predicted.

    Attributes:
        global_: for every label without its own.
        per_label: float32 (L,), or None when only the global one was tuned.
    """

    global_: float
    per_label: NDArray[np.float32] | None = None

    @property
    def own(self) -> int:
        """How many labels have a threshold other than the global one."""
        return 0 if self.per_label is None else int((self.per_label != np.float32(self.global_)).sum())

    def chosen(self, predictions: SparsePredictions) -> NDArray[np.bool_]:
        """Mark the predictions that are made: boolean (N, K)."""
        limit = np.float32(self.global_) if self.per_label is None else self.per_label[predictions.label_ids_NK]
        return (predictions.scores_NK >= limit) & (predictions.label_ids_NK >= 0)


def best_of_each(predictions: SparsePredictions) -> NDArray[np.bool_]:
    """Choose each document's best label, the decision of single-label tasks: boolean (N, K)."""
    chosen_NK = np.zeros(predictions.label_ids_NK.shape, np.bool_)
    chosen_NK[:, :1] = predictions.label_ids_NK[:, :1] >= 0
    return chosen_NK


def tune_threshold(
    predictions: SparsePredictions,
    gold: Gold,
    *,
    probabilities: bool = False,
    per_label: bool = False,
) -> Thresholds:
    """Find the thresholds of greatest F1 on these documents, which must be dev documents, never test.

    The global threshold maximises micro-F1, exactly, over all scores that occur. A label's own threshold maximises
    its F1 where it has at least 10 gold documents; the others take the global one, because a threshold
    fitted to a few documents does not carry over.

    Args:
        predictions: (N, K).
        gold: boolean (N, L).
        probabilities: whether scores are calibrated. The global threshold then maximises the F1 in which each
            prediction counts as right by the mean of its label and its score. On few documents this varies less.
        per_label: also tune each label's own.

    Returns:
        Thresholds; with no right prediction at all, 0.5.
    """
    hits_NK = match(predictions.label_ids_NK, gold)
    used_NK = predictions.label_ids_NK >= 0
    scores_P, hits_P = predictions.scores_NK[used_NK], hits_NK[used_NK]
    global_ = _best_global(scores_P, hits_P, gold.nnz, probabilities=probabilities)
    if not per_label:
        return Thresholds(global_)
    return Thresholds(global_, _best_per_label(predictions, hits_NK, gold, global_))


def _best_global(
    scores_P: NDArray[np.float32], hits_P: NDArray[np.bool_], positives: float, *, probabilities: bool
) -> float:
    """Find the score at which 2·tp / (predicted + positives) is greatest; only between unequal scores."""
    if not hits_P.any():
        return 0.5
    # Scores are not negative, so their bits order as they do; the hit flag rides in the lowest bit of one fast sort.
    keys_P = (scores_P + np.float32(0)).view(np.uint32).astype(np.uint64)  # + 0 turns −0 into 0
    keys_P <<= np.uint64(1)
    keys_P |= hits_P
    keys_P.sort()
    keys_P = keys_P[::-1]
    right_P = (keys_P & np.uint64(1)).astype(np.bool_)
    keys_P >>= np.uint64(1)
    sorted_P = keys_P.astype(np.uint32).view(np.float32)
    if probabilities:
        found_P = np.cumsum((right_P + sorted_P.astype(np.float64)) / 2)
        positives += found_P[-1] - right_P.sum()  # labels without a prediction count fully
    else:
        found_P = np.cumsum(right_P, dtype=np.int32 if len(keys_P) < 2**31 else np.int64)
    last_P = np.flatnonzero(np.append(keys_P[1:] != keys_P[:-1], True))
    f1 = 2 * found_P[last_P] / (last_P + 1 + positives)
    return float(sorted_P[last_P[np.argmax(f1)]])


def _best_per_label(
    predictions: SparsePredictions, hits_NK: NDArray[np.bool_], gold: Gold, global_: float
) -> NDArray[np.float32]:
    support_L = np.bincount(gold.indices, minlength=shape_of(gold)[1])
    thresholds_L = np.full(shape_of(gold)[1], global_, np.float32)
    for block in rank_by_label(predictions, hits_NK, shape_of(gold)[1]):
        f1_P = 2 * block.found / (block.place + support_L[block.labels])
        f1_P[~block.last_of_score] = -1
        starts = np.flatnonzero(block.place == 1)
        labels = block.labels[starts]
        best = np.maximum.reduceat(f1_P, starts)
        # of equal F1 the higher threshold: the first place within the label
        reached = np.flatnonzero(f1_P == np.repeat(best, np.diff(np.append(starts, len(f1_P)))))
        first = reached[np.searchsorted(reached, starts)]
        tuned = (support_L[labels] >= _LEAST_SUPPORT) & (best > 0)
        thresholds_L[labels[tuned]] = block.scores[first[tuned]]
    return thresholds_L
