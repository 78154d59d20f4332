"""The decisions of two models on the same documents: which labels flip, where, and which way people decided.

Suffixes: N documents, K kept predictions, L labels.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.bins import bin_mask
from xmtc.data.labels import LabelTable
from xmtc.evaluate.bootstrap import ratio_interval
from xmtc.evaluate.metrics import Ratio
from xmtc.scorers.predictions import Gold, SparsePredictions, as_matrix, without

_BRANCHES, _LABELS = 10, 50


Decisions = tuple[SparsePredictions, NDArray[np.bool_]]
"""Predictions, and those that are made: (N, K)."""


def flips(
    before: Decisions,
    after: Decisions,
    labels: LabelTable,
    bins: Sequence[str],
    gold: Gold,
    judged_N: NDArray[np.bool_],
) -> dict[str, Any]:
    """Count the labels that only one of two models gives to a document.

    Args:
        before: decisions of the first model.
        after: decisions of the second model.
        labels: L labels of both.
        bins: bins of labels.
        gold: the labels that people gave, boolean (N, L).
        judged_N: which documents they labelled.

    Returns:
        JSON-able: numbers of `documents`, of those with a flip (`flipped`) and of those people labelled (`judged`).
        A row for `all` labels, for `bins` and `branches`: the labels that the first model gives; those lost; those
        gained; of the lost in judged documents, how many people gave, and did not; the same of the gained; and the
        share of flips in what either model gives, with its interval. Rows of `labels`: label, name, training documents
        and these counts.
    """
    size = len(labels)
    old, new = (as_matrix(*one, size) for one in (before, after))
    kept = old.multiply(new).tocsr()
    lost, gained = without(old, kept), without(new, kept)
    judged = sparse.diags_array(judged_N.astype(np.float32), format="csr")
    wanted = sparse.csr_array(judged @ gold.astype(np.float32))
    counted = [
        old,
        lost,
        gained,
        *(part for one in (lost, gained) for part in (one * wanted, judged @ one - one * wanted)),
    ]
    counts_7L = np.array([np.asarray(matrix.sum(axis=0)).ravel() for matrix in counted])
    flipped, either = sparse.csc_array(lost + gained), sparse.csc_array(old + gained)

    def row(title: str, mask_L: NDArray[np.bool_]) -> list[Any]:
        top_N, whole_N = (np.asarray(matrix[:, mask_L].sum(axis=1)).ravel() for matrix in (flipped, either))
        ratio = Ratio.of(top_N, whole_N)
        return [title, *(int(n) for n in counts_7L[:, mask_L].sum(axis=1)), [ratio.value, *ratio_interval(ratio)]]

    def rows(masks: dict[str, NDArray[np.bool_]]) -> list[list[Any]]:
        return [row(name, mask_L) for name, mask_L in masks.items() if either[:, mask_L].nnz]

    flips_L = counts_7L[1] + counts_7L[2]
    most = [int(at) for at in np.argsort(-flips_L, kind="stable")[:_LABELS] if flips_L[at]]
    by_label = [(labels.labels[at], labels.names[at], int(labels.train_counts[at]), counts_7L[:, at]) for at in most]
    return {
        "documents": len(before[0]),
        "flipped": int(np.count_nonzero(flipped.sum(axis=1))),
        "judged": int(judged_N.sum()),
        "all": row("all", np.ones(size, np.bool_)),
        "bins": rows({name: bin_mask(name, labels.train_counts) for name in bins}),
        "branches": rows(_branches(labels, flips_L)),
        "labels": [[label, name, count, *map(int, counts_7)] for label, name, count, counts_7 in by_label],
    }


def _branches(labels: LabelTable, flips_L: NDArray[np.floating]) -> dict[str, NDArray[np.bool_]]:
    """Find the branches with the most flips: a branch is everything beneath a label without parents."""
    if labels.parents is None:
        return {}
    parents = dict(zip(labels.labels, labels.parents, strict=True))
    tops: Counter[str] = Counter()
    for at in np.flatnonzero(flips_L):
        waiting, seen = [labels.labels[at]], set()
        while waiting:
            label = waiting.pop()
            if label not in seen:
                seen.add(label)
                waiting += parents.get(label, ())
        tops.update({label: int(flips_L[at]) for label in seen if not parents.get(label)})
    found = {top: np.isin(np.arange(len(labels)), labels.branch(top)) for top, _ in tops.most_common(_BRANCHES)}
    return found if len(tops) > 1 else {}
