"""Two-stage scoring: an index looks labels up, and only these get their logits. Exact scoring is the reference.

Suffixes: B documents, L labels, N shortlisted labels, K best labels, d width of label vectors.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.errors import ConfigError, XmtcError
from xmtc.mining.index import LabelIndex, query_vectors
from xmtc.models.classifier import Classifier
from xmtc.models.onnx_graph import OnnxClassifier

_ROW_BYTES = 1 << 28  # float32, of the label rows that are gathered for a batch


class Shortlist:
    """The labels nearest to a document, and their logits.

    Args:
        classifier: whose labels.
        size: N; the more, the nearer to exact scoring.
        index: of the same labels; None of a model that has none.

    Raises:
        ConfigError: `size` is not less than the number of labels, or the model has no index: score all labels.
    """

    def __init__(self, classifier: nn.Module, size: int, index: LabelIndex | None) -> None:
        if not isinstance(classifier, Classifier) or isinstance(classifier, OnnxClassifier):
            raise ConfigError("a shortlist needs the tables of labels, which an ONNX model has not: score all labels")
        if index is None:
            raise ConfigError(
                "a shortlist needs an index, and the model has none: labels that exclude each other need every logit, "
                "because a softmax is over all of them, and a model exported before indexes were part of it must be "
                "exported again; or leave out the shortlist"
            )
        labels = len(classifier.head.bias)
        if not 0 < size < labels:
            raise ConfigError(f"a shortlist of {size} of {labels} labels: give fewer, or none to score all")
        self._classifier, self.size, self.index = classifier, size, index

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids int64 (B, N), each once a document, and their logits (B, N).

        Raises:
            XmtcError: the index found fewer than N.
        """
        classifier, head = self._classifier, self._classifier.head
        read = classifier.read(batch)
        found_BN = self.index.search(query_vectors(head.vectors(read, batch.mask_BT)), self.size, fill=True)
        if (found_BN < 0).any():
            raise XmtcError(f"the index found fewer than {self.size} labels: raise its probes, or shorten the list")
        ids_BN = torch.from_numpy(found_BN).to(batch.mask_BT.device)
        logits_BN = head.score(read, batch.mask_BT, ids_BN)
        return ids_BN, classifier.calibrated(logits_BN, ids_BN).float()

    @property
    def knows_all(self) -> bool:
        """No: a softmax would be over the labels of the list alone."""
        return False

    @property
    def most_documents(self) -> int:
        """Of a batch: re-ranking one takes its queries, classifier rows, contexts and their product."""
        return max(1, _ROW_BYTES // (4 * 4 * self.size * self.index.width))

    @torch.inference_mode()
    def recall(self, batches: Iterable[Batch], top_k: int) -> float:
        """Share of the K labels that exact scoring puts first that are in the shortlists; computes every logit."""
        found = total = 0
        for batch in batches:
            ids_BN, _ = self(batch)
            best_BK = self._classifier(batch).topk(min(top_k, self.size), dim=1).indices
            counted_B1 = batch.weight_B[:, None] > 0
            found += int(((best_BK[:, :, None] == ids_BN[:, None]).any(2) & counted_B1).sum())
            total += int(counted_B1.sum()) * best_BK.shape[1]
        return found / max(1, total)
