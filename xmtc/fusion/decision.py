"""Decisions: which labels a document gets, given the probabilities of its labels.

A rule says what the decision is best for. All but `samples` and `top_k` are thresholds, tuned on the outcomes of dev: a
pair of document and label counts as right by its label, or, if scores are calibrated, by the mean of its label and its
score, which varies less on few documents.

    micro          one threshold, of greatest micro-F1
    macro          a threshold for each label, of greatest F1 of the label's outcomes and a share of its bin's
    samples        for each document, the set of labels S of greatest expected F1, 2 Σ_S p / (|S| + Σ p)
    precision=X    for each bin of labels, the lowest threshold with at least this precision
    budget=X       one threshold, which gives documents X labels on average
    top_k=K        the K best labels

Maximising expected F1 by taking the best labels until it falls is optimal if labels are independent (Lewis 1995; the
ratio of expectations stands for the expected ratio).

Shapes: N documents, K labels of a document, best first, L labels, P pairs, T thresholds.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.array_contract import Array, Arrays
from xmtc.data.bins import bin_masks
from xmtc.data.tensor_files import read_fields, write_fields
from xmtc.fusion.config import BINS
from xmtc.scorers.regrouping import Regrouping

CONSIDERED = 50
"""A document's labels beyond this rank have no part in what is expected of it."""
EXPECTED = ("precision", "recall", "f1")
"""What `Decision.expected` gives, in its order."""
OWN_RULES = ("micro", "macro", "samples", "precision=0.9")
"""Rules that reports compare."""
_PRIOR = 10.0
"""Gold documents by which a bin's outcomes count in the threshold of one of its labels."""
_LEAST_GOLD = 25
"""A bin with fewer gold documents takes the threshold of all labels."""
_STEPS = 300
_BLOCK = 4096
"""Labels whose outcomes at all thresholds are in memory at once."""
_STORED_FROM = 0.01
"""Pairs with a lower score are not kept."""
_STORED = 2_000_000
"""Most pairs that are kept."""


