"""Fuse the scores of several scorers into one probability: logistic regression, linear in calibrated log-odds.

logit(d, l) = b + c · ln(1 + count_l) + Σ_s [w₁ · o_s + w₂ · missing_s + w₃ · (o_s − max_l' o_s) + w₄ · ln(1 + rank_s)]

where o_s is the calibrated log-odds of scorer s's score. Coefficients are fitted on out-of-sample scores: first for all
labels, then for each frequency bin with shrinkage towards the common ones. The logit is a sum, so each scorer has an
exact share of it.

Suffixes: S scorers, N documents, K candidates, L labels, P pairs, X inputs (4 · S + 1, then the intercept), G bins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_json, read_tensors, write_json, write_tensors
from xmtc.errors import DataError
from xmtc.scorers.base import Candidates
from xmtc.scorers.bins import bins_of_labels
from xmtc.scorers.calibrate import LogOdds
from xmtc.scorers.candidates import Pairs
from xmtc.scorers.config import FusionConfig
from xmtc.scorers.logistic import fit_logistic
from xmtc.scorers.regrouping import Regrouping

PER_SCORER = 4
_LEAST_RIGHT = 50  # a bin with fewer right pairs uses the common coefficients
_FILE = "fusion.safetensors"


@dataclass(frozen=True)
class Fusion:
    """A fitted fusion.

    Attributes:
        names: S names of scorers, in the order of `Pairs.scores_SNK`.
        maps: S maps to log-odds.
        coefficients_GX: float64, coefficients of each bin.
        bin_L: int64, bin of each label.
        counts_L: int64, number of training documents of each label.
    """

    names: tuple[str, ...]
    maps: tuple[LogOdds, ...]
    coefficients_GX: NDArray[np.float64]
    bin_L: NDArray[np.int64]
    counts_L: NDArray[np.int64]

    def logits(self, pairs: Pairs) -> NDArray[np.float64]:
        """Fused logits (N, K); meaningless if the label id is -1."""
        return self.shares(pairs).sum(axis=0)

    def shares(self, pairs: Pairs) -> NDArray[np.float64]:
        """Shares of the logit, (S + 2, N, K): of each scorer, then of the label's count, then of the intercept."""
        inputs_XNK = self.inputs(pairs)
        bin_NK = self.bin_L[pairs.label_ids_NK]
        products_XNK = np.stack([self.coefficients_GX[:, x][bin_NK] * row for x, row in enumerate(inputs_XNK)])
        scorers = len(self.names) * PER_SCORER
        by_scorer = products_XNK[:scorers].reshape(len(self.names), PER_SCORER, *bin_NK.shape).sum(axis=1)
        return np.concatenate([by_scorer, products_XNK[scorers:]])

    def inputs(self, pairs: Pairs) -> NDArray[np.float64]:
        """Inputs of the regression, (X, N, K)."""
        return inputs_of(pairs, self.maps, self.counts_L)

    def fuse(self, pairs: Pairs) -> Candidates:
        """Return the candidates with fused probabilities, best first; ties by ascending label id."""
        scores_NK = np.where(pairs.used, expit(self.logits(pairs)), -1).astype(np.float32)
        order_NK = np.argsort(-scores_NK, axis=1, kind="stable")
        ids_NK = np.take_along_axis(pairs.label_ids_NK, order_NK, axis=1)
        return Candidates(ids_NK, np.maximum(np.take_along_axis(scores_NK, order_NK, axis=1), 0))

    def extended(self, labels: int) -> "Fusion":
        """Return the fusion with this many more labels; they get the coefficients of the rarest existing label."""
        rarest = self.bin_L[np.argmin(self.counts_L)]
        bins = np.concatenate([self.bin_L, np.full(labels, rarest, self.bin_L.dtype)])
        return replace(self, bin_L=bins, counts_L=np.concatenate([self.counts_L, np.zeros(labels, np.int64)]))

    def regrouped(self, regrouping: Regrouping, counts_M: NDArray[np.int64]) -> "Fusion":
        """Return the fusion with fewer labels; a merged label gets the coefficients of its most frequent part.

        Args:
            regrouping: change of the labels.
            counts_M: number of training documents of the labels afterwards.
        """
        bin_M = self.bin_L[regrouping.kept_M]
        for label, members_K in regrouping.merged.items():
            bin_M[label] = self.bin_L[members_K[np.argmax(self.counts_L[members_K])]]
        return replace(self, bin_L=bin_M, counts_L=counts_M)

    def save(self, folder: Path) -> None:
        """Write `fusion.json` and `fusion.safetensors`."""
        write_json(folder / "fusion.json", {"names": list(self.names)})
        tensors = {"coefficients_GX": self.coefficients_GX, "bin_L": self.bin_L, "counts_L": self.counts_L}
        for number, one in enumerate(self.maps):
            tensors |= {f"scores.{number}": one.scores_Q, f"log_odds.{number}": one.log_odds_Q}
        write_tensors(folder / _FILE, tensors)

    @classmethod
    def load(cls, folder: Path) -> "Fusion":
        """Read saved files.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        names = read_json(folder / "fusion.json", ("names",))["names"]
        keys = [f"{part}.{number}" for number in range(len(names)) for part in ("scores", "log_odds")]
        found = read_tensors(folder / _FILE, ("coefficients_GX", "bin_L", "counts_L", *keys))
        maps = tuple(LogOdds(found[f"scores.{n}"], found[f"log_odds.{n}"]) for n in range(len(names)))
        return cls(tuple(names), maps, found["coefficients_GX"], found["bin_L"], found["counts_L"])


def inputs_of(pairs: Pairs, maps: Sequence[LogOdds], counts_L: NDArray[np.int64]) -> NDArray[np.float64]:
    """Inputs of the regression, (4 · S + 2, N, K): four per scorer, the label's count, and 1."""
    used_NK = pairs.used
    inputs = []
    for scores_NK, to_log_odds in zip(pairs.scores_SNK, maps, strict=True):
        missing_NK = (scores_NK == 0) | ~used_NK
        log_odds_NK = np.where(missing_NK, to_log_odds.log_odds_Q[0], to_log_odds(scores_NK))
        best_N1 = np.where(used_NK, log_odds_NK, -np.inf).max(axis=1, keepdims=True)
        best_N1 = np.where(np.isfinite(best_N1), best_N1, 0)
        order_NK = np.argsort(np.where(missing_NK, np.inf, -scores_NK), axis=1, kind="stable")
        rank_NK = np.empty(order_NK.shape, np.float64)
        np.put_along_axis(rank_NK, order_NK, np.arange(order_NK.shape[1], dtype=np.float64)[None], axis=1)
        rank_NK = np.where(missing_NK, (~missing_NK).sum(axis=1, keepdims=True), rank_NK)
        inputs += [log_odds_NK, missing_NK & used_NK, log_odds_NK - best_N1, np.log1p(rank_NK)]
    counts_NK = np.log1p(counts_L[pairs.label_ids_NK])
    return np.stack([*inputs, counts_NK, np.ones(used_NK.shape)]).astype(np.float64)


