"""Small made-up predictions with a long tail, for the evaluation's tests."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.scorers.predictions import SparsePredictions


def gold_and_scores(
    documents: int = 300, labels: int = 40, seed: int = 0
) -> tuple[sparse.csr_array, NDArray]:
    """Boolean gold (N, L), every document with a label, and distinct informative scores in 0…1."""
    rng = np.random.default_rng(seed)
    prior = 1 / np.arange(1, labels + 1)
    gold = rng.random((documents, labels)) < 0.5 * prior
    gold[np.arange(documents), rng.integers(labels, size=documents)] = True
    logits = 2.0 * gold + 0.7 * np.log(prior) + rng.normal(size=gold.shape)
    return sparse.csr_array(gold), (1 / (1 + np.exp(-logits))).astype(np.float32)


def label_table(labels: int = 40, seed: int = 0) -> LabelTable:
    """Labels with train counts from 0 to 100, names, no parents."""
    counts = np.sort(
        np.random.default_rng(seed).choice([0, 1, 3, 5, 6, 10, 11, 50, 51, 100], labels)
    )[::-1]
    names = [f"label {i}" for i in range(labels)]
    return LabelTable(
        [f"L{i:03d}" for i in range(labels)], names, counts.astype(np.int64)
    )


def best(scores_NL: NDArray[np.floating], k: int) -> SparsePredictions:
    """The k best of each row of a score table (N, L); of equal scores, the lower label id first."""
    ids = np.argsort(-scores_NL, axis=1, kind="stable")[:, :k].astype(np.int32)
    return SparsePredictions(
        ids, np.take_along_axis(scores_NL, ids, axis=1).astype(np.float32)
    )


def whole(scores_NL: NDArray[np.floating]) -> SparsePredictions:
    """Predictions that keep every label."""
    return best(scores_NL, scores_NL.shape[1])
