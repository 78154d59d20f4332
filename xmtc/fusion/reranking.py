"""Change fused logits by the scores that a language model gives to a document's best candidates.

logit' = β₀ · logit + β · x for documents with an answer, where x are the inputs that any score gives (`Pairs.inputs`).
A ridge penalty shrinks β₀ towards 1 and β towards 0, so a model that says nothing changes nothing. Other documents keep
their logits. β is fitted on few documents, because a language model is slow, and the fusion before it on all.

Suffixes: S scorers, N documents, K candidates, P pairs, X inputs of one score.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_fields, write_fields
from xmtc.fusion.log_odds import LogOdds
from xmtc.fusion.logistic import fit_logistic
from xmtc.fusion.pairs import Pairs

RERANKER = "reranker"
"""Name of its share of a logit."""
_PENALTY = 1.0  # in pseudo-observations
_FILE = "reranking.safetensors"


@dataclass(frozen=True)
class Reranking:
    """A fitted change of logits.

    Attributes:
        scores_Q, log_odds_Q: see `LogOdds`.
        beta_X: float64, β; the first is β₀.
    """

    scores_Q: NDArray[np.float64]
    log_odds_Q: NDArray[np.float64]
    beta_X: NDArray[np.float64]

    @classmethod
    def fit(
        cls, pairs: Pairs, logits_NK: NDArray[np.float64], gold_NL: Matrix, counts_L: NDArray[np.int64]
    ) -> "Reranking":
        """Fit β on the documents with an answer.

        Args:
            pairs: candidates with the scores of the language model.
            logits_NK: their logits by a fusion that was not fitted on these documents.
            gold_NL: boolean labels of the documents.
            counts_L: number of training documents of each label.
        """
        assert pairs.ranked_NK is not None, "nobody was asked"
        right_NK, known_NK = pairs.right(gold_NL), pairs.ranked_NK > 0
        found = LogOdds.fit(pairs.ranked_NK[known_NK], right_NK[known_NK])
        used_NK = pairs.used & known_NK.any(axis=1, keepdims=True)
        inputs_XNK = np.concatenate([logits_NK[None], _inputs(pairs, found, counts_L)])
        beta_X = fit_logistic(inputs_XNK[:, used_NK].T, right_NK[used_NK], _PENALTY, np.eye(len(inputs_XNK))[0])
        return cls(found.scores_Q, found.log_odds_Q, beta_X)

    def logits(self, pairs: Pairs, logits_NK: NDArray[np.float64], counts_L: NDArray[np.int64]) -> NDArray[np.float64]:
        """Change the logits (N, K) of candidates."""
        scale_N1, own_NK = self.parts(pairs, counts_L)
        return scale_N1 * logits_NK + own_NK

    def parts(self, pairs: Pairs, counts_L: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Factor (N, 1) of the logits, and what is added, (N, K); 1 and 0 for documents without an answer."""
        if pairs.ranked_NK is None:
            return np.ones((len(pairs.label_ids_NK), 1)), np.zeros(pairs.label_ids_NK.shape)
        inputs_XNK = _inputs(pairs, LogOdds(self.scores_Q, self.log_odds_Q), counts_L)
        answered_N1, own_NK = pairs.ranked_NK.any(axis=1, keepdims=True), np.tensordot(self.beta_X[1:], inputs_XNK, 1)
        return np.where(answered_N1, self.beta_X[0], 1.0), np.where(answered_N1, own_NK, 0.0)

    def save(self, folder: Path) -> None:
        """Write `reranking.safetensors`."""
        write_fields(folder / _FILE, self)

    @classmethod
    def load(cls, folder: Path) -> "Reranking | None":
        """Read a saved file; None if there is none.

        Raises:
            CheckpointError: the file is damaged.
        """
        return read_fields(folder / _FILE, cls) if (folder / _FILE).exists() else None


def _inputs(pairs: Pairs, found: LogOdds, counts_L: NDArray[np.int64]) -> NDArray[np.float64]:
    assert pairs.ranked_NK is not None, "nobody was asked"
    return Pairs(pairs.label_ids_NK, pairs.ranked_NK[None]).inputs((found,), counts_L)
