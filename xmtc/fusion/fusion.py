"""Fuse the scores of several scorers into one probability.

Each scorer gives a (document, label) pair four inputs: the calibrated log-odds o_s of its score, whether it does not
know the label, o_s − max_l' o_s, and ln(1 + rank_s). One more input is ln(1 + count_l). A `Combination`, fitted on
out-of-sample scores, turns them into a logit that is a sum over the inputs, so each scorer has an exact share of it.

Where documents have several labels, the co-occurrence of labels is one more scorer (`xmtc.fusion.occurrences`). It
needs probabilities of the other labels, which a first, linear fusion without it gives.

Suffixes: S scorers, N documents, K candidates, L labels, P pairs, X inputs (4 · S + 1, then 1 for the intercept).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from scipy.special import expit

from xmtc.data.array_contract import FIX, Array, Arrays
from xmtc.data.arrays import Matrix
from xmtc.data.tensor_files import read_object, read_tensors, write_tensors
from xmtc.errors import CheckpointError
from xmtc.files import reading, write_json
from xmtc.fusion.boosted import BoostedTrees
from xmtc.fusion.combination import Combination
from xmtc.fusion.config import CombinationKind
from xmtc.fusion.log_odds import LogOdds
from xmtc.fusion.logistic import Logistic
from xmtc.fusion.occurrences import CO_OCCURRENCE, Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.regrouping import Regrouping

_PER_SCORER = 4
FUSION = "fusion.safetensors"
"""File of a fusion's arrays."""
FIRST = "first"
"""Folder of the first fusion."""
_COMBINATIONS: dict[str, type[Combination]] = {
    Logistic.kind: Logistic,
    BoostedTrees.kind: BoostedTrees,
}


