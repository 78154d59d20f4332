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


def outcomes_of(
    predictions: SparsePredictions, gold: Gold, *, calibrated: bool = False
) -> Outcomes:
    """Collect what came of predictions.

    Args:
        predictions: (N, K), of dev documents, never of test.
        gold: boolean (N, L).
        calibrated: whether scores are probabilities.
    """
    gold_L = np.bincount(gold.indices, minlength=shape_of(gold)[1])
    ids_NK = predictions.label_ids_NK
    return Outcomes.of(
        ids_NK,
        predictions.scores_NK,
        match(ids_NK, gold),
        gold_L,
        calibrated=calibrated,
    )


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
    def of(
        cls, predictions: SparsePredictions, gold: Gold, *, calibrated: bool
    ) -> "HalfOutcomes":
        """Collect the outcomes of both halves, see `outcomes_of`."""
        parts = []
        for start in (
            1,
            0,
        ):  # the first part decides the even rows, the second the odd ones
            rows = np.arange(start, len(predictions), 2)
            parts.append(
                outcomes_of(predictions.take(rows), gold[rows], calibrated=calibrated)
            )
        return cls(predictions, tuple(parts))

    def tuned(self, rule: str, train_counts_L: NDArray[np.int64]) -> "Decided":
        """Tune a rule on each half, see `Outcomes.tuned`, and decide the other; the threshold is the mean of both."""
        ids_NK = self.predictions.label_ids_NK
        scores_NK = self.predictions.scores_NK
        made_NK = np.empty(ids_NK.shape, np.bool_)
        thresholds = []
        for start, outcomes in enumerate(self.parts):
            decision = outcomes.tuned(rule, train_counts_L)
            made_NK[start::2] = decision.chosen(ids_NK[start::2], scores_NK[start::2])
            thresholds.append(decision.threshold)
        return Decided(float(np.mean(thresholds)), None, rule, made_NK=made_NK)


@dataclass(frozen=True)
class Decided(Decision):
    """Decisions that were made already.

    Attributes:
        made_NK: the predictions made.
    """

    made_NK: NDArray[np.bool_] = field(kw_only=True, repr=False)

    @override
    def chosen(
        self, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        return self.made_NK[:, : ids_NK.shape[1]]


def compare_rules(
    predictions: SparsePredictions,
    gold: Gold,
    labels: LabelTable,
    in_use: Decision,
    outcomes: Outcomes | HalfOutcomes,
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
    hits_NK = match(predictions.label_ids_NK, gold)
    rules = dict.fromkeys((in_use.rule, *OWN_RULES))
    rows = []
    for rule in rules:
        decision = (
            in_use if rule == in_use.rule else outcomes.tuned(rule, labels.train_counts)
        )
        chosen_NK = decision.chosen(predictions.label_ids_NK, predictions.scores_NK)
        outcome = Outcome.of(predictions, chosen_NK, hits_NK, gold)
        rows.append({"rule": rule} | _metrics_of_rule(outcome))
    return rows


def _metrics_of_rule(outcome: Outcome) -> dict[str, float]:
    _, label_count = shape_of(outcome.gold)
    all_labels_1L = np.ones((1, label_count), np.bool_)
    scores = label_scores(outcome.label_sums(all_labels_1L))
    metrics = {}
    for name in (
        "micro_precision",
        "micro_recall",
        "micro_f1",
        "macro_f1",
        "macro_f1_predicted",
    ):
        metrics[name] = float(scores[name][0, 0])
    _, predicted_N, _ = outcome.document_counts()
    metrics["samples_f1"] = float(outcome.f1_N().mean())
    metrics["predicted_per_doc"] = float(predicted_N.mean())
    return metrics


def release_curve(judged: Judged, decision: Decision) -> dict[str, Any]:
    """Compare what is expected of documents with what came true.

    Returns:
        `share`, from 5 % to all documents; by `precision`, `recall` and `f1`: the mean of those documents of which most
        of it is expected; `bars`: by the same names, the least that is expected of them; `error`: mean distance of
        expected and true values of ten groups of documents.
    """
    expected_N3 = decision.expected(
        judged.predictions.label_ids_NK, judged.predictions.scores_NK
    )
    right_N, predicted_N, gold_N = judged.outcome.document_counts()
    wholes = (predicted_N, gold_N, (predicted_N + gold_N) / 2)
    curve: dict[str, Any] = {"share": _SHARES.tolist(), "bars": {}, "error": {}}
    for name, whole_N, expected_N in zip(EXPECTED, wholes, expected_N3.T, strict=True):
        true_N = right_N / np.maximum(whole_N, 0.5)
        surest_first = np.argsort(-expected_N, kind="stable")
        ends = np.maximum(1, np.round(_SHARES * len(surest_first)).astype(int))
        true_sums_N = np.cumsum(true_N[surest_first])
        curve[name] = (true_sums_N[ends - 1] / ends).tolist()
        curve["bars"][name] = expected_N[surest_first][ends - 1].tolist()
        curve["error"][name] = _mean_distance(
            expected_N[surest_first], true_N[surest_first]
        )
    return curve


def _mean_distance(
    expected_N: NDArray[np.floating], true_N: NDArray[np.floating]
) -> float:
    """Average the distance of mean expected and mean true values, over ten groups of neighbouring documents."""
    total = 0.0
    for group in np.array_split(np.arange(len(true_N)), min(_GROUPS, len(true_N))):
        distance = abs((expected_N[group] - true_N[group]).mean())
        total += len(group) * float(distance)
    return total / len(true_N)
