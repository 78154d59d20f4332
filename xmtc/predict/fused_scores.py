"""Score with all of a model's scorers: candidates from each scorer, and one fused logit per candidate.

Suffixes: B documents, T tokens, D encoder width, L labels, K candidates, N shortlisted labels, S scorers.
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
        self.classifier = classifier
        self.ensemble = ensemble
        self.words = words
        self.shortlist = shortlist
        self.only = only
        self.exclusive = exclusive
        self._last: tuple[Features, Pairs] | None = None

    @property
    def size(self) -> int:
        """Maximum number of candidates per document."""
        proposed = self.ensemble.config.candidates * len(self.ensemble.names)
        always = 0 if self.only is None else len(self.only.candidates)
        return min(proposed + always, self.classifier.labels)

    @property
    def max_documents(self) -> int:
        """Maximum number of documents in a batch, limited by memory."""
        return max_documents(self.classifier.labels, self.shortlist)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Label ids int64 (B, K), best first and padded with -1, and their logits (B, K)."""
        _, pairs = self.pairs(batch)
        assert self.ensemble.fusion is not None, "the fusion is not fitted"
        fused = self.ensemble.fusion.fuse(pairs, exclusive=self.exclusive)
        ids_BK = fused.label_ids_NK
        allowed_BK = ids_BK >= 0
        if self.only is not None:
            allowed_BK &= np.isin(ids_BK, self.only.allowed)
        logits_BK = np.where(allowed_BK, logits_of(fused.scores_NK), PADDED_LOGIT)
        return self._padded(np.where(allowed_BK, ids_BK, -1), logits_BK)

    def pairs(
        self, batch: Batch, also: NDArray[np.integer] | None = None
    ) -> tuple[Features, Pairs]:
        """Find the batch's candidates, with every scorer's scores; also return the features that they are based on.

        Args:
            batch: the documents.
            also: labels that are always candidates. Default: those that must be predicted, if any.
        """
        if also is None and self.only is not None:
            also = self.only.candidates
        features, head_scores = self.features(batch)
        self._last = features, self.ensemble.pairs(features, head_scores, also)
        return self._last

    def scored(self, place: int) -> tuple[Features, Pairs]:
        """Return the features and pairs of one document of the last batch."""
        assert self._last is not None, "no batch was scored"
        features, pairs = self._last
        document = slice(place, place + 1)
        return features.take(document), pairs.take(document)

    def features(self, batch: Batch) -> tuple[Features, Scored | None]:
        """Compute the features of a batch for the scorers, and the head's scores if the head takes part."""
        states_BD = None
        if self.ensemble.needs_states:
            if (
                batch.fixed_BKD is None
            ):  # the encoder runs once, for the states and for the head
                batch = replace(batch, hidden_BTD=self.classifier.encode(batch))
            states_BD = self.classifier.pool_mean(batch).cpu().numpy()
        head_scores = self._head_scores(batch) if self.ensemble.has_head else None
        words = self.words(batch.documents_B.cpu().numpy())
        return Features(words, states_BD), head_scores

    def _head_scores(self, batch: Batch) -> Scored:
        if self.shortlist is None:
            return DenseScored(self.classifier(batch).float().cpu().numpy())
        ids_BN, logits_BN = self.shortlist(batch)
        documents, found = ids_BN.shape
        row_starts = np.arange(documents + 1) * found
        values = logits_BN.float().cpu().numpy().ravel()
        columns = ids_BN.cpu().numpy().ravel()
        scores_BL = sparse.csr_array(
            (values, columns, row_starts), shape=(documents, self.classifier.labels)
        )
        scores_BL.sort_indices()
        return SparseScored(scores_BL)

    def _padded(
        self, ids_BK: NDArray[np.integer], logits_BK: NDArray[np.float64]
    ) -> tuple[Tensor, Tensor]:
        missing = max(0, self.size - ids_BK.shape[1])
        ids_BK = np.pad(ids_BK, ((0, 0), (0, missing)), constant_values=-1)
        logits_BK = np.pad(
            logits_BK, ((0, 0), (0, missing)), constant_values=PADDED_LOGIT
        )
        return torch.from_numpy(ids_BK.astype(np.int64)), torch.from_numpy(
            logits_BK.astype(np.float32)
        )
