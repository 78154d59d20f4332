"""Ridge regression of each label on the words that tell most about it, as `xmtc.planting.mig` ranks them.

With a_k the TF-IDF column of the label's k-th word and I_k the mutual information of both, A has the columns
√(I_k/I_1)·a_k, so that a word pays a smaller penalty the more it tells. u = (AᵀA + λI)⁻¹Aᵀy, and the word's weight is
√(I_k/I_1)·u_k. A system has as many rows as the label has words: no matrix grows with the vocabulary or the documents.

Suffixes: N documents, C columns of words, L labels, K words of a label, B documents of a block.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from scipy import linalg, sparse
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.data.loader import in_threads
from xmtc.distributed.collectives import rank_and_world_size
from xmtc.errors import DataError
from xmtc.planting.mig.counts import Presence
from xmtc.planting.mig.measures import MutualInformation
from xmtc.planting.mig.ranking import TokenRanking, rank_presence
from xmtc.scorers.base import Training, field_weights
from xmtc.scorers.config import RankedWordsConfig
from xmtc.scorers.word_weights import WordWeights, gathered

LABELS_AT_ONCE = 128
"""Number of labels that a thread solves at once."""
_DOCUMENTS_AT_ONCE = 16_384


@dataclass(frozen=True)
class RankedWords(WordWeights):
    """At most K weights of each label. A score is near 1 if the document has the label, and near 0 if not."""

    @classmethod
    @override
    def fit(cls, training: Training, settings: RankedWordsConfig) -> Self:
        """Fits all labels. Ranks share them: collective.

        Raises:
            DataError: the penalty is too small.
        """
        words = training.features.words
        fields_F = field_weights(settings.fields, settings.kind, words.vocabulary)
        words_NC = words.apart(fields_F)
        ranking = rank_presence(
            Presence.of(words_NC),
            training.labels_NL,
            MutualInformation(),
            settings.words,
        )
        by_column = sparse.csc_array(words_NC)
        by_label = sparse.csc_array(training.labels_NL)
        rank, size = rank_and_world_size()
        starts = range(
            rank * LABELS_AT_ONCE, len(ranking.counts), size * LABELS_AT_ONCE
        )
        thunks = (
            partial(_solve, by_column, by_label, ranking, start, settings.penalty)
            for start in starts
        )
        weights_LC = gathered(zip(starts, in_threads(thunks, cpu_count()), strict=True))
        return cls(sparse.csr_array(weights_LC.T.tocsr()), fields_F)


def _solve(
    words_NC: Matrix,
    labels_NL: Matrix,
    ranking: TokenRanking,
    start: int,
    penalty: float,
) -> Matrix:
    """Solve some labels: sparse weights (labels, C). Both matrices are stored by column."""
    rows = slice(start, min(start + LABELS_AT_ONCE, len(ranking.counts)))
    weights = [np.zeros(0, np.float32)]
    for label in range(rows.start, rows.stop):
        count = ranking.counts[label]
        information_K = ranking.scores_LK[label, :count]
        scale_K = np.sqrt(information_K / ranking.scores_LK[label, 0])
        columns_NK = sparse.csr_array(words_NC[:, ranking.token_ids_LK[label, :count]])
        having_label = labels_NL.indices[
            labels_NL.indptr[label] : labels_NL.indptr[label + 1]
        ]
        weights.append(scale_K * _ridge(columns_NK, scale_K, having_label, penalty))
    columns = ranking.token_ids_LK[rows]
    row_starts = np.cumsum([0, *ranking.counts[rows]])
    parts = (np.concatenate(weights), columns[columns >= 0], row_starts)
    return sparse.csr_array(parts, shape=(len(columns), words_NC.shape[1]))


def _ridge(
    columns_NK: Matrix,
    scale_K: Floats,
    having_label: NDArray[np.integer],
    penalty: float,
) -> Floats:
    """Regress the label of these documents on scaled columns: u (K,)."""
    gram_KK = np.diag(np.full(len(scale_K), penalty, np.float32))
    with_words = np.flatnonzero(
        np.diff(columns_NK.indptr)
    )  # the rows of other documents are empty
    for start in range(0, len(with_words), _DOCUMENTS_AT_ONCE):
        block = with_words[start : start + _DOCUMENTS_AT_ONCE]
        block_BK = columns_NK[block].toarray() * scale_K
        gram_KK += block_BK.T @ block_BK
    target_K = np.asarray(columns_NK[having_label].sum(axis=0), np.float32) * scale_K
    try:
        return linalg.solve(
            gram_KK, target_K, assume_a="pos", overwrite_a=True, check_finite=False
        ).astype(np.float32)
    except linalg.LinAlgError as error:
        raise DataError(
            f"ranked_words: the penalty {penalty} is too small for single precision: raise it"
        ) from error
