"""Two-stage scoring: an index finds labels, and only their logits are computed. Exact scoring is the reference.

Suffixes: B documents, L labels, N shortlisted labels, K best labels, d width of label vectors.
"""

import sys
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.errors import ConfigError, XmtcError
from xmtc.mining.index import LabelIndex, query_vectors
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import ScoresByProduct
from xmtc.models.kernels.products import best_products

_ROW_BYTES = 1 << 28  # bytes of the float32 label rows gathered for a batch


class ShortlistScores:
    """Finds the labels nearest to a document, and their logits.

    Args:
        classifier: classifier that scores the labels.
        size: N; larger shortlists are closer to exact scoring.
        index: index of the same labels; None if the model has none.

    Raises:
        ConfigError: `size` is not less than the number of labels, or the model has no index.
    """

    def __init__(
        self, classifier: Classifier, size: int, index: LabelIndex | None
    ) -> None:
        if index is None:
            raise ConfigError(
                "a shortlist needs an index, and the model has none. If its labels exclude each other, leave out the "
                "shortlist: a softmax needs every logit. If it was exported before models had indexes, export it again"
            )
        labels = len(classifier.head.bias)
        if not 0 < size < labels:
            raise ConfigError(
                f"a shortlist of {size} of {labels} labels: give fewer, or no shortlist to score all"
            )
        self._classifier = classifier
        self.size = size
        self.index = index

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Find label ids int64 (B, N), distinct per document, and their logits (B, N).

        Raises:
            XmtcError: the index found fewer than N.
        """
        classifier = self._classifier
        head = classifier.head
        read = classifier.read(batch)
        queries_Bd = query_vectors(head.vectors(read, batch.mask_BT))
        nearest_BN = self.index.search(queries_Bd, self.size, fill=True)
        if (nearest_BN < 0).any():
            raise XmtcError(
                f"the index found fewer than {self.size} labels: raise its probes, or shorten the list"
            )
        ids_BN = torch.from_numpy(nearest_BN).to(batch.mask_BT.device)
        logits_BN = head.score(read, batch.mask_BT, ids_BN)
        return ids_BN, classifier.calibrated(logits_BN, ids_BN).float()

    @property
    def max_documents(self) -> int:
        """Maximum batch size: re-ranking a document takes its queries, classifier rows, contexts and their product."""
        return max(1, _ROW_BYTES // (4 * 4 * self.size * self.index.width))

    @torch.inference_mode()
    def recall(self, batches: Iterable[Batch], top_k: int) -> float:
        """Compute the share of the exact K best labels that the shortlists contain. Computes every logit."""
        top_k = min(top_k, self.size)
        exact = product_scores(self._classifier, top_k, independent=True)
        found = 0
        total = 0
        for batch in batches:
            ids_BN, _ = self(batch)
            if exact is None:
                best_BK = self._classifier(batch).topk(top_k, dim=1).indices
            else:
                best_BK, _ = exact(batch)
            in_shortlist_BK = (best_BK[:, :, None] == ids_BN[:, None]).any(2)
            is_counted_B1 = batch.weight_B[:, None] > 0
            found += int((in_shortlist_BK & is_counted_B1).sum())
            total += int(is_counted_B1.sum()) * best_BK.shape[1]
        return found / max(1, total)


class ProductScores:
    """Finds a document's best labels among all, in chunks of labels.

    Args:
        classifier: classifier whose head is `ScoresByProduct`.
        size: K.
    """

    max_documents = sys.maxsize

    def __init__(self, classifier: Classifier, size: int) -> None:
        self._classifier = classifier
        self.size = min(size, len(classifier.head.bias))

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids int64 (B, K) and their logits (B, K), best first."""
        classifier = self._classifier
        head = classifier.head
        (vectors_BP,) = classifier.read(batch)
        return best_products(
            vectors_BP, head.weights, head.bias, self.size, classifier.calibrated
        )


def product_scores(
    classifier: nn.Module, size: int, *, independent: bool
) -> ProductScores | None:
    """Make `ProductScores` if the classifier and its labels allow it; None if all logits are needed.

    Args:
        classifier: any model that scores.
        size: K.
        independent: whether labels do not exclude each other.
    """
    if (
        independent
        and isinstance(classifier, Classifier)
        and isinstance(classifier.head, ScoresByProduct)
    ):
        return ProductScores(classifier, size)
    return None
