"""Measure predictions with a run's settings.

Suffixes: N documents, L labels.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scipy import sparse

from xmtc.data.corpus import Split
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds, tune_threshold
from xmtc.run.config import RunConfig
from xmtc.stages.worker import Worker


def measure_split(
    worker: Worker,
    split: Split,
    predictions: SparsePredictions,
    thresholds: Thresholds | None = None,
    histogram: ScoreHistogram | None = None,
) -> tuple[Evaluation, Thresholds | None]:
    """Evaluate a whole split. Return the evaluation, and the thresholds that it used.

    Args:
        worker: worker of this rank.
        split: the split.
        predictions: predictions for its documents, in order.
        thresholds: thresholds to use. Default: tuned on these predictions.
        histogram: histogram of all scores, for the areas under the curve.
    """
    gold = split.label_matrix()
    calibrated = bool(worker.config.model.scorers) or worker.classifier.calibration is not None
    thresholds = thresholds or _tune(worker.config, predictions, gold, calibrated=calibrated)
    evaluation = evaluate(
        predictions,
        gold,
        worker.corpus.labels,
        len(worker.train),
        config=worker.config.evaluate,
        thresholds=thresholds,
        documents=EvaluatedDocuments(split.doc_ids(), split.lengths),
        histogram=histogram,
    )
    return evaluation, thresholds


def quick_metrics(
    worker: Worker, predictions: SparsePredictions, gold: sparse.csr_array, *, calibrated: bool = False
) -> dict[str, Any]:
    """Compute metrics of some documents without intervals, at thresholds tuned on the same documents.

    Args:
        worker: worker of this rank.
        predictions: predictions for N documents.
        gold: boolean labels (N, L) of the same documents.
        calibrated: whether scores are probabilities, see `tune_threshold`.
    """
    return evaluate(
        predictions,
        gold,
        worker.corpus.labels,
        len(worker.train),
        config=replace(worker.config.evaluate, resamples=0),
        thresholds=_tune(worker.config, predictions, gold, calibrated=calibrated),
    ).metrics


def _tune(
    config: RunConfig, predictions: SparsePredictions, gold: sparse.csr_array, *, calibrated: bool
) -> Thresholds | None:
    """Tune thresholds on these predictions; None for single-label tasks."""
    if config.data.task == "single_label":
        return None
    return tune_threshold(
        predictions,
        gold,
        probabilities=calibrated,
        per_label=config.evaluate.per_label_thresholds,
    )


def numeric_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Select the numeric metrics of `metrics.json`."""
    return {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
