"""Score with all of a model's scorers: candidates from each scorer, and one fused logit per candidate.

Suffixes: B documents, T tokens, D encoder width, L labels, K candidates, S scorers.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.data.words import Words
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.pairs import Pairs
from xmtc.models.classifier import Classifier
from xmtc.models.kernels.products import PADDED_LOGIT
from xmtc.predict.filters import LabelFilter
from xmtc.predict.ranking import max_documents
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.scorers.base import DenseScored, Features, Scored, SparseScored
from xmtc.scorers.predictions import logits_of

WordsOf = Callable[[NDArray[np.int64]], Words]
"""Returns the words of documents, given their rows in the split or block."""


class FusedScores:
    """The best labels of a batch and their fused logits; a `BestLabels` for one thread.

    Args:
        classifier: encoder and head; the encoder runs once, for the head and for neighbours by states.
        ensemble: scorers with a fitted fusion.
        words: words of the documents in the batches.
        shortlist: finds the labels that the head scores. Default: all.
        only: labels that may be predicted. Default: all.
        exclusive: whether a document has exactly one label.
    """

    def __init__(
        self,
        classifier: Classifier,
        ensemble: Ensemble,
        words: WordsOf,
        *,
        shortlist: ShortlistScores | None = None,
        only: LabelFilter | None = None,
        exclusive: bool = False,
    ) -> None:
        self.classifier, self.ensemble, self.words = classifier, ensemble, words
        self.shortlist, self.only, self.exclusive = shortlist, only, exclusive
        self._last: tuple[Features, Pairs] | None = None

    @property
    def size(self) -> int:
        """Maximum number of candidates per document."""
        proposed = self.ensemble.config.candidates * len(self.ensemble.names)
        return min(proposed + len(self.only.candidates if self.only else ()), self.classifier.labels)

    @property
    def max_documents(self) -> int:
        """Maximum number of documents in a batch, limited by memory."""
        return max_documents(self.classifier.labels, self.shortlist)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids int64 (B, K), best first and padded with -1, and their logits (B, K)."""
        _, pairs = self.pairs(batch)
        assert self.ensemble.fusion is not None, "the fusion is not fitted"
        found = self.ensemble.fusion.fuse(pairs, exclusive=self.exclusive)
        ids_BK, used_BK = found.label_ids_NK, found.label_ids_NK >= 0
        if self.only is not None:
            used_BK &= np.isin(ids_BK, self.only.allowed)
        logits_BK = np.where(used_BK, logits_of(found.scores_NK), PADDED_LOGIT)
        return self._padded(np.where(used_BK, ids_BK, -1), logits_BK)

    def pairs(self, batch: Batch, also: NDArray[np.integer] | None = None) -> tuple[Features, Pairs]:
        """Find the batch's candidates, with every scorer's scores; also return the features that they are based on.

        Args:
            batch: the documents.
            also: labels that are always candidates. Default: those that must be predicted, if any.
        """
        features, head = self.features(batch)
        pairs = self.ensemble.pairs(features, head, self.only.candidates if self.only and also is None else also)
        self._last = features, pairs
        return self._last

    def scored(self, place: int) -> tuple[Features, Pairs]:
        """Return the features and pairs of one document of the last batch."""
        assert self._last is not None, "no batch was scored"
        features, pairs = self._last
        return features.take(slice(place, place + 1)), pairs.take(slice(place, place + 1))

    def features(self, batch: Batch) -> tuple[Features, Scored | None]:
        """Compute the features of a batch for the scorers, and the head's scores if the head takes part."""
        states_BD = None
        if self.ensemble.needs_states:
            if batch.fixed_BKD is None:  # once for the states and the head
                batch = replace(batch, hidden_BTD=self.classifier.encode(batch))
            states_BD = self.classifier.pool_mean(batch).cpu().numpy()
        head = self._head_scores(batch) if self.ensemble.has_head else None
        return Features(self.words(batch.documents_B.cpu().numpy()), states_BD), head

    def _head_scores(self, batch: Batch) -> Scored:
        if self.shortlist is None:
            return DenseScored(self.classifier(batch).float().cpu().numpy())
        ids_BN, logits_BN = self.shortlist(batch)
        ids, logits = ids_BN.cpu().numpy(), logits_BN.float().cpu().numpy()
        starts = np.arange(len(ids) + 1) * ids.shape[1]
        scores = sparse.csr_array((logits.ravel(), ids.ravel(), starts), shape=(len(ids), self.classifier.labels))
        scores.sort_indices()
        return SparseScored(scores)

    def _padded(self, ids_BK: NDArray[np.integer], logits_BK: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
        missing = max(0, self.size - ids_BK.shape[1])
        ids_BK = np.pad(ids_BK, ((0, 0), (0, missing)), constant_values=-1)
        logits_BK = np.pad(logits_BK, ((0, 0), (0, missing)), constant_values=PADDED_LOGIT)
        return torch.from_numpy(ids_BK.astype(np.int64)), torch.from_numpy(logits_BK.astype(np.float32))
