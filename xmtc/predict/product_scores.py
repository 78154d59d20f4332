"""Score with a head whose logits are products of vectors, without a table of all logits.

Suffixes: B documents, K kept labels.
"""

import sys

from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import ScoresByProduct
from xmtc.models.kernels.products import best_products


class ProductScores:
    """Finds a document's best labels among all, in chunks of labels.

    Args:
        classifier: classifier whose head is `ScoresByProduct`.
        size: K.
    """

    max_documents = sys.maxsize

    def __init__(self, classifier: Classifier, size: int) -> None:
        self._classifier, self.size = classifier, min(size, len(classifier.head.bias))

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids int64 (B, K) and their logits (B, K), best first."""
        classifier, head = self._classifier, self._classifier.head
        (vectors_BP,) = classifier.read(batch)
        return best_products(vectors_BP, head.weights, head.bias, self.size, classifier.calibrated)


def product_scores(classifier: nn.Module, size: int, *, independent: bool) -> ProductScores | None:
    """Make `ProductScores` if the classifier and its labels allow it; None if all logits are needed.

    Args:
        classifier: any model that scores.
        size: K.
        independent: whether labels do not exclude each other.
    """
    if not independent or not isinstance(classifier, Classifier):
        return None
    return ProductScores(classifier, size) if isinstance(classifier.head, ScoresByProduct) else None
