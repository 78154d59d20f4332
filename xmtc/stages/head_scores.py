"""Predict a split with the head alone; all ranks share the work.

Suffixes: B documents of a batch, N of the split, L labels, K predictions.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_gather_object
from xmtc.evaluate.fit_calibration import calibrated, fit_calibration
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.fusion.ensemble import Ensemble
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.predict.ranking import Scoring, max_documents, score_split
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.scorers.predictions import SparsePredictions, shape_of
from xmtc.stages.shard_scores import ShardScores
from xmtc.stages.worker import Worker

MAX_LABELS_WITH_AUC = 200_000
"""Score counts take 8 · 512 bytes per label, so these take 0.8 GB."""


class HeadPredictor:
    """Predicts with the calibrated head. Dev is predicted first, because the calibration is fitted on it.

    Attributes:
        ensemble: None.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ensemble: Ensemble | None = None

    def predict(self, split: Split) -> tuple[SparsePredictions, ScoreHistogram | None]:
        """Predict a split, and count all scores; dev fits the calibration. Collective."""
        worker = self.worker
        histogram = new_histogram(worker)
        cached = (
            split.name == "dev" and not worker.encoder_use.trains
        )  # fine-tuning has cached dev already
        _, predictions = score(worker, split, cached=cached, histogram=histogram)
        if split.name == "dev":
            self._calibrate(predictions)
            predictions = calibrated(predictions, worker.classifier.calibration)
            if histogram is not None:
                histogram.calibration = worker.classifier.calibration
        return predictions, histogram

    def _calibrate(self, predictions: SparsePredictions) -> None:
        """Calibrate the classifier's logits, if the configuration asks for it."""
        worker = self.worker
        config = worker.config
        if config.evaluate.calibration and config.data.task == "multi_label":
            worker.classifier.calibration = fit_calibration(
                predictions,
                worker.dev.label_matrix(),
                worker.corpus.labels.train_counts,
                config.evaluate.bins,
            )


def score(
    worker: Worker,
    split: Split,
    *,
    cached: bool = False,
    documents: int | None = None,
    histogram: ScoreHistogram | None = None,
) -> tuple[NDArray[np.int64], SparsePredictions]:
    """Score a split. Return the scored rows, ascending, and their predictions on every rank.

    Args:
        worker: worker of this rank.
        split: the split.
        cached: whether to read cached outputs of the untrained encoder.
        documents: number of documents to score, chosen by the seed. Default: all.
        histogram: counts all scores.
    """
    config = worker.config
    labels = len(worker.corpus.labels)
    tokens = config.finetune.tokens_per_micro_batch
    top_k = config.evaluate.top_k
    best = (
        shortlist_of(worker)
        if worker.shard.world == 1
        else _best_of_all_workers(worker, top_k)
    )
    collate = worker.batches.collator(split, cached=cached)
    batches = worker.batches.share(
        split, tokens, documents, max_documents(labels, best)
    )
    parts = [batch.documents for batch in batches]
    on_logits = None
    if histogram is not None:
        on_logits = logit_counter(
            histogram, batches, split.label_matrix(), split.unjudged_matrix()
        )
    with worker.progress.task(
        f"score {split.name}", total=sum(map(len, parts))
    ) as task:
        ids_NK, scores_NK = score_split(
            worker.classifier,
            split,
            collate,
            Scoring(
                labels,
                top_k,
                tokens,
                config.data.task,
                config.distributed.precision == "bf16",
            ),
            batches=parts,
            progress=task.advance,
            on_logits=on_logits,
            best=best,
        )
    if histogram is not None:
        histogram.sum_over_ranks()
    for ids_of_rank_NK, scores_of_rank_NK in all_gather_object((ids_NK, scores_NK)):
        scored_N = ids_of_rank_NK[:, 0] >= 0
        ids_NK[scored_N] = ids_of_rank_NK[scored_N]
        scores_NK[scored_N] = scores_of_rank_NK[scored_N]
    rows = np.flatnonzero(ids_NK[:, 0] >= 0)
    return rows, SparsePredictions(ids_NK[rows], scores_NK[rows])


def _best_of_all_workers(worker: Worker, top_k: int) -> ShardScores:
    """Make the merged best labels of all workers; with a shortlist, each worker only scores what its index finds."""
    settings = worker.config.evaluate
    size = settings.shortlist
    index = (
        None
        if size is None
        else LabelIndex(LabelVectors.of(worker.classifier.head), settings.index)
    )
    return ShardScores(worker.classifier, worker.shard, size or top_k, index)


def new_histogram(worker: Worker) -> ScoreHistogram | None:
    """Make the counts of all scores for the areas under the curve, if all are computed and the tables stay small."""
    labels = len(worker.corpus.labels)
    if labels > MAX_LABELS_WITH_AUC or worker.config.evaluate.shortlist is not None:
        return None
    return ScoreHistogram(labels, device=worker.strategy.device)


def logit_counter(
    histogram: ScoreHistogram,
    batches: Sequence[MicroBatch],
    gold: sparse.csr_array,
    unjudged: sparse.csr_array | None = None,
) -> Callable[[NDArray[np.int64], Tensor], None]:
    """Make a function that counts the logits of this rank's documents, except those that another rank counts."""
    own_N = np.zeros(shape_of(gold)[0], np.bool_)
    for batch in batches:
        own_N[batch.documents[batch.weights > 0]] = True

    def count(rows_B: NDArray[np.int64], logits_BL: Tensor) -> None:
        own_B = own_N[rows_B]
        rows = rows_B[own_B]
        own_logits_BL = logits_BL[torch.from_numpy(own_B).to(logits_BL.device)]
        histogram.update(
            own_logits_BL, gold[rows], None if unjudged is None else unjudged[rows]
        )

    return count


def shortlist_of(worker: Worker) -> ShortlistScores | None:
    """Make the shortlist from an index of the current labels; None if all labels are scored."""
    size = worker.config.evaluate.shortlist
    return (
        None
        if size is None
        else ShortlistScores(worker.classifier, size, build_index(worker))
    )


def build_index(worker: Worker) -> LabelIndex:
    """Build an index of the current labels."""
    classifier = worker.classifier
    return LabelIndex(
        LabelVectors.of(classifier.head, classifier.calibration),
        worker.config.evaluate.index,
    )
