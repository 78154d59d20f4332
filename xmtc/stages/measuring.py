"""Measure predictions with a run's settings.

Suffixes: N documents, L labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scipy import sparse

from xmtc.data.corpus import Split
from xmtc.evaluate.decisions import HalfOutcomes, compare_rules, outcomes_of
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.fusion.decision import Outcomes
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.worker import Worker


def measure_split(
    worker: Worker,
    split: Split,
    predictions: SparsePredictions,
    outcomes: Outcomes | None = None,
    histogram: ScoreHistogram | None = None,
) -> tuple[Evaluation, Outcomes | None]:
    """Evaluate a whole split. Return the evaluation, and the outcomes that its decision was tuned on, if any.

    Args:
        worker: worker of this rank.
        split: the split.
        predictions: predictions for its documents, in order.
        outcomes: outcomes to tune the decision on. Default: those of these predictions.
        histogram: histogram of all scores, for the areas under the curve.
    """
    gold = split.label_matrix()
    predictions = predictions.without(split.unjudged_matrix())
    calibrated = (
        bool(worker.config.model.scorers) or worker.classifier.calibration is not None
    )
    labels = worker.corpus.labels
    config = worker.config.evaluate
    compared: Outcomes | HalfOutcomes | None = outcomes
    decision = None
    if outcomes is None and worker.config.data.task != "single_label":
        outcomes = outcomes_of(predictions, gold, calibrated=calibrated)
        compared = HalfOutcomes.of(predictions, gold, calibrated=calibrated)
    if outcomes is not None and compared is not None:
        decision = outcomes.tuned(config.decision, labels.train_counts)
        if decision.thresholds_L is not None:
            decision = compared.tuned(config.decision, labels.train_counts)
    evaluation = evaluate(
        predictions,
        gold,
        labels,
        len(worker.train),
        config=config,
        decision=decision,
        documents=EvaluatedDocuments(split.doc_ids(), split.lengths),
        histogram=histogram,
    )
    if compared is not None:
        in_use = compared.tuned(config.decision, labels.train_counts)
        evaluation.details["rules"] = compare_rules(
            predictions, gold, labels, in_use, compared
        )
    return evaluation, outcomes


def quick_metrics(
    worker: Worker,
    predictions: SparsePredictions,
    gold: sparse.csr_array,
    *,
    calibrated: bool = False,
) -> dict[str, Any]:
    """Compute metrics of some documents without intervals, see `quick_evaluation`."""
    return quick_evaluation(worker, predictions, gold, calibrated=calibrated).metrics


def quick_evaluation(
    worker: Worker,
    predictions: SparsePredictions,
    gold: sparse.csr_array,
    *,
    calibrated: bool = False,
    resamples: int = 0,
) -> Evaluation:
    """Evaluate some documents; the decision is tuned on the same documents.

    Args:
        worker: worker of this rank.
        predictions: predictions for N documents.
        gold: boolean labels (N, L) of the same documents.
        calibrated: whether scores are probabilities.
        resamples: bootstrap resamples behind intervals; 0 leaves them out.
    """
    labels = worker.corpus.labels
    config = replace(worker.config.evaluate, resamples=resamples)
    decision = None
    if worker.config.data.task != "single_label":
        outcomes = outcomes_of(predictions, gold, calibrated=calibrated)
        decision = outcomes.tuned(config.decision, labels.train_counts)
    return evaluate(
        predictions, gold, labels, len(worker.train), config=config, decision=decision
    )


def numeric_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Select the numeric metrics of `metrics.json`."""
    numbers = {}
    for name, value in metrics.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = float(value)
    return numbers
