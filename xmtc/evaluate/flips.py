"""The decisions of two models on the same documents: which labels flip, where, and which way people decided.

Suffixes: N documents, K kept predictions, L labels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.bins import bin_mask
from xmtc.data.labels import LabelTable
from xmtc.evaluate.bootstrap import ratio_interval
from xmtc.evaluate.metrics import Ratio
from xmtc.scorers.predictions import Gold, SparsePredictions, as_matrix, without

_BRANCHES = 10
_LABELS = 50

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
    table = _FlipCounts.of(before, after, gold, judged_N, len(labels))
    masks_of_bins = {name: bin_mask(name, labels.train_counts) for name in bins}
    return {
        "documents": len(judged_N),
        "flipped": int(np.count_nonzero(table.flipped.sum(axis=1))),
        "judged": int(judged_N.sum()),
        "all": table.row("all", np.ones(len(labels), np.bool_)),
        "bins": table.rows(masks_of_bins),
        "branches": table.rows(_branches(labels, table.flips_L)),
        "labels": _rows_of_labels(labels, table),
    }


@dataclass(frozen=True)
class _FlipCounts:
    """What two models decide, by document and label.

    Attributes:
        flipped: labels that only one of the two gives, (N, L).
        either: labels that at least one of the two gives, (N, L).
        counts_7L: of each label, the seven counts of a row, see `flips`.
    """

    flipped: sparse.csc_array
    either: sparse.csc_array
    counts_7L: NDArray[np.floating]

    @classmethod
    def of(
        cls,
        before: Decisions,
        after: Decisions,
        gold: Gold,
        judged_N: NDArray[np.bool_],
        label_count: int,
    ) -> "_FlipCounts":
        """Compare the decisions of two models."""
        old = as_matrix(*before, label_count)
        new = as_matrix(*after, label_count)
        same = old.multiply(new).tocsr()
        lost = without(old, same)
        gained = without(new, same)
        judged = sparse.diags_array(judged_N.astype(np.float32), format="csr")
        given = sparse.csr_array(judged @ gold.astype(np.float32))
        lost_given = lost * given
        gained_given = gained * given
        matrices = [
            old,
            lost,
            gained,
            lost_given,
            judged @ lost - lost_given,
            gained_given,
            judged @ gained - gained_given,
        ]
        counts_7L = np.array(
            [np.asarray(matrix.sum(axis=0)).ravel() for matrix in matrices]
        )
        return cls(
            sparse.csc_array(lost + gained), sparse.csc_array(old + gained), counts_7L
        )

    @property
    def flips_L(self) -> NDArray[np.floating]:
        """Documents in which a label is lost or gained."""
        _, lost_L, gained_L, *_ = self.counts_7L
        return lost_L + gained_L

    def row(self, title: str, mask_L: NDArray[np.bool_]) -> list[Any]:
        """Make the row of some labels."""
        flipped_N = np.asarray(self.flipped[:, mask_L].sum(axis=1)).ravel()
        either_N = np.asarray(self.either[:, mask_L].sum(axis=1)).ravel()
        ratio = Ratio.of(flipped_N, either_N)
        counts = [int(count) for count in self.counts_7L[:, mask_L].sum(axis=1)]
        return [title, *counts, [ratio.value, *ratio_interval(ratio)]]

    def rows(self, masks: dict[str, NDArray[np.bool_]]) -> list[list[Any]]:
        """Make a row for each group of labels of which either model gives any."""
        return [
            self.row(name, mask_L)
            for name, mask_L in masks.items()
            if self.either[:, mask_L].nnz
        ]


def _rows_of_labels(labels: LabelTable, table: _FlipCounts) -> list[list[Any]]:
    """Make the rows of the labels with the most flips."""
    rows = []
    for label_id in np.argsort(-table.flips_L, kind="stable")[:_LABELS]:
        if table.flips_L[label_id] == 0:
            break
        counts = [int(count) for count in table.counts_7L[:, label_id]]
        train_count = int(labels.train_counts[label_id])
        rows.append(
            [labels.labels[label_id], labels.names[label_id], train_count, *counts]
        )
    return rows


def _branches(
    labels: LabelTable, flips_L: NDArray[np.floating]
) -> dict[str, NDArray[np.bool_]]:
    """Find the branches with the most flips: a branch is everything beneath a label without parents."""
    if labels.parents is None:
        return {}
    parents = dict(zip(labels.labels, labels.parents, strict=True))
    flips_by_top: Counter[str] = Counter()
    for label_id in np.flatnonzero(flips_L):
        for label in _with_ancestors(labels.labels[label_id], parents):
            if not parents.get(label):
                flips_by_top[label] += int(flips_L[label_id])
    if len(flips_by_top) <= 1:
        return {}
    label_ids = np.arange(len(labels))
    return {
        top: np.isin(label_ids, labels.branch(top))
        for top, _ in flips_by_top.most_common(_BRANCHES)
    }


def _with_ancestors(label: str, parents: Mapping[str, Sequence[str]]) -> set[str]:
    """Collect a label and everything above it."""
    waiting = [label]
    reached: set[str] = set()
    while waiting:
        current = waiting.pop()
        if current not in reached:
            reached.add(current)
            waiting += parents.get(current, ())
    return reached
