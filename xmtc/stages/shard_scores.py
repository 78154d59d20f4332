"""Find each document's best labels when workers share the label rows. `score_split` uses this instead of all logits.

Suffixes: B documents of this worker, G of all workers, K kept labels.
"""

import sys

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.mining.index import LabelIndex, query_vectors
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import ScoresByProduct
from xmtc.models.kernels.products import best_products
from xmtc.training.label_shard import GatheredDocuments, LabelShard

_LOGITS = 1 << 24  # most logits in memory at once, over all documents


class ShardScores:
    """Merges the best labels of all workers. Every call is collective.

    The table of all logits never exists. Documents are scored in parts; so are labels, if the head's logits are
    products.

    Args:
        classifier: classifier that scores the labels.
        shard: this worker's label rows.
        size: K.
        index: index of this worker's label vectors. If given, only the `size` labels per worker that it finds are
            scored.
    """

    max_documents = sys.maxsize  # ranks must make equally many batches, so large batches are divided in __call__

    def __init__(self, classifier: Classifier, shard: LabelShard, size: int, index: LabelIndex | None = None) -> None:
        self._classifier, self._shard, self._index = classifier, shard, index
        self.size = min(size, shard.labels)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return label ids and logits (B, K), best first."""
        documents = self._shard.gather(self._classifier.read(batch), batch)
        ids_GK, logits_GK = self.own_best(documents)
        missing = (0, self.size - ids_GK.shape[1])  # a worker with fewer labels than K
        ids_GK = nn.functional.pad(ids_GK, missing)
        logits_GK = nn.functional.pad(logits_GK, missing, value=-torch.inf)
        ids_BX, logits_BX = self._shard.exchange_best(ids_GK, logits_GK, len(batch.mask_BT))
        best = logits_BX.topk(self.size)
        return ids_BX.gather(1, best.indices), best.values

    def own_best(self, documents: GatheredDocuments) -> tuple[Tensor, Tensor]:
        """Find this worker's best labels for all documents, numbered from its first label, and their logits (G, K)."""
        head = self._shard.head
        if self._index is None and isinstance(head, ScoresByProduct):
            (vectors_GP,) = documents.read
            return best_products(vectors_GP, head.weights, head.bias, min(self.size, self._shard.rows))
        width = self._shard.rows if self._index is None else self.size
        at_once = max(1, _LOGITS // width)  # may differ between ranks: the loop exchanges nothing
        parts = [
            self._of_some(tuple(x[start : start + at_once] for x in documents.read), mask_BT)
            for start, mask_BT in zip(
                range(0, len(documents.mask_GT), at_once), documents.mask_GT.split(at_once), strict=True
            )
        ]
        return torch.cat([ids for ids, _ in parts]), torch.cat([logits for _, logits in parts])

    def _of_some(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> tuple[Tensor, Tensor]:
        head = self._shard.head
        if self._index is None:
            best = head.score(read, mask_BT).float().topk(min(self.size, self._shard.rows))
            return best.indices, best.values
        queries = query_vectors(head.vectors(read, mask_BT))
        found = torch.from_numpy(self._index.search(queries, self.size, fill=True)).to(mask_BT.device)
        logits = head.score(read, mask_BT, found).float().masked_fill(found < 0, -torch.inf)
        return found.clamp(min=0), logits
