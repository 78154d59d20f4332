"""Score a split of the corpus on all ranks, and evaluate the predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_gather_object
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions, shape_of
from xmtc.evaluate.thresholds import Thresholds, tune_threshold
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.predict.scorer import Scoring, max_documents, score_split
from xmtc.predict.shortlist import Shortlist
from xmtc.stages.worker import Worker
from xmtc.training.shard_scores import ShardScores


def score(
    worker: Worker,
    split: Split,
    *,
    top_k: int,
    cached: bool = False,
    documents: int | None = None,
    histogram: ScoreHistogram | None = None,
) -> tuple[NDArray[np.int64], SparsePredictions]:
    """Score a split. Return the scored rows, ascending, and their predictions on every rank; ranks share the work."""
    tokens = worker.config.finetune.tokens_per_micro_batch
    best = shortlist_of(worker) if worker.shard.world == 1 else _best_of_all_workers(worker, top_k)
    collate = worker.collator(split, cached=cached)
    batches = worker.batches(split, tokens, documents, max_documents(len(worker.corpus.labels), best))
    parts = [batch.documents for batch in batches]
    with worker.progress.task(f"score {split.name}", total=sum(map(len, parts))) as task:
        ids_NK, scores_NK = score_split(
            worker.classifier,
            split,
            collate,
            Scoring(
                len(worker.corpus.labels),
                top_k,
                tokens,
                worker.config.data.task,
                worker.config.distributed.precision == "bf16",
            ),
            batches=parts,
            progress=task.advance,
            on_logits=None if histogram is None else logit_counter(histogram, batches, split.label_matrix()),
            best=best,
        )
    if histogram is not None:
        histogram.sum_over_ranks()
    for other_ids, other_scores in all_gather_object((ids_NK, scores_NK)):
        found = other_ids[:, 0] >= 0
        ids_NK[found], scores_NK[found] = other_ids[found], other_scores[found]
    rows = np.flatnonzero(ids_NK[:, 0] >= 0)
    return rows, SparsePredictions(ids_NK[rows], scores_NK[rows])


def _best_of_all_workers(worker: Worker, top_k: int) -> ShardScores:
    """Make the merged best labels of all workers; with a shortlist, each worker only scores what its index finds."""
    settings = worker.config.evaluate
    size = settings.shortlist
    index = None if size is None else LabelIndex(LabelVectors.of(worker.classifier.head), settings.index)
    return ShardScores(worker.classifier, worker.shard, size or top_k, index)


def logit_counter(
    histogram: ScoreHistogram, batches: Sequence[MicroBatch], gold: sparse.csr_array
) -> Callable[[NDArray[np.int64], Tensor], None]:
    """Make a function that counts the logits of this rank's documents, except those that another rank counts."""
    own_N = np.zeros(shape_of(gold)[0], np.bool_)
    for batch in batches:
        own_N[batch.documents[batch.weights > 0]] = True

    def count(rows_B: NDArray[np.int64], logits_BL: Tensor) -> None:
        own_B = own_N[rows_B]
        histogram.update(logits_BL[torch.from_numpy(own_B).to(logits_BL.device)], gold[rows_B[own_B]])

    return count


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
    thresholds = thresholds or _tune(worker, predictions, gold, calibrated=calibrated)
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
        thresholds=_tune(worker, predictions, gold, calibrated=calibrated),
    ).metrics


def _tune(
    worker: Worker, predictions: SparsePredictions, gold: sparse.csr_array, *, calibrated: bool
) -> Thresholds | None:
    """Tune thresholds on these predictions; None for single-label tasks."""
    config = worker.config.evaluate
    if worker.config.data.task == "single_label":
        return None
    return tune_threshold(
        predictions,
        gold,
        probabilities=calibrated,
        per_label=config.per_label_thresholds,
    )


def shortlist_of(worker: Worker) -> Shortlist | None:
    """Make the shortlist from an index of the current labels; None if all labels are scored."""
    size = worker.config.evaluate.shortlist
    return None if size is None else Shortlist(worker.classifier, size, build_index(worker))


def build_index(worker: Worker) -> LabelIndex:
    """Build an index of the current labels."""
    classifier = worker.classifier
    return LabelIndex(LabelVectors.of(classifier.head, classifier.calibration), worker.config.evaluate.index)


def numeric_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Select the numeric metrics of `metrics.json`."""
    return {k: float(v) for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
