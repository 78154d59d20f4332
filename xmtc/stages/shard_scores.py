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

_LOGITS = 1 << 24
"""Most logits in memory at once, over all documents."""


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

    max_documents = (
        sys.maxsize
    )  # ranks must make equally many batches, so large batches are divided in __call__

    def __init__(
        self,
        classifier: Classifier,
        shard: LabelShard,
        size: int,
        index: LabelIndex | None = None,
    ) -> None:
        self._classifier = classifier
        self._shard = shard
        self._index = index
        self.size = min(size, shard.labels)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return label ids and logits (B, K), best first."""
        documents = self._shard.gather(self._classifier.read(batch), batch)
        ids_GK, logits_GK = self.own_best(documents)
        missing = (0, self.size - ids_GK.shape[1])  # a worker with fewer labels than K
        ids_GK = nn.functional.pad(ids_GK, missing)
        logits_GK = nn.functional.pad(logits_GK, missing, value=-torch.inf)
        ids_BX, logits_BX = self._shard.exchange_best(
            ids_GK, logits_GK, len(batch.mask_BT)
        )
        best = logits_BX.topk(self.size)
        return ids_BX.gather(1, best.indices), best.values

    def own_best(self, documents: GatheredDocuments) -> tuple[Tensor, Tensor]:
        """Find this worker's best labels for all documents, numbered from its first label, and their logits (G, K)."""
        head = self._shard.head
        if self._index is None and isinstance(head, ScoresByProduct):
            (vectors_GP,) = documents.read
            return best_products(
                vectors_GP, head.weights, head.bias, min(self.size, self._shard.rows)
            )
        width = self._shard.rows if self._index is None else self.size
        at_once = max(
            1, _LOGITS // width
        )  # may differ between ranks: the loop exchanges nothing
        label_ids = []
        logits = []
        for start in range(0, len(documents.mask_GT), at_once):
            chunk = slice(start, start + at_once)
            read = tuple(tensor[chunk] for tensor in documents.read)
            ids_BK, logits_BK = self._best_of_chunk(read, documents.mask_GT[chunk])
            label_ids.append(ids_BK)
            logits.append(logits_BK)
        return torch.cat(label_ids), torch.cat(logits)

    def _best_of_chunk(
        self, read: tuple[Tensor, ...], mask_BT: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Find the best labels of as many documents as fit into memory: ids and logits (B, K)."""
        head = self._shard.head
        if self._index is None:
            best = (
                head.score(read, mask_BT).float().topk(min(self.size, self._shard.rows))
            )
            return best.indices, best.values
        queries = query_vectors(head.vectors(read, mask_BT))
        nearest = self._index.search(queries, self.size, fill=True)
        ids_BK = torch.from_numpy(nearest).to(mask_BT.device)
        logits_BK = (
            head.score(read, mask_BT, ids_BK)
            .float()
            .masked_fill(ids_BK < 0, -torch.inf)
        )
        return ids_BK.clamp(min=0), logits_BK
