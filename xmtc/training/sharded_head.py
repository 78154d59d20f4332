"""A head whose label rows are split over the ranks: each computes the logits of all documents for its own labels.

Hidden states go round once a micro-batch, logits never: memory and arithmetic of the label set are divided by the
ranks. `ShardedRowsStrategy` updates the rows; `distributed.shard_labels` turns both on for stage 2.

The gradient convention is a sum: what every rank has whole (encoder, projections) gets on each rank the part of its
gradient that comes from this rank's labels (projections) or documents (encoder), and strategies add these up. A rank's
rows get all of theirs.

Suffixes: B documents of this rank, G of all ranks, T tokens, D encoder width, L labels, R labels of this rank, K kept.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_max_ints, rank_and_world_size
from xmtc.distributed.row_shards import RowShard
from xmtc.losses.base import LossOutput, Targets
from xmtc.models.classifier import Classifier

_LOGIT_BYTES = 1 << 28  # float32 logits of all ranks' documents that are there at once when documents are scored


class ShardedHead:
    """Cuts a classifier's label tables down to this rank's rows, in place, and runs its head on all ranks' documents.

    Not a module: the head stays where it is in the classifier, the only place where strategies look for parameters.

    Args:
        classifier: with whole tables, the same on all ranks. Dropout of the head draws of each rank's own generator.

    Attributes:
        labels: L.
        first: the first label of this rank; it has the next len(head.bias).
    """

    def __init__(self, classifier: Classifier) -> None:
        self.head, self.labels = classifier.head, classifier.labels
        for name, table in self.head.label_tables().items():
            self.head.set_table(name, RowShard.of(table))
        bias = self.head.bias
        assert isinstance(bias, RowShard)  # every head has one
        self.first = bias.first
        classifier.regroup()

    def __call__(self, hidden_BTD: Tensor, mask_BT: Tensor, targets: Targets) -> tuple[Tensor, Targets]:
        """Logits (G, R) of all ranks' documents for this rank's labels, and these documents' positives among them.

        Collective, as is its backward pass. Documents that fill up shorter batches have weight 0 and no positives.
        """
        hidden_GTD, mask_GT = gather_documents(hidden_BTD, mask_BT)
        return self.head(hidden_GTD, mask_GT), self._own_targets(targets, len(mask_GT) // rank_and_world_size()[1])

    def loss(
        self, loss: Callable[..., LossOutput], hidden_BTD: Tensor, mask_BT: Tensor, targets: Targets
    ) -> LossOutput:
        """The part of the loss that this rank's labels have; summed over ranks, it is all documents' loss. Collective.

        Args:
            loss: one that is a sum over labels, such as binary cross-entropy: no softmax, no picked negatives.
            hidden_BTD: of this rank's documents.
            mask_BT: False on padding.
            targets: of this rank's documents.

        Returns:
            The part, and the weight of this rank's documents.
        """
        logits_GR, own = self(hidden_BTD, mask_BT, targets)
        return LossOutput(loss(logits_GR, own).sum, targets.weight_B.sum())

    @torch.no_grad()
    def top_k(self, hidden_BTD: Tensor, mask_BT: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Label ids and logits (B, K) of this rank's documents, best first, merged from all ranks' best. Collective."""
        hidden_GTD, mask_GT = gather_documents(hidden_BTD, mask_BT)
        rows = len(self.head.bias)
        at_once = max(1, _LOGIT_BYTES // (4 * rows))  # its number may differ between ranks: nothing is exchanged within
        parts = [
            self.head(hidden_GTD[start : start + at_once], mask_GT[start : start + at_once]).topk(min(k, rows))
            for start in range(0, len(mask_GT), at_once)
        ]
        best_GK, ids_GK = torch.cat([p.values for p in parts]), torch.cat([p.indices for p in parts]) + self.first
        kept = min(k, self.labels)
        missing = (0, kept - best_GK.shape[1])  # a rank with fewer labels than K
        best_BX = _all_to_all(nn.functional.pad(best_GK, missing, value=-torch.inf))[: len(hidden_BTD)]
        ids_BX = _all_to_all(nn.functional.pad(ids_GK, missing))[: len(hidden_BTD)]
        best_BK, columns_BK = best_BX.topk(kept)
        return ids_BX.gather(1, columns_BK), best_BK

    def _own_targets(self, targets: Targets, documents: int) -> Targets:
        """All ranks' positives among this rank's labels; rows count through the gathered documents."""
        rank, _ = rank_and_world_size()
        pairs_P2 = torch.stack([targets.rows_P + documents * rank, targets.columns_P], 1)
        (most,) = all_reduce_max_ints([len(pairs_P2)])
        pairs_X2 = _all_gather(nn.functional.pad(pairs_P2, (0, 0, 0, most - len(pairs_P2)), value=-1))
        columns_X = pairs_X2[:, 1] - self.first
        own_X = (columns_X >= 0) & (columns_X < len(self.head.bias))
        weight_G = _all_gather(nn.functional.pad(targets.weight_B, (0, documents - len(targets.weight_B))))
        return Targets(pairs_X2[own_X, 0], columns_X[own_X], weight_G)


class ShardedScores:
    """A document's best labels by a split head, for `score_split` in place of all logits. Every call is collective.

    Args:
        classifier: whose head is split.
        sharded: the same head.
        size: K.
    """

    most_documents = sys.maxsize  # ranks must make equally many batches; a large one is cut inside
    knows_all = False  # refused for labels that exclude each other

    def __init__(self, classifier: Classifier, sharded: ShardedHead, size: int) -> None:
        self._classifier, self._sharded, self.size = classifier, sharded, min(size, sharded.labels)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids and logits (B, K), best first."""
        ids_BK, logits_BK = self._sharded.top_k(self._classifier.encode(batch), batch.mask_BT, self.size)
        return ids_BK, logits_BK.float()


def gather_documents(hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states (G, T, D) and mask (G, T) of all ranks' documents, padded to the same shape. Collective."""
    documents, tokens = all_reduce_max_ints(mask_BT.shape)
    padding = (0, 0, 0, tokens - hidden_BTD.shape[1], 0, documents - len(hidden_BTD))
    hidden_GTD = _AllGather.apply(nn.functional.pad(hidden_BTD, padding))
    return hidden_GTD, _all_gather(_padded_mask(mask_BT, documents, tokens))


class _AllGather(torch.autograd.Function):
    """(B, …) of each rank → (G, …) on every rank; backward adds up what all ranks send to this one's documents."""

    @staticmethod
    def forward(ctx: Any, x_B: Tensor) -> Tensor:
        return _all_gather(x_B)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        _, world = rank_and_world_size()
        if world == 1:
            return gradients[0]
        total_B = gradients[0].new_empty(len(gradients[0]) // world, *gradients[0].shape[1:])
        dist.reduce_scatter_tensor(total_B, gradients[0].contiguous())
        return total_B


def _all_gather(x_B: Tensor) -> Tensor:
    """(B, …) of each rank, alike in shape → (G, …) on every rank."""
    _, world = rank_and_world_size()
    if world == 1:
        return x_B
    gathered_G = x_B.new_empty(world * len(x_B), *x_B.shape[1:])
    dist.all_gather_into_tensor(gathered_G, x_B.contiguous())
    return gathered_G


def _all_to_all(x_GK: Tensor) -> Tensor:
    """(G, K) of each rank, for all documents → (B, K · ranks) of all ranks, for this one's."""
    _, world = rank_and_world_size()
    if world == 1:
        return x_GK
    received_GK = torch.empty_like(x_GK)
    dist.all_to_all_single(received_GK, x_GK.contiguous())
    return torch.cat(received_GK.chunk(world), 1)


def _padded_mask(mask_BT: Tensor, documents: int, tokens: int) -> Tensor:
    """The mask of a batch of this many documents; those that fill it up have one token, since a softmax needs one."""
    padded = nn.functional.pad(mask_BT, (0, tokens - mask_BT.shape[1], 0, documents - len(mask_BT)))
    padded[len(mask_BT) :, 0] = True
    return padded
