"""Measure how far fine-tuning moves the attention.

Suffixes: B documents, S labels of the batch, H heads, T tokens.
"""

import torch
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel
from xmtc.training.label_shard import LabelShard


class AttentionDrift:
    """Measures how far fine-tuning moves attention: mean total variation ½ Σ |now − start| over a batch and its labels.

    This shows whether stage 2 overwrites the planted attention. The value is the share of attention that has moved to
    other tokens: 0 means none, 1 all. (A divergence would be unbounded if a sparse normaliser drops a token.)

    Args:
        classifier: classifier in its initial state, whose head attends by label.
        batch: batch, the same on all ranks.
        shard: this worker's labels; calls are collective.
    """

    def __init__(self, classifier: Classifier, batch: Batch, shard: LabelShard) -> None:
        self.classifier, self.batch, self.shard = classifier, batch, shard
        labels_S = batch.labels_P.unique() - shard.first
        self.labels_S = labels_S[(labels_S >= 0) & (labels_S < shard.rows)]
        self.start_BSHT = self._attention()

    def __call__(self) -> float:
        """Compute the mean distance over documents, labels and heads."""
        moved_BSH = (self._attention() - self.start_BSHT).abs().sum(3) / 2
        total, count = float(moved_BSH.sum()), float(moved_BSH.numel())
        if self.shard.world > 1:
            total, count = all_reduce_sum_floats([total, count])
        return total / max(1.0, count)

    @torch.no_grad()
    def _attention(self) -> Tensor:
        """Compute attention without dropout, whose noise would count as distance."""
        training = self.classifier.training
        self.classifier.eval()
        head, hidden_BTD = self.classifier.head, self.classifier.encode(self.batch)
        assert isinstance(head, AttendsByLabel)
        attention_BSHT = head.attention(hidden_BTD, self.batch.mask_BT, self.labels_S)
        self.classifier.train(training)
        return attention_BSHT.float()
