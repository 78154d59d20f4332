"""What the report draws beyond the headline: curves, calibration, lengths.

Shapes: N documents, K kept predictions, L labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.evaluate.classification import LabelSums, Outcome, label_scores
from xmtc.evaluate.judged import Judged, discounts
from xmtc.evaluate.metrics import Ratio
from xmtc.evaluate.predictions import shape_of

_CURVE_K = 20
_CONFUSION_LABELS = 100
_LENGTH_GROUPS = 5
_CONFUSIONS = 50


def report_details(
    judged: Judged,
    labels: LabelTable,
    ratios: Mapping[str, Ratio],
    lengths_N: NDArray[np.int32] | None,
    *,
    exclusive: bool,
) -> dict[str, Any]:
    """Collect everything, JSON-able.

    Args:
        judged: predictions and the truth.
        labels: label table, for its hierarchy.
        ratios: metrics of documents.
        lengths_N: content tokens of each document, if known.
        exclusive: whether a document has exactly one label.
    """
    counts = judged.score_counts
    by_bin = {name: counts.reliability(name)["ece"] for name in judged.bins}
    details = {
        "cutoffs": cutoff_curves(judged),
        "threshold_curve": counts.threshold_curve(judged.gold.nnz),
        "reliability": counts.reliability() | {"ece_by_bin": by_bin},
        "levels": by_level(labels, judged.outcome),
    }
    if lengths_N is not None:
        details["lengths"] = by_length(lengths_N, ratios, judged.outcome)
    return details | confusion(judged.outcome) if exclusive else details


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


def by_level(labels: LabelTable, outcome: Outcome) -> list[dict[str, Any]]:
    """Compute metrics of decisions in which every label represents its ancestors of one level.

    Level 0 holds nodes without parents, level n nodes n steps below one (by the shortest way). Labels above a level
    have no part in it.

    Returns:
        Per level: level, labels (nodes with gold documents), micro_precision, micro_recall, micro_f1, macro_f1;
        empty if the labels have no parents.
    """
    if labels.parents is None:
        return []
    above_LV, depth_V = ancestors(labels)
    rows = []
    for level in range(int(depth_V.max(initial=-1)) + 1):
        column = sparse.csr_array(sparse.csc_array(above_LV)[:, depth_V == level])
        predicted, gold = (_roll_up(matrix, column) for matrix in (outcome.predicted, outcome.gold))
        right = predicted.multiply(gold)
        right_V1, predicted_V1, gold_V1 = (
            np.asarray(m.sum(axis=0), np.float64).reshape(-1, 1) for m in (right, predicted, gold)
        )
        scores = label_scores(LabelSums(right_V1, predicted_V1, gold_V1, np.ones((1, len(gold_V1)))))
        row = {name: float(scores[name][0, 0]) for name in ("micro_precision", "micro_recall", "micro_f1", "macro_f1")}
        rows.append({"level": level, "labels": int((gold_V1 > 0).sum())} | row)
    return rows


def _roll_up(matrix_NL: sparse.csr_array, column: sparse.csr_array) -> sparse.csr_array:
    rolled = sparse.csr_array(matrix_NL @ column)
    rolled.data[:] = 1
    return rolled


def ancestors(labels: LabelTable) -> tuple[sparse.csr_array, NDArray[np.int64]]:
    """Find each label's ancestors, itself included, float32 (L, V), and every node's level, −1 within cycles."""
    parents = labels.parents or []
    nodes = {label: i for i, label in enumerate(labels.labels)}
    edges = [(child, nodes.setdefault(p, len(nodes))) for child, row in enumerate(parents) for p in row]
    children, uppers = np.array(edges, np.int64).reshape(-1, 2).T
    up = sparse.csr_array((np.ones(len(edges), np.float32), (children, uppers)), shape=(len(nodes), len(nodes)))
    depth_V = np.where(np.diff(up.indptr) == 0, 0, -1)
    frontier, level = depth_V == 0, 0
    while frontier.any():
        level += 1
        frontier = (up @ frontier.astype(np.float32) > 0) & (depth_V < 0)
        depth_V[frontier] = level
    return _closure(up)[: len(labels)], depth_V


def _closure(up: sparse.csr_array) -> sparse.csr_array:
    """Mark every node and all that can be reached from it with 1; paths may be longer than the shortest."""
    above, known = sparse.csr_array(sparse.eye_array(shape_of(up)[0]), dtype=np.float32), -1
    while above.nnz > known:
        known = above.nnz
        above = sparse.csr_array(above + above @ up)
        above.data[:] = 1
    return above
