"""Metrics of decisions: precision, recall and F1 over labels, and per document.

Shapes: N documents, L labels, R resamples (1 for the plain value), G groups of labels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.evaluate.predictions import Gold, SparsePredictions, select, shape_of
from xmtc.evaluate.ranking import Ratio


@dataclass(frozen=True)
class Outcome:
    """Decisions and the truth, each a float32 matrix of ones (N, L).

    Attributes:
        predicted: labels predicted.
        right: labels predicted that are gold.
        gold: gold labels.
    """

    predicted: sparse.csr_array
    right: sparse.csr_array
    gold: sparse.csr_array

    @classmethod
    def of(
        cls, predictions: SparsePredictions, chosen_NK: NDArray[np.bool_], hits_NK: NDArray[np.bool_], gold: Gold
    ) -> "Outcome":
        """Make the outcome from the predictions made (`chosen_NK`) and which of all are right (`hits_NK`)."""
        labels = shape_of(gold)[1]
        right = select(predictions, chosen_NK & hits_NK, labels)
        return cls(select(predictions, chosen_NK, labels), right, sparse.csr_array(gold, dtype=np.float32))

    def label_counts(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Count right, predicted and gold documents of each label: int32 (L,) each."""
        labels = shape_of(self.gold)[1]
        right, predicted, gold = (
            np.bincount(matrix.indices, minlength=labels).astype(np.int32)
            for matrix in (self.right, self.predicted, self.gold)
        )
        return right, predicted, gold


def label_scores(
    right_LR: NDArray[np.floating],
    predicted_LR: NDArray[np.floating],
    gold_LR: NDArray[np.floating],
    masks_GL: NDArray[np.floating],
    labels_G: NDArray[np.float64] | None = None,
    support_L1: NDArray[np.floating] | None = None,
) -> dict[str, NDArray[np.floating]]:
    """Compute metrics over labels from their counts.

    Macro metrics are means over labels with gold documents; `macro_f1_all` is the mean over all labels, those without
    gold documents counting 0; `macro_f1_harmonic` is the harmonic mean of macro-precision and macro-recall, which
    older work on clinical coding calls macro-F1. The three differ by up to 2×: never mix them. A precision without
    predictions is 0.

    Args:
        right_LR: documents where the label was predicted and is gold.
        predicted_LR: documents where it was predicted.
        gold_LR: documents where it is gold.
        masks_GL: 1 for the labels of each group.
        labels_G: how many labels each group has, where labels without any document are left out of the counts.
        support_L1: if documents are weighted, the gold documents of each label without weights. Macro metrics then
            weight a label by `gold_LR / support_L1`, the mean weight of its documents, so that they vary with the
            labels that the documents bring. None: labels with gold documents weigh the same.

    Returns:
        Metric → (G, R); 0 if nothing defines it.
    """
    masks = sparse.csr_array(masks_GL)
    if support_L1 is None:
        weights_LR = (gold_LR > 0).astype(gold_LR.dtype)
    else:
        weights_LR = _ratio(gold_LR, np.broadcast_to(support_L1, gold_LR.shape))
    f1_LR = _ratio(2 * right_LR, predicted_LR + gold_LR)
    total = _sum(masks, weights_LR)
    all_G = masks_GL.sum(1, dtype=np.float64) if labels_G is None else labels_G
    right, predicted, gold = (_sum(masks, m) for m in (right_LR, predicted_LR, gold_LR))
    macro_precision = _ratio(_sum(masks, _ratio(right_LR, predicted_LR) * weights_LR), total)
    macro_recall = _ratio(_sum(masks, _ratio(right_LR, gold_LR) * weights_LR), total)
    f1_sum = _sum(masks, f1_LR * weights_LR)
    return {
        "micro_precision": _ratio(right, predicted),
        "micro_recall": _ratio(right, gold),
        "micro_f1": _ratio(2 * right, predicted + gold),
        "macro_precision": macro_precision,
        "macro_recall": macro_recall,
        "macro_f1": _ratio(f1_sum, total),
        "macro_f1_all": _ratio(f1_sum, np.broadcast_to(all_G[:, None], f1_sum.shape)),
        "macro_f1_harmonic": _ratio(2 * macro_precision * macro_recall, macro_precision + macro_recall),
    }


def _sum(masks: sparse.csr_array, values_LR: NDArray[np.floating]) -> NDArray[np.float64]:
    return (masks.astype(values_LR.dtype) @ values_LR).astype(np.float64)


def _ratio(numerator: NDArray[np.floating], denominator: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def document_ratios(outcome: Outcome) -> dict[str, Ratio]:
    """Compute samples-F1 (mean F1 of a document's label set) and exact match. Two empty sets have F1 1."""
    right_N, predicted_N, gold_N = (
        np.diff(matrix.indptr).astype(np.float32) for matrix in (outcome.right, outcome.predicted, outcome.gold)
    )
    total_N = predicted_N + gold_N
    f1_N = np.divide(2 * right_N, total_N, out=np.ones_like(right_N), where=total_N > 0)
    exact_N = ((right_N == predicted_N) & (right_N == gold_N)).astype(np.float32)
    every_N = np.ones_like(right_N)
    return {"samples_f1": Ratio(f1_N, every_N), "exact_match": Ratio(exact_N, every_N)}
