"""What the report draws beyond the headline: curves, calibration, confusions.

Shapes: N documents, K kept predictions.
"""

from typing import Any

from xmtc.evaluate.classification import Outcome
from xmtc.evaluate.judged import Judged
from xmtc.evaluate.metrics import ndcg, precision, recall
from xmtc.scorers.predictions import shape_of

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


def cutoff_curves(judged: Judged) -> dict[str, list[Any]]:
    """P@k, R@k and nDCG@k for k = 1…20 (or K)."""
    longest = min(_CURVE_K, judged.hits_NK.shape[1])
    cutoffs = list(range(1, longest + 1))
    curves: dict[str, list[Any]] = {"k": cutoffs}
    for name, metric_at in (("p", precision), ("r", recall), ("ndcg", ndcg)):
        curves[name] = [metric_at(k).compute(judged).value for k in cutoffs]
    return curves


def confusion(outcome: Outcome) -> list[list[int]]:
    """Count documents of a single-label task by gold (rows) and predicted class (columns)."""
    return (outcome.gold.T @ outcome.predicted).toarray().astype(int).tolist()
