"""Metrics of rankings: P@k, R@k, RP@k, nDCG@k and their propensity-scored forms.

Each is a ratio of two sums over documents, so each is kept as a numerator and a denominator per document; the
bootstrap then only re-weights documents. A mean over documents has denominator 1; documents without gold labels have
denominator 0 in R@k, RP@k and nDCG@k, where they have no defined value.

Shapes: N documents, K kept predictions, L labels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate.cutoffs import NDCG_AT, PRECISION_AT, PROPENSITY_AT, RECALL_AT
from xmtc.evaluate.predictions import Gold, SparsePredictions

Floats = NDArray[np.float32]

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Ratio:
    """A metric as Σ numerator / Σ denominator over documents.

    Attributes:
        numerator_N: float32.
        denominator_N: float32; metrics with the same denominator share the array.
    """

    numerator_N: Floats
    denominator_N: Floats

    @property
    def value(self) -> float:
        """The metric; 0 if the denominator is 0 (no document has a value)."""
        total = float(self.denominator_N.sum(dtype=np.float64))
        return float(self.numerator_N.sum(dtype=np.float64)) / total if total else 0.0


def discounts(k: int) -> NDArray[np.float64]:
    """Compute 1/log2(rank + 1) for ranks 1…k."""
    return 1 / np.log2(np.arange(2, k + 2))


def ideal_gains(k: int, gold_counts_N: NDArray[np.integer]) -> NDArray[np.float64]:
    """Compute nDCG@k's normaliser Σ_{r ≤ min(k, |y|)} 1/log2(r+1) per document (N,)."""
    return np.concatenate([[0.0], np.cumsum(discounts(k))])[np.minimum(gold_counts_N, k)]


def ranking_ratios(
    hits_NK: NDArray[np.bool_],
    predictions: SparsePredictions,
    gold: Gold,
    inverse_propensities_L: NDArray[np.float64],
) -> dict[str, Ratio]:
    """Compute the ranking metrics, named as in metrics.json.

    Args:
        hits_NK: which predictions are right.
        predictions: (N, K).
        gold: boolean (N, L).
        inverse_propensities_L: 1/p of each label.
    """
    counts_N = np.diff(gold.indptr)
    every_N = np.ones(len(counts_N), np.float32)
    some_N = (counts_N > 0).astype(np.float32)
    totals_NK = np.cumsum(hits_NK[:, :10], axis=1, dtype=np.int32)
    found = {k: totals_NK[:, min(k, totals_NK.shape[1]) - 1] for k in range(1, 11)}
    safe_N = np.maximum(counts_N, 1)
    ratios = {f"p@{k}": Ratio((found[k] / k).astype(np.float32), every_N) for k in PRECISION_AT}
    ratios |= {f"r@{k}": Ratio((found[k] / safe_N).astype(np.float32), some_N) for k in RECALL_AT}
    ratios["rp@5"] = Ratio((found[5] / np.minimum(safe_N, 5)).astype(np.float32), some_N)
    for k in NDCG_AT:
        gains_N = hits_NK[:, :k] @ discounts(k)[: hits_NK.shape[1]]
        ratios[f"ndcg@{k}"] = Ratio((gains_N / ideal_gains(k, safe_N)).astype(np.float32), some_N)
    return ratios | _propensity_ratios(hits_NK, predictions, gold, inverse_propensities_L)


def _propensity_ratios(
    hits_NK: NDArray[np.bool_], predictions: SparsePredictions, gold: Gold, inverse_propensities_L: NDArray[np.float64]
) -> dict[str, Ratio]:
    """Compute PSP@k and PSnDCG@k as ratios of totals to the best attainable totals (Jain et al. 2016).

    Two PSnDCG variants are in use. This is xclib's: every document's discounted gain, attained and best attainable
    alike, is first divided by Σ_{r ≤ min(k, |y|)} 1/log2(r+1).
    """
    width = max(PROPENSITY_AT)
    attained_NK = hits_NK[:, :width] * inverse_propensities_L[predictions.label_ids_NK[:, :width]]
    attainable_NK = _best_attainable(gold, inverse_propensities_L, width)
    counts_N = np.maximum(np.diff(gold.indptr), 1)
    ratios = {}
    for k in PROPENSITY_AT:
        ratios[f"psp@{k}"] = Ratio(
            (attained_NK[:, :k].sum(1) / k).astype(np.float32), (attainable_NK[:, :k].sum(1) / k).astype(np.float32)
        )
    for k in PROPENSITY_AT:
        weights, scale_N = discounts(k), ideal_gains(k, counts_N)
        ratios[f"psndcg@{k}"] = Ratio(
            (attained_NK[:, :k] @ weights[: attained_NK.shape[1]] / scale_N).astype(np.float32),
            (attainable_NK[:, :k] @ weights / scale_N).astype(np.float32),
        )
    return ratios


def _best_attainable(gold: Gold, weights_L: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Find the k greatest weights among each document's gold labels, descending, padded with 0: (N, k)."""
    counts_N = np.diff(gold.indptr)
    rows = np.repeat(np.arange(len(counts_N)), counts_N)
    weights = weights_L[gold.indices]
    order = np.lexsort((-weights, rows))
    place = np.arange(len(rows)) - gold.indptr[rows]
    kept = place < k
    best_NK = np.zeros((len(counts_N), k))
    best_NK[rows[kept], place[kept]] = weights[order][kept]
    return best_NK


def ratios_of_some(
    hits_NK: NDArray[np.bool_], predictions: SparsePredictions, gold: Gold, mask_L: NDArray[np.bool_]
) -> dict[str, Ratio]:
    """Compute RP@5, nDCG@5 and R@10 of some labels, over the documents that have any of them.

    For RP@5 and nDCG@5, the other labels leave the ranking as well as the gold set (as EURLEX57K's authors do for few
    and zero labels); the ranking is that of the kept predictions. For R@10, all labels compete for the places.

    Args:
        hits_NK: which predictions are right.
        predictions: (N, K).
        gold: boolean (N, L).
        mask_L: the labels.
    """
    # as float64, because a matrix product of booleans is a boolean
    counts_N = np.asarray(gold.astype(np.float64) @ mask_L.astype(np.float64)).astype(np.int64)
    found_N, gains_N, recalled_N = np.zeros((3, len(counts_N)))
    rank_weight = discounts(5)
    for start in range(0, len(counts_N), _BLOCK):
        ids_BK = predictions.label_ids_NK[start : start + _BLOCK]
        inside_BK = mask_L[ids_BK] & (ids_BK >= 0)
        ranks_BK = np.cumsum(inside_BK, axis=1, dtype=np.int32)
        right_BK = inside_BK & hits_NK[start : start + _BLOCK]
        rows, columns = np.nonzero(right_BK & (ranks_BK <= 5))
        size = len(ids_BK)
        recalled_N[start : start + size] = right_BK[:, :10].sum(axis=1)
        found_N[start : start + size] = np.bincount(rows, minlength=size)
        gains_N[start : start + size] = np.bincount(rows, rank_weight[ranks_BK[rows, columns] - 1], minlength=size)
    some_N = (counts_N > 0).astype(np.float32)
    safe_N = np.maximum(counts_N, 1)
    return {
        "rp@5": Ratio((found_N / np.minimum(safe_N, 5)).astype(np.float32), some_N),
        "ndcg@5": Ratio((gains_N / ideal_gains(5, safe_N)).astype(np.float32), some_N),
        "r@10": Ratio((recalled_N / safe_N).astype(np.float32), some_N),
    }
