"""What the report draws beyond the headline: curves, calibration, confusions.

Shapes: N documents, K kept predictions.
"""

from typing import Any

import numpy as np

from xmtc.evaluate.classification import Outcome
from xmtc.evaluate.judged import Judged, discounts
from xmtc.evaluate.predictions import shape_of

_CURVE_K = 20
_CONFUSION_LABELS = 100


def report_details(judged: Judged, *, exclusive: bool) -> dict[str, Any]:
    """Collect everything, JSON-able.

    Args:
        judged: predictions and the truth.
        exclusive: whether a document has exactly one label.
    """
    counts = judged.score_counts
    by_bin = {name: counts.reliability(name)["ece"] for name in judged.bins}
    details = {
        "cutoffs": cutoff_curves(judged),
        "threshold_curve": counts.threshold_curve(judged.gold.nnz),
        "reliability": counts.reliability() | {"ece_by_bin": by_bin},
    }
    if exclusive and shape_of(judged.gold)[1] <= _CONFUSION_LABELS:
        details["confusion"] = confusion(judged.outcome)
    return details


def cutoff_curves(judged: Judged) -> dict[str, list[float]]:
    """P@k, R@k and nDCG@k for k = 1…20 (or K): P@k over all documents, the others over those that have gold labels (0
    without any).
    """
    some, least = judged.counts_N > 0, max(int((judged.counts_N > 0).sum()), 1)
    hits_NK, counts_N = judged.hits_NK, judged.counts_N[some]
    width = min(_CURVE_K, hits_NK.shape[1])
    weights = discounts(width)
    curves: dict[str, list[float]] = {"k": list(range(1, width + 1)), "p": [], "r": [], "ndcg": []}
    found_N, gains_N = np.zeros((2, len(hits_NK)))
    for k in range(1, width + 1):
        found_N += hits_NK[:, k - 1]
        gains_N += hits_NK[:, k - 1] * weights[k - 1]
        curves["p"].append(float(found_N.mean() / k))
        curves["r"].append(float((found_N[some] / counts_N).sum() / least))
        curves["ndcg"].append(float((gains_N[some] / judged.ideal_gains(k)[some]).sum() / least))
    return curves


def confusion(outcome: Outcome) -> list[list[int]]:
    """Count documents of a single-label task by gold (rows) and predicted class (columns)."""
    return (outcome.gold.T @ outcome.predicted).toarray().astype(int).tolist()
