"""A monotone map from a scorer's score to log-odds, piecewise linear between knots, and what a regression reads.

Suffixes: P pairs, Q knots, N documents, K candidates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

_KNOTS = 20
"""Greatest number of knots, Q."""
_SMOOTHING = 0.5
"""Pseudo-count of each outcome, added to every bin."""


@dataclass(frozen=True)
class LogOdds:
    """Maps scores to log-odds; constant beyond the outer knots.

    Attributes:
        scores_Q: float64, ascending.
        log_odds_Q: float64, not decreasing.
    """

    scores_Q: NDArray[np.float64]
    log_odds_Q: NDArray[np.float64]

    def __call__(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Compute log-odds of scores of any shape."""
        return np.interp(scores, self.scores_Q, self.log_odds_Q)

    @classmethod
    def fit(
        cls, scores_P: NDArray[np.floating], right_P: NDArray[np.bool_]
    ) -> "LogOdds":
        """Count right and wrong pairs between quantiles, and pool adjacent bins that violate the order.

        Half of the knots are quantiles of all scores. The other half are quantiles of the scores of right pairs, which
        are high.

        Args:
            scores_P: scores of pairs.
            right_P: whether the document has the label.
        """
        if not len(scores_P):
            return cls(np.zeros(1), np.zeros(1))
        steps = np.linspace(0, 1, _KNOTS // 2 + 1)
        quantiles = [np.quantile(scores_P, steps)]
        if right_P.any():
            quantiles.append(np.quantile(scores_P[right_P], steps))
        edges = np.unique(np.concatenate(quantiles))
        last_bin = max(len(edges) - 2, 0)
        bin_P = np.clip(np.searchsorted(edges, scores_P, side="right") - 1, 0, last_bin)
        sizes = np.bincount(bin_P, minlength=1)
        nonempty = sizes > 0
        sizes_Q = sizes[nonempty].astype(np.float64)
        right_Q = np.bincount(bin_P, right_P.astype(np.float64), minlength=1)[nonempty]
        mean_scores_Q = np.bincount(bin_P, scores_P, minlength=1)[nonempty] / sizes_Q
        log_odds_Q = np.log((right_Q + _SMOOTHING) / (sizes_Q - right_Q + _SMOOTHING))
        return cls(mean_scores_Q, isotonic_regression(log_odds_Q, weights=sizes_Q).x)

    def inputs(
        self, scores_NK: NDArray[np.float32], used_NK: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Compute what a regression reads of one scorer, (4, N, K), see `xmtc.fusion.fusion`.

        Args:
            scores_NK: the scorer's scores; 0 if it does not know the label.
            used_NK: which places are not padding.
        """
        missing_NK = (scores_NK == 0) | ~used_NK
        log_odds_NK = np.where(missing_NK, self.log_odds_Q[0], self(scores_NK))
        best_N1 = np.where(used_NK, log_odds_NK, -np.inf).max(axis=1, keepdims=True)
        best_N1 = np.where(np.isfinite(best_N1), best_N1, 0)
        ranks_NK = ranks_along_rows(np.where(missing_NK, np.inf, -scores_NK))
        known_count_N1 = (~missing_NK).sum(axis=1, keepdims=True)
        ranks_NK = np.where(missing_NK, known_count_N1, ranks_NK)
        return np.stack(
            [
                log_odds_NK,
                missing_NK & used_NK,
                log_odds_NK - best_N1,
                np.log1p(ranks_NK),
            ]
        )


def ranks_along_rows(values_NK: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rank the values of each row from 0, ascending; equal ones by their place."""
    order_NK = np.argsort(values_NK, axis=1, kind="stable")
    ranks_1K = np.arange(values_NK.shape[1], dtype=np.float64)[None]
    ranks_NK = np.empty(values_NK.shape, np.float64)
    np.put_along_axis(ranks_NK, order_NK, ranks_1K, axis=1)
    return ranks_NK