@dataclass(frozen=True)
class Decision:
    """A rule with its thresholds.

    Attributes:
        threshold: minimum probability of a label; 0 for rules without thresholds.
        thresholds_L: float32, the same for each label; None if there is only one threshold.
        rule: the rule.
    """

    threshold: float = 0.5
    thresholds_L: NDArray[np.float32] | None = None
    rule: str = "micro"

    def chosen(
        self, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Mark the labels that documents get.

        Args:
            ids_NK: label ids, best first, padded with -1; for one document also (K,).
            scores_NK: their probabilities.
        """
        name, _, value = self.rule.partition("=")
        if name == "top_k":
            made_NK = np.arange(ids_NK.shape[-1]) < int(value)
        elif name == "samples":
            sizes_N = _best_sizes(_considered(ids_NK, scores_NK))
            made_NK = np.arange(ids_NK.shape[-1]) < sizes_N[..., None]
        else:
            made_NK = scores_NK >= self.limit(ids_NK)
        return made_NK & (ids_NK >= 0)

    def limit(self, ids: Any) -> Any:
        """Return the thresholds of labels."""
        return (
            np.float32(self.threshold)
            if self.thresholds_L is None
            else self.thresholds_L[ids]
        )

    def expected(
        self, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Compute the precision, recall and F1 to expect of documents if scores are calibrated: (N, 3).

        All are 0 for a document that gets no label.
        """
        made_NK = self.chosen(ids_NK, scores_NK)[..., :CONSIDERED]
        shares_NK = _considered(ids_NK, scores_NK)
        right_N = (shares_NK * made_NK).sum(-1)
        size_N = made_NK.sum(-1)
        gold_N = shares_NK.sum(-1)
        precision_N = right_N / np.maximum(size_N, 1e-9)
        recall_N = right_N / np.maximum(gold_N, 1e-9)
        f1_N = right_N / np.maximum((size_N + gold_N) / 2, 1e-9)
        return np.stack([precision_N, recall_N, f1_N], axis=-1)

    def extended(self, labels: int) -> "Decision":
        """Return the decision with this many more labels, which take the threshold of all."""
        if self.thresholds_L is None:
            return self
        new_thresholds = np.full(labels, self.threshold, np.float32)
        return replace(
            self, thresholds_L=np.concatenate([self.thresholds_L, new_thresholds])
        )

    def regrouped(self, regrouping: Regrouping) -> "Decision":
        """Return the decision with fewer labels; a merged label keeps the threshold of the label that is kept."""
        if self.thresholds_L is None:
            return self
        return replace(self, thresholds_L=self.thresholds_L[regrouping.kept_M])


def expected_labels(
    ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Compute the number of right labels to expect of documents, whether they get them or not: (N,)."""
    return _considered(ids_NK, scores_NK).sum(-1)


def released(expected_N3: NDArray[np.floating], bar: str) -> NDArray[np.bool_]:
    """Mark the documents of which enough is expected, see `Decision.expected`; compares as float32, like tables."""
    name, _, least = bar.removeprefix("expected_").partition(">=")
    expected_N = np.asarray(expected_N3, np.float32)[..., EXPECTED.index(name)]
    return expected_N >= float(least)


HALF = Decision()
"""The decision before one is tuned."""
BEST = Decision(0.0, None, "top_k=1")
"""The decision of single-label tasks."""


def _considered(
    ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the probabilities of the labels that count in what is expected of a document; 0 for padding."""
    ids_NK = ids_NK[..., :CONSIDERED]
    scores_NK = scores_NK[..., :CONSIDERED]
    return np.where(ids_NK >= 0, scores_NK, 0).astype(np.float64)


def _best_sizes(scores_NK: NDArray[np.float64]) -> NDArray[np.integer]:
    """Find the number of best labels, at least 1, with the greatest expected F1: (N,)."""
    sizes_K = np.arange(1, scores_NK.shape[-1] + 1)
    right_NK = np.cumsum(scores_NK, axis=-1)
    gold_N1 = scores_NK.sum(-1, keepdims=True)
    half_f1_NK = right_NK / (sizes_K + gold_N1)
    return half_f1_NK.argmax(-1) + 1


@dataclass(frozen=True)
class Outcomes:
    """What came of the scores on dev: all that tuning a decision needs. Documents cannot be told apart in it.

    Attributes:
        label_ids_P: int32, label of each pair, by descending score.
        scores_P: float32.
        right_P: float32, by how much the pair counts as right.
        gold_L: float32, sum of the same over all pairs of each label, found or not.
        documents: N.
    """

    ARRAYS: ClassVar[Arrays] = {
        "label_ids_P": Array("I32", "P", least=0, below="L"),
        "scores_P": Array("F32", "P", least=0, most=1),
        "right_P": Array("F32", "P", least=0, most=1),
        "gold_L": Array("F32", "L", least=0),
        "documents": Array("I64", least=0),
    }
    label_ids_P: NDArray[np.int32]
    scores_P: NDArray[np.float32]
    right_P: NDArray[np.float32]
    gold_L: NDArray[np.float32]
    documents: int

    @classmethod
    def of(
        cls,
        ids_NK: NDArray[np.int32],
        scores_NK: NDArray[np.float32],
        hits_NK: NDArray[np.bool_],
        gold_L: NDArray[np.integer],
        *,
        calibrated: bool,
    ) -> "Outcomes":
        """Collect the outcomes of N documents.

        Args:
            ids_NK: label ids, padded with -1.
            scores_NK: their scores.
            hits_NK: which are right.
            gold_L: gold documents of each label.
            calibrated: whether scores are probabilities.
        """
        used_NK = ids_NK >= 0
        order = np.argsort(-scores_NK[used_NK], kind="stable")
        ids_P = ids_NK[used_NK][order]
        scores_P = scores_NK[used_NK][order]
        hits_P = hits_NK[used_NK][order].astype(np.float32)
        right_P = (hits_P + scores_P) / np.float32(2) if calibrated else hits_P
        change_L = np.bincount(ids_P, right_P - hits_P, len(gold_L))
        whole_L = gold_L + change_L  # gold labels that are no candidates count fully
        return cls(
            ids_P,
            scores_P,
            right_P.astype(np.float32),
            whole_L.astype(np.float32),
            len(ids_NK),
        )

    def tuned(
        self, rule: str, train_counts_L: NDArray[np.int64] | None = None
    ) -> Decision:
        """Tune the decision of a rule.

        Args:
            rule: see the module.
            train_counts_L: training documents of each label, which make the bins; None: one bin.
        """
        name, _, value = rule.partition("=")
        if name in ("samples", "top_k"):
            return Decision(0.0, None, rule)
        if name == "budget":
            return Decision(
                self._at(round(float(value) * self.documents) - 1), None, rule
            )
        if name == "micro":
            return Decision(self._best(), None, rule)
        counts_L = (
            np.zeros(len(self.gold_L), np.int64)
            if train_counts_L is None
            else train_counts_L
        )

        def thresholds_of(mask_L: NDArray[np.bool_]) -> NDArray[np.float32]:
            return (
                self._by_label(mask_L)
                if name == "macro"
                else self._precise(mask_L, float(value))
            )

        of_all_L = thresholds_of(np.ones(len(counts_L), np.bool_))
        thresholds_L = of_all_L.copy()
        for mask_L in bin_masks(BINS, counts_L):
            if self.gold_L[mask_L].sum() >= _LEAST_GOLD:
                thresholds_L[mask_L] = thresholds_of(mask_L)[mask_L]
        return Decision(float(np.median(of_all_L)), thresholds_L, rule)

    def _of(self, mask_L: NDArray[np.bool_]) -> "Outcomes":
        """Return the outcomes of some labels."""
        pairs_of_labels = self._only(mask_L[self.label_ids_P])
        return replace(pairs_of_labels, gold_L=self.gold_L * mask_L)

    def _only(self, places: slice | NDArray[np.bool_]) -> "Outcomes":
        """Return the outcomes of some pairs."""
        return replace(
            self,
            label_ids_P=self.label_ids_P[places],
            scores_P=self.scores_P[places],
            right_P=self.right_P[places],
        )

    def _at(self, place: int) -> float:
        """Return the score of a pair; 1 before the first, 0 behind the last."""
        if place < 0:
            return 1.0
        return float(self.scores_P[place]) if place < len(self.scores_P) else 0.0

    def _last(self) -> NDArray[np.int64]:
        """Return the last place of each score that occurs."""
        next_differs_P = self.scores_P[1:] != self.scores_P[:-1]
        return np.flatnonzero(np.append(next_differs_P, len(self.scores_P) > 0))

    def _best(self) -> float:
        """Return the threshold of greatest micro-F1; a half if nothing is right."""
        if not len(self.right_P) or not self.right_P.any():
            return 0.5
        last = self._last()
        right = np.cumsum(self.right_P, dtype=np.float64)[last]
        predicted = last + 1
        half_f1 = right / (predicted + self.gold_L.sum(dtype=np.float64))
        return float(self.scores_P[last[np.argmax(half_f1)]])

    def _precise(
        self, mask_L: NDArray[np.bool_], precision: float
    ) -> NDArray[np.float32]:
        """Return the lowest threshold with this precision on some labels, (L,); 1 if none has it."""
        own = self._of(mask_L)
        last = own._last()
        right = np.cumsum(own.right_P, dtype=np.float64)[last]
        predicted = last + 1
        precise_enough = np.flatnonzero(right >= precision * predicted)
        place = int(last[precise_enough[-1]]) if len(precise_enough) else -1
        return np.full(len(mask_L), own._at(place), np.float32)

    def _by_label(self, mask_L: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Find each label's threshold of greatest F1, (L,), from its outcomes and those of all the labels given.

        The outcomes of all count as if they were of ten gold documents.
        """
        own = self._of(mask_L).stored()
        label_count = len(mask_L)
        if not own.right_P.any():
            return np.full(label_count, 0.5, np.float32)
        quantiles = np.quantile(
            own.scores_P, np.linspace(0, 1, _STEPS), method="nearest"
        )
        thresholds_T = np.unique(quantiles)[::-1]
        steps_P = np.searchsorted(-thresholds_T, -own.scores_P)
        places = (own.label_ids_P, steps_P)
        shape = (label_count, len(thresholds_T))
        right_LT = sparse.csr_array((own.right_P, places), shape=shape)
        made_LT = sparse.csr_array((np.ones_like(own.right_P), places), shape=shape)

        # What all the labels had at each threshold, scaled to ten gold documents.
        scale = _PRIOR / own.gold_L.sum(dtype=np.float64)
        prior_right_T = scale * np.cumsum(right_LT.sum(axis=0))
        prior_made_T = scale * np.cumsum(made_LT.sum(axis=0))
        best_of_all = np.argmax(prior_right_T / (prior_made_T + _PRIOR))
        best_L = np.full(label_count, thresholds_T[best_of_all], np.float32)

        proposed_labels = np.unique(own.label_ids_P)
        for start in range(0, len(proposed_labels), _BLOCK):
            label_ids = proposed_labels[start : start + _BLOCK]
            right_BT = right_LT[label_ids].toarray().cumsum(axis=1) + prior_right_T
            made_BT = made_LT[label_ids].toarray().cumsum(axis=1) + prior_made_T
            gold_B1 = own.gold_L[label_ids, None] + _PRIOR
            half_f1_BT = right_BT / (made_BT + gold_B1)
            best_L[label_ids] = thresholds_T[half_f1_BT.argmax(axis=1)]
        return best_L

    def extended(self, labels: int) -> "Outcomes":
        """Return the outcomes with this many more labels, which have none."""
        no_documents = np.zeros(labels, np.float32)
        return replace(self, gold_L=np.concatenate([self.gold_L, no_documents]))

    def regrouped(self, regrouping: Regrouping) -> "Outcomes":
        """Return the outcomes of the labels that remain; those of labels that are merged are dropped."""
        remains_L = np.isin(np.arange(len(self.gold_L)), regrouping.kept_M)
        own = self._of(remains_L)
        ids_P = regrouping.new_L[own.label_ids_P].astype(np.int32)
        return replace(own, label_ids_P=ids_P, gold_L=self.gold_L[regrouping.kept_M])

    def stored(self) -> "Outcomes":
        """Return the pairs that may matter: with a score of at least 0.01, the two million best."""
        high_enough = int(
            np.searchsorted(-self.scores_P, np.float32(-_STORED_FROM), "right")
        )
        return self._only(slice(min(_STORED, high_enough)))

    def save(self, path: Path) -> None:
        """Write the pairs that may matter."""
        write_fields(path, self.stored())

    @classmethod
    def load(cls, path: Path) -> "Outcomes":
        """Read saved outcomes.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return read_fields(path, cls)