@dataclass(frozen=True)
class Fusion:
    """A fitted fusion.

    Attributes:
        names: S names of scorers, in the order of `Pairs.scores_SNK`; the last is `CO_OCCURRENCE` if there is `first`.
        maps: S maps to log-odds.
        combination: function of the inputs.
        occurrences: training documents of labels, and of pairs of labels if there is `first`.
        first: the fusion whose probabilities the co-occurrence reads; None if it does not take part.
    """

    names: tuple[str, ...]
    maps: tuple[LogOdds, ...]
    combination: Combination
    occurrences: Occurrences
    first: "Fusion | None" = None

    @property
    def counts_L(self) -> NDArray[np.int64]:
        """Number of training documents of each label."""
        return self.occurrences.counts_L

    def complete(self, pairs: Pairs) -> Pairs:
        """Add the scores of the co-occurrence, if it takes part and they are missing.

        The maps of the other scorers are those of the first fusion, which is fitted on the same pairs.
        """
        if self.first is None or len(pairs.scores_SNK) == len(self.names):
            return pairs
        pairs = pairs.read_by(self.first.maps)
        return _with_co_occurrence(
            pairs, expit(self.first.logits(pairs)), self.occurrences
        )

    def logits(self, pairs: Pairs) -> NDArray[np.float64]:
        """Compute fused logits (N, K); meaningless if the label id is -1."""
        return self.combination.logits(self.inputs(pairs), pairs.label_ids_NK)

    def shares(self, pairs: Pairs) -> NDArray[np.float64]:
        """Split the logit into shares: of each scorer, of the label's count, and of the intercept, (…, N, K)."""
        terms_XNK = self.combination.terms(self.inputs(pairs), pairs.label_ids_NK)
        scorer_count = len(self.names)
        scorer_terms_XNK = terms_XNK[: scorer_count * _PER_SCORER]
        other_terms_XNK = terms_XNK[scorer_count * _PER_SCORER :]
        shares_SNK = scorer_terms_XNK.reshape(
            scorer_count, _PER_SCORER, *terms_XNK.shape[1:]
        ).sum(axis=1)
        return np.concatenate([shares_SNK, other_terms_XNK])

    def inputs(self, pairs: Pairs) -> NDArray[np.float64]:
        """Compute the inputs of the regression, (X, N, K)."""
        return self.complete(pairs).inputs(self.maps, self.counts_L)

    def fuse(self, pairs: Pairs, *, exclusive: bool = False) -> SparsePredictions:
        """Return the candidates with fused probabilities, best first; ties by ascending label id.

        Args:
            pairs: candidates, scored by the scorers that the fusion was fitted for.
            exclusive: see `candidates_of`.
        """
        return candidates_of(pairs, self.logits(pairs), exclusive=exclusive)

    def extended(self, labels: int) -> "Fusion":
        """Return the fusion with this many more labels, which are treated like the rarest existing label."""
        combination = self.combination.extended(labels, int(np.argmin(self.counts_L)))
        first = None if self.first is None else self.first.extended(labels)
        return replace(
            self,
            combination=combination,
            occurrences=self.occurrences.extended(labels),
            first=first,
        )

    def regrouped(
        self, regrouping: Regrouping, counts_M: NDArray[np.int64]
    ) -> "Fusion":
        """Return the fusion with fewer labels; a merged label is treated like its most frequent part.

        Args:
            regrouping: change of the labels.
            counts_M: number of training documents of the labels afterwards.
        """
        combination = self.combination.regrouped(regrouping, self.counts_L)
        occurrences = self.occurrences.regrouped(regrouping, counts_M)
        first = (
            None if self.first is None else self.first.regrouped(regrouping, counts_M)
        )
        return replace(
            self, combination=combination, occurrences=occurrences, first=first
        )

    def save(self, folder: Path) -> None:
        """Write JSON, tensors and occurrences; those of the first fusion into the folder `first`."""
        folder.mkdir(exist_ok=True)
        write_json(
            folder / "fusion.json",
            {"names": list(self.names), "kind": self.combination.kind},
        )
        tensors = self.combination.tensors()
        for number, log_odds_map in enumerate(self.maps):
            tensors[f"scores.{number}"] = log_odds_map.scores_Q
            tensors[f"log_odds.{number}"] = log_odds_map.log_odds_Q
        write_tensors(folder / FUSION, tensors)
        self.occurrences.save(folder)
        if self.first is not None:
            self.first.save(folder / FIRST)

    @classmethod
    def load(cls, folder: Path) -> "Fusion":
        """Read saved files.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        names, kind = described(folder)
        tensors = read_tensors(folder / FUSION, tuple(arrays_of(kind, len(names))))
        maps = tuple(
            LogOdds(tensors[f"scores.{n}"], tensors[f"log_odds.{n}"])
            for n in range(len(names))
        )
        with reading(folder / FUSION, CheckpointError, FIX, "does not fit together"):
            combination = kind.from_tensors(tensors)
        first = cls.load(folder / FIRST) if names[-1] == CO_OCCURRENCE else None
        return cls(names, maps, combination, Occurrences.load(folder), first)


def described(folder: Path) -> tuple[tuple[str, ...], type[Combination]]:
    """Read which scorers a saved fusion has, and the class of its combination.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = folder / "fusion.json"
    content = read_object(path, ("names", "kind"))
    with reading(path, CheckpointError, FIX):
        names = TypeAdapter(
            Annotated[tuple[str, ...], Field(min_length=1)]
        ).validate_python(tuple(content["names"]))
        return names, _COMBINATIONS[content["kind"]]


def arrays_of(kind: type[Combination], scorers: int) -> Arrays:
    """Return the arrays of a saved fusion of this many scorers: those of its combination, and two a map."""
    arrays = dict(kind.ARRAYS)
    for number in range(scorers):
        knots = chr(ord("α") + number)  # each map has its own number of knots
        arrays[f"scores.{number}"] = Array("F64", knots, ascending=True)
        arrays[f"log_odds.{number}"] = Array("F64", knots, ascending=True)
    return arrays


def inputs_of(scorers: int) -> int:
    """Return the number of inputs of a fusion of this many scorers, with the label's count and the intercept."""
    return _PER_SCORER * scorers + 2


def _with_co_occurrence(
    pairs: Pairs, chances_NK: NDArray[np.float64], occurrences: Occurrences
) -> Pairs:
    given_PP = (
        occurrences.between(pairs.label_ids_NK)
        if pairs.given_PP is None
        else pairs.given_PP
    )
    scores_NK = np.zeros(pairs.label_ids_NK.shape, np.float32)
    scores_NK[pairs.used] = given_PP.T @ chances_NK[pairs.used].astype(np.float32)
    return replace(
        pairs, scores_SNK=np.concatenate([pairs.scores_SNK, scores_NK[None]])
    )


