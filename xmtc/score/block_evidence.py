"""Keep the parts of a batch from which scoring finds the words that support each label.

Suffixes: B documents, T tokens, K labels of a document.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.fusion.pairs import Pairs
from xmtc.models.classifier import Classifier
from xmtc.predict.fused import FusedScores
from xmtc.scorers.base import Features

Words = dict[int, list[dict]]
"""For each label id, the words that add most to its logit, as rows of the column `evidence`."""
Reasons = Callable[[int, Batch, tuple[Features, Pairs], NDArray[np.int64], NDArray[np.float32]], Words]
"""Finds the words of labels, given a document's row, its batch of one with features and candidates, and its best labels
and probabilities."""


class ExplainedScores:
    """Fused scores that also keep the words that support each document's best labels; a `BestLabels`."""

    def __init__(self, fused: FusedScores, top_k: int, reasons: Reasons) -> None:
        self.size, self.max_documents = fused.size, fused.max_documents
        self.words: dict[int, Words] = {}
        self._fused, self._top_k, self._reasons = fused, top_k, reasons

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids and probabilities of the best labels of each document (B, K)."""
        batch = replace(batch, hidden_BTD=self._fused.classifier.encode(batch))
        features, pairs = self._fused.pairs(batch)
        ids_BK, logits_BK = self._fused.best(pairs)
        best_BK = logits_BK.topk(min(self._top_k, self.size), dim=1)
        best_ids_BK, scores_BK = ids_BK.gather(1, best_BK.indices).numpy(), best_BK.values.sigmoid().numpy()
        with torch.autocast(batch.mask_BT.device.type, enabled=False):
            for place, row in enumerate(batch.documents_B.tolist()):
                one, rows = one_document(batch, place), slice(place, place + 1)
                scored = features.take(rows), pairs.take(rows)
                self.words[row] = self._reasons(row, one, scored, best_ids_BK[place], scores_BK[place])
        return ids_BK, logits_BK


class KeepsHidden(nn.Module):
    """A classifier that keeps the last batch's hidden states for evidence."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier
        self.eval()
        self._last: Batch | None = None

    def forward(self, batch: Batch) -> Tensor:
        """Compute the classifier's logits (B, L)."""
        self._last = replace(batch, hidden_BTD=self.classifier.encode(batch))
        return self.classifier(self._last)

    def contributions(self, ids_BK: Tensor) -> NDArray[np.float32]:
        """Compute contributions of the last batch's tokens to the logits of these labels: (B, K, T)."""
        assert self._last is not None
        with torch.autocast(ids_BK.device.type, enabled=False):
            documents = (one_document(self._last, row) for row in range(len(ids_BK)))
            shares = [self.classifier.contributions(*pair)[0] for pair in zip(documents, ids_BK, strict=True)]
        return torch.cat(shares).cpu().numpy()


def one_document(batch: Batch, row: int) -> Batch:
    """Select one document of a batch with hidden states. The batch's windows are not divided: nothing reads them."""
    assert batch.hidden_BTD is not None
    one = slice(row, row + 1)
    return replace(
        batch,
        token_ids_BT=batch.token_ids_BT[one],
        mask_BT=batch.mask_BT[one],
        hidden_BTD=batch.hidden_BTD[one],
    )
