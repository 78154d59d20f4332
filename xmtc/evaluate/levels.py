"""Decisions rolled up a label hierarchy.

Shapes: N documents, L labels, V nodes of the hierarchy (the labels first, then parents that are no labels).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.evaluate.classification import LabelSums, Outcome, label_scores
from xmtc.evaluate.predictions import shape_of


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