def candidates_of(
    pairs: Pairs, logits_NK: NDArray[np.float64], *, exclusive: bool = False
) -> SparsePredictions:
    """Return candidates with the probabilities of their logits, best first; equal ones by ascending label id.

    They are sorted by logits, because the float32 probabilities of large logits tie.

    Args:
        pairs: candidates.
        logits_NK: their logits; -∞ if a pair is no candidate after all.
        exclusive: whether a document has exactly one label. The candidates' probabilities are then divided by their
            sum. A softmax of the logits would be too sure: with two labels, it doubles the log-odds.
    """
    used_NK = pairs.used & (logits_NK > -np.inf)
    scores_NK = expit(logits_NK)
    if exclusive:
        log_probabilities_NK = np.where(used_NK, -np.logaddexp(0, -logits_NK), -np.inf)
        log_sums_N1 = np.logaddexp.reduce(log_probabilities_NK, axis=1, keepdims=True)
        has_candidates_N1 = used_NK.any(axis=1, keepdims=True)
        scores_NK = np.exp(
            log_probabilities_NK - np.where(has_candidates_N1, log_sums_N1, 0)
        )
    scores_NK = np.where(used_NK, scores_NK, 0)
    order_NK = np.argsort(np.where(used_NK, -logits_NK, np.inf), axis=1, kind="stable")
    label_ids_NK = np.where(used_NK, pairs.label_ids_NK, -1)
    ordered_ids_NK = np.take_along_axis(label_ids_NK, order_NK, axis=1)
    ordered_scores_NK = np.take_along_axis(scores_NK, order_NK, axis=1)
    return SparsePredictions(ordered_ids_NK, ordered_scores_NK.astype(np.float32))


def fit_fusion(
    names: Sequence[str],
    pairs: Pairs,
    gold_NL: Matrix,
    occurrences: Occurrences,
    kind: CombinationKind,
) -> Fusion:
    """Fit maps and a combination on documents that the scorers were not fitted on, even if all candidates are right.

    Args:
        names: S names of scorers.
        pairs: scores of documents that the scorers were not fitted on, such as dev.
        gold_NL: boolean labels of the same documents.
        occurrences: training documents of labels, and of pairs of labels if the co-occurrence takes part.
        kind: the combination; `linear` if all candidates are right, or all are wrong.
    """
    right_NK = pairs.right(gold_NL)
    nothing_to_tell_apart = len(np.unique(right_NK[pairs.used])) < 2
    return _fit(
        names,
        pairs,
        right_NK,
        occurrences,
        "linear" if nothing_to_tell_apart else kind,
    )


def _fit(
    names: Sequence[str],
    pairs: Pairs,
    right_NK: NDArray[np.bool_],
    occurrences: Occurrences,
    kind: CombinationKind,
) -> Fusion:
    """Fit a fusion; if documents have several labels, with the co-occurrence and the first fusion that it needs."""
    pairs = pairs.read_by(pairs.maps(right_NK))
    chances_NK = np.zeros(0)
    first = None
    if occurrences.any_together or kind == "trees":
        plain = Occurrences.without_pairs(occurrences.counts_L)
        linear = _fit(names, pairs, right_NK, plain, "linear")
        chances_NK = expit(linear.logits(pairs))
        if occurrences.any_together:
            first = linear
            names = [*names, CO_OCCURRENCE]
            pairs = _with_co_occurrence(pairs, chances_NK, occurrences)
    maps = pairs.maps(right_NK)
    used_NK = pairs.used
    right_P = right_NK[used_NK]
    inputs_PX = pairs.inputs(maps, occurrences.counts_L)[:, used_NK].T
    if kind == "trees":
        combination = BoostedTrees.fit(inputs_PX, right_P, chances_NK[used_NK])
    else:
        combination = Logistic.fit(
            inputs_PX, right_P, pairs.label_ids_NK[used_NK], occurrences.counts_L
        )
    return Fusion(tuple(names), maps, combination, occurrences, first)
