"""How many predictions, and how many right ones, have which score.

Shapes: N documents, K kept predictions, L labels, B documents of a block.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate.predictions import SparsePredictions

_SCORE_STEPS = 1000
_CALIBRATION_BINS = 15
_BLOCK = 1 << 15
_ALL = ""  # the group of all labels


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