def fit_fusion(
    names: Sequence[str], pairs: Pairs, gold_NL: Matrix, counts_L: NDArray[np.int64], config: FusionConfig
) -> Fusion:
    """Fit maps and coefficients on documents that the scorers were not fitted on.

    Args:
        names: S names of scorers.
        pairs: out-of-sample scores: leave-one-out on train, or dev.
        gold_NL: boolean labels of the same documents.
        counts_L: number of training documents of each label.
        config: see `FusionConfig`.

    Raises:
        DataError: no candidate is right, or all are.
    """
    used_NK = pairs.used
    right_P = right_of(pairs, gold_NL)[used_NK]
    if right_P.all() or not right_P.any():
        raise DataError(
            "the fusion of the scorers cannot be fitted, because none or all of the labels that they find are right: "
            "give a dev split that shares labels with train"
        )
    maps = tuple(
        LogOdds.fit(scores_P[scores_P != 0], right_P[scores_P != 0], config.knots)
        for scores_P in pairs.scores_SNK[:, used_NK]
    )
    inputs_PX = inputs_of(pairs, maps, counts_L)[:, used_NK].T
    common_X = fit_logistic(inputs_PX, right_P, config.penalty)
    coefficients, bin_L = [common_X], np.zeros(len(counts_L), np.int64)
    label_P = pairs.label_ids_NK[used_NK]
    for mask_L in bins_of_labels(config.bins, counts_L):
        inside_P = mask_L[label_P]
        if min(right_P[inside_P].sum(), (~right_P[inside_P]).sum()) >= _LEAST_RIGHT:
            bin_L[mask_L] = len(coefficients)
            coefficients.append(fit_logistic(inputs_PX[inside_P], right_P[inside_P], config.bin_penalty, common_X))
    return Fusion(tuple(names), maps, np.stack(coefficients), bin_L, counts_L)


def right_of(pairs: Pairs, gold_NL: Matrix) -> NDArray[np.bool_]:
    """Mark the candidates that are the document's labels, (N, K); padding is False."""
    rows_NK = np.broadcast_to(np.arange(len(pairs.label_ids_NK))[:, None], pairs.label_ids_NK.shape)
    used_NK = pairs.used
    right_NK = np.zeros(used_NK.shape, np.bool_)
    right_NK[used_NK] = np.asarray(gold_NL[rows_NK[used_NK], pairs.label_ids_NK[used_NK]]).ravel()
    return right_NK
