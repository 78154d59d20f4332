"""From a split's predictions to its evaluation."""

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
    """The evaluation of a whole split, and the thresholds that it used.

    Args:
        worker: of this rank.
        split: which.
        predictions: of its documents, in order.
        thresholds: tuned before; tuned on these predictions when absent.
        histogram: of all scores, for the areas under the curve.
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
