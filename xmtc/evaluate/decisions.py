"""Decisions measured: tuned on predictions, compared with other rules, and as sure as they seem.

Shapes: N documents, K kept predictions, L labels.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from xmtc.data.labels import LabelTable
from xmtc.evaluate.classification import Outcome, label_scores
from xmtc.evaluate.judged import Judged
from xmtc.fusion.decision import EXPECTED, OWN_RULES, Decision, Outcomes
from xmtc.scorers.predictions import Gold, SparsePredictions, match, shape_of

_SHARES = np.linspace(0.05, 1, 20)
_GROUPS = 10


def outcomes_of(predictions: SparsePredictions, gold: Gold, *, calibrated: bool = False) -> Outcomes:
    """Collect what came of predictions.

    Args:
        predictions: (N, K), of dev documents, never of test.
        gold: boolean (N, L).
        calibrated: whether scores are probabilities.
    """
    gold_L = np.bincount(gold.indices, minlength=shape_of(gold)[1])
    ids_NK = predictions.label_ids_NK
    return Outcomes.of(ids_NK, predictions.scores_NK, match(ids_NK, gold), gold_L, calibrated=calibrated)


@dataclass(frozen=True)
class HalfOutcomes:
    """What came of each half of the dev documents, to decide the other half, because thresholds of labels overfit.

    Attributes:
        predictions: (N, K), of dev.
        parts: the outcomes of documents with odd and with even rows.
    """

    predictions: SparsePredictions
    parts: tuple[Outcomes, ...]

    @classmethod
    def of(cls, predictions: SparsePredictions, gold: Gold, *, calibrated: bool) -> "HalfOutcomes":
        """Collect the outcomes of both halves, see `outcomes_of`."""
        others = [np.arange(start, len(predictions), 2) for start in (1, 0)]
        parts = (outcomes_of(predictions.take(rows), gold[rows], calibrated=calibrated) for rows in others)
        return cls(predictions, tuple(parts))

    def tuned(self, rule: str, train_counts_L: NDArray[np.int64]) -> "Decided":
        """Tune a rule on each half, see `Outcomes.tuned`, and decide the other; the threshold is the mean of both."""
        ids_NK, scores_NK = self.predictions.label_ids_NK, self.predictions.scores_NK
        parts, made_NK = [part.tuned(rule, train_counts_L) for part in self.parts], np.empty(ids_NK.shape, np.bool_)
        for start, part in enumerate(parts):
            made_NK[start::2] = part.chosen(ids_NK[start::2], scores_NK[start::2])
        return Decided(float(np.mean([part.threshold for part in parts])), None, rule, made_NK=made_NK)


@dataclass(frozen=True)
class Decided(Decision):
    """Decisions that were made already.

    Attributes:
        made_NK: the predictions made.
    """

    made_NK: NDArray[np.bool_] = field(kw_only=True, repr=False)

    @override
    def chosen(self, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]) -> NDArray[np.bool_]:
        return self.made_NK[:, : ids_NK.shape[1]]


def compare_rules(
    predictions: SparsePredictions, gold: Gold, labels: LabelTable, in_use: Decision, outcomes: Outcomes | HalfOutcomes
) -> list[dict[str, Any]]:
    """Measure what each rule gives and costs.

    Args:
        predictions: (N, K).
        gold: boolean (N, L).
        labels: label table.
        in_use: the decision in use, whose rule comes first.
        outcomes: outcomes of dev, on which the other rules are tuned; for predictions of dev, those of its halves.

    Returns:
        Rows with the rule and its metrics, fractions.
    """
    hits_NK, rows = match(predictions.label_ids_NK, gold), []
    for one in dict.fromkeys((in_use.rule, *OWN_RULES)):
        decision = in_use if one == in_use.rule else outcomes.tuned(one, labels.train_counts)
        chosen_NK = decision.chosen(predictions.label_ids_NK, predictions.scores_NK)
        rows.append({"rule": one} | _measured(Outcome.of(predictions, chosen_NK, hits_NK, gold)))
    return rows


def _measured(outcome: Outcome) -> dict[str, float]:
    scores = label_scores(outcome.label_sums(np.ones((1, shape_of(outcome.gold)[1]), np.bool_)))
    names = ("micro_precision", "micro_recall", "micro_f1", "macro_f1", "macro_f1_predicted")
    found = {name: float(scores[name][0, 0]) for name in names}
    _, predicted_N, _ = outcome.document_counts()
    return found | {"samples_f1": float(outcome.f1_N().mean()), "predicted_per_doc": float(predicted_N.mean())}


def release_curve(judged: Judged, decision: Decision) -> dict[str, Any]:
    """Compare what is expected of documents with what came true.

    Returns:
        `share`, from 5 % to all documents; by `precision`, `recall` and `f1`: the mean of those documents of which most
        of it is expected; `bars`: by the same names, the least that is expected of them; `error`: mean distance of
        expected and true values of ten groups of documents.
    """
    expected_N3 = decision.expected(judged.predictions.label_ids_NK, judged.predictions.scores_NK)
    right_N, predicted_N, gold_N = judged.outcome.document_counts()
    wholes = (predicted_N, gold_N, (predicted_N + gold_N) / 2)
    curve: dict[str, Any] = {"share": _SHARES.tolist(), "bars": {}, "error": {}}
    for column, (name, whole_N) in enumerate(zip(EXPECTED, wholes, strict=True)):
        true_N = right_N / np.maximum(whole_N, 0.5)
        order = np.argsort(-expected_N3[:, column], kind="stable")
        ends = np.maximum(1, np.round(_SHARES * len(order)).astype(int))
        curve["bars"][name] = expected_N3[order, column][ends - 1].tolist()
        curve[name] = (np.cumsum(true_N[order])[ends - 1] / ends).tolist()
        groups = np.array_split(order, min(_GROUPS, len(order)))
        distances = [len(group) * abs((expected_N3[group, column] - true_N[group]).mean()) for group in groups]
        curve["error"][name] = float(sum(distances) / len(order))
    return curve
