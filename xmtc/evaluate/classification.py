"""Decisions next to the truth, counted by label and by document.

Shapes: N documents, L labels, R resamples (1 for the plain value), G groups of labels.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.evaluate.metrics import LabelMetric, all_metrics
from xmtc.scorers.predictions import Gold, SparsePredictions, as_matrix, shape_of


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
        cls,
        predictions: SparsePredictions,
        chosen_NK: NDArray[np.bool_],
        hits_NK: NDArray[np.bool_],
        gold: Gold,
    ) -> "Outcome":
        """Make the outcome from the predictions made (`chosen_NK`) and which of all are right (`hits_NK`)."""
        labels = shape_of(gold)[1]
        right = as_matrix(predictions, chosen_NK & hits_NK, labels)
        return cls(
            as_matrix(predictions, chosen_NK, labels),
            right,
            sparse.csr_array(gold, dtype=np.float32),
        )

    @cached_property
    def right_L(self) -> NDArray[np.int32]:
        """Documents of each label where it is right."""
        return _documents_by_label(self.right)

    @cached_property
    def predicted_L(self) -> NDArray[np.int32]:
        """Documents of each label where it is predicted."""
        return _documents_by_label(self.predicted)

    @cached_property
    def gold_L(self) -> NDArray[np.int32]:
        """Documents of each label where it is gold."""
        return _documents_by_label(self.gold)

    def document_counts(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Count right, predicted and gold labels of each document: float32 (N,) each."""
        right_N = np.diff(self.right.indptr).astype(np.float32)
        predicted_N = np.diff(self.predicted.indptr).astype(np.float32)
        gold_N = np.diff(self.gold.indptr).astype(np.float32)
        return right_N, predicted_N, gold_N

    def f1_N(self) -> NDArray[np.float32]:
        """Compute the F1 of each document's labels; two empty sets have F1 1."""
        right_N, predicted_N, gold_N = self.document_counts()
        empty_N = predicted_N + gold_N == 0
        return (2 * right_N + empty_N) / (predicted_N + gold_N + empty_N)

    def label_sums(self, masks_GL: NDArray[np.bool_]) -> "LabelSums":
        """Count labels over groups of them; labels that are neither gold nor predicted add nothing to any sum."""
        used_labels = np.union1d(self.predicted.indices, self.gold.indices)
        right_L1 = self.right_L[used_labels, None].astype(np.float64)
        predicted_L1 = self.predicted_L[used_labels, None].astype(np.float64)
        gold_L1 = self.gold_L[used_labels, None].astype(np.float64)
        labels_G = masks_GL.sum(1, dtype=np.float64)
        return LabelSums(
            right_L1, predicted_L1, gold_L1, masks_GL[:, used_labels], labels_G
        )


def _documents_by_label(matrix: sparse.csr_array) -> NDArray[np.int32]:
    return np.bincount(matrix.indices, minlength=shape_of(matrix)[1]).astype(np.int32)


class LabelSums:
    """Counts of labels, and their sums and means over groups of labels.

    Args:
        right_LR: documents where the label was predicted and is gold.
        predicted_LR: documents where it was predicted.
        gold_LR: documents where it is gold.
        masks_GL: 1 for the labels of each group.
        labels_G: how many labels each group has, where labels without any document are left out of the counts.
        support_L1: if documents are weighted, the gold documents of each label without weights. Means then weight a
            label by `gold_LR / support_L1`, the mean weight of its documents, so that they vary with the labels that
            the documents bring. None: labels with gold documents weigh the same.
    """

    def __init__(
        self,
        right_LR: NDArray[np.floating],
        predicted_LR: NDArray[np.floating],
        gold_LR: NDArray[np.floating],
        masks_GL: NDArray[np.floating | np.bool_],
        labels_G: NDArray[np.float64] | None = None,
        support_L1: NDArray[np.floating] | None = None,
    ) -> None:
        self.right_LR = right_LR
        self.predicted_LR = predicted_LR
        self.gold_LR = gold_LR
        self._masks = sparse.csr_array(masks_GL)
        self.labels_G = (
            masks_GL.sum(1, dtype=np.float64) if labels_G is None else labels_G
        )
        if support_L1 is None:
            self._absent_L1 = gold_LR == 0
            self._weights_LR = (gold_LR > 0).astype(gold_LR.dtype)
        else:
            self._absent_L1 = support_L1 == 0
            self._weights_LR = self.share(
                gold_LR, np.broadcast_to(support_L1, gold_LR.shape)
            )
        self.right_GR = self._sum(right_LR)
        self.predicted_GR = self._sum(predicted_LR)
        self.gold_GR = self._sum(gold_LR)
        self.labels_GR = self._sum(self._weights_LR)

    @cached_property
    def macro_precision_GR(self) -> NDArray[np.floating]:
        """Mean precision of the labels with gold documents."""
        return self.mean_over_labels(self.share(self.right_LR, self.predicted_LR))

    @cached_property
    def macro_recall_GR(self) -> NDArray[np.floating]:
        """Mean recall of the labels with gold documents."""
        return self.mean_over_labels(self.share(self.right_LR, self.gold_LR))

    @cached_property
    def f1_GR(self) -> NDArray[np.floating]:
        """Sum of F1 over the labels with gold documents."""
        return self.sum_over_labels(
            self.share(2 * self.right_LR, self.predicted_LR + self.gold_LR)
        )

    @cached_property
    def found_GR(self) -> NDArray[np.floating]:
        """Labels with gold documents, by their weights, and labels that are predicted without any."""
        only_predicted_LR = (self.predicted_LR > 0) & self._absent_L1
        return self.labels_GR + self._sum(
            only_predicted_LR.astype(self.predicted_LR.dtype)
        )

    @staticmethod
    def share(
        part: NDArray[np.floating], whole: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """Divide; 0 where the whole is 0."""
        return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)

    def sum_over_labels(self, values_LR: NDArray[np.floating]) -> NDArray[np.float64]:
        """Sum over the labels with gold documents of each group, by the labels' weights: (G, R)."""
        return self._sum(values_LR * self._weights_LR)

    def mean_over_labels(self, values_LR: NDArray[np.floating]) -> NDArray[np.floating]:
        """Average over the labels with gold documents of each group, by the labels' weights: (G, R)."""
        return self.share(self.sum_over_labels(values_LR), self.labels_GR)

    def _sum(self, values_LR: NDArray[np.floating]) -> NDArray[np.float64]:
        return (self._masks.astype(values_LR.dtype) @ values_LR).astype(np.float64)


def label_scores(sums: LabelSums) -> dict[str, NDArray[np.floating]]:
    """Compute every metric over labels: name → (G, R)."""
    return {
        metric.name: metric.compute(sums)
        for metric in all_metrics()
        if isinstance(metric, LabelMetric)
    }
