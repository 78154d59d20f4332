"""Evaluate a split's predictions."""

from xmtc.data.corpus import Split
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation
from xmtc.evaluate.evaluation import evaluate as measure
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds
from xmtc.stages.scoring import thresholds_of
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
    thresholds = thresholds or thresholds_of(worker, predictions, gold)
    evaluation = measure(
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
