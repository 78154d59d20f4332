"""Predict a split with the head alone, or with all scorers fused.

Dev is predicted first: calibration and fusion are fitted on it.

Suffixes: N documents, L labels, K predictions.
"""

import numpy as np
import torch
from scipy.special import logit

from xmtc.data.corpus import Split
from xmtc.distributed.collectives import run_collectively
from xmtc.evaluate import layout
from xmtc.evaluate.evaluation import Evaluation
from xmtc.evaluate.fit_calibration import calibrated, fit_calibration, note_uncalibrated
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.fusion.ensemble import Ensemble
from xmtc.stages.ablation import cross_fitted_dev, write_ablation
from xmtc.stages.scorers import collect_pairs, load_ensemble, predictions_of
from xmtc.stages.scoring import score
from xmtc.stages.worker import Worker

MAX_LABELS_WITH_AUC = 200_000  # 8 · 512 bytes per label: 0.8 GB of score counts
_BLOCK = 512  # documents whose scores of all labels are in memory at once
_LOWEST = -30.0  # logit of labels that are not candidates, below that of every candidate


class HeadPredictor:
    """Predicts with the calibrated head.

    Attributes:
        ensemble: None.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ensemble: Ensemble | None = None

    def predict(self, split: Split) -> tuple[SparsePredictions, ScoreHistogram | None]:
        """Predict a split, and count all scores; dev fits the calibration. Collective."""
        worker = self.worker
        histogram = _histogram(worker)
        cached = split.name == "dev" and not worker.config.trains_encoder  # fine-tuning has cached dev already
        top_k = worker.config.evaluate.top_k
        _, predictions = score(worker, split, top_k=top_k, cached=cached, histogram=histogram)
        if split.name == "dev":
            self._calibrate(predictions)
            predictions = calibrated(predictions, worker.classifier.calibration)
        return predictions, histogram

    def _calibrate(self, predictions: SparsePredictions) -> None:
        """Calibrate the classifier's logits, if the configuration asks for it."""
        worker, config = self.worker, self.worker.config
        if config.evaluate.calibration and config.data.task == "multi_label":
            counts_L, gold = worker.corpus.labels.train_counts, worker.dev.label_matrix()
            worker.classifier.calibration = fit_calibration(predictions, gold, counts_L, config.evaluate.bins)

    def add_metrics(self, split: Split, evaluation: Evaluation, predictions: SparsePredictions) -> None:
        """Add the effect of calibration to an evaluation."""
        note_uncalibrated(evaluation, predictions, split.label_matrix(), self.worker.classifier.calibration)


class FusedPredictor:
    """Predicts with head and scorers, fused.

    Each half of dev is predicted with a fusion fitted on the other half, so dev metrics and thresholds are unbiased.
    Other splits, and the exported model, use a fusion fitted on all of dev.

    Attributes:
        ensemble: the ensemble; it has a fusion once dev is predicted.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ensemble = load_ensemble(worker, has_head=worker.config.model.head.scores)

    def predict(self, split: Split) -> tuple[SparsePredictions, ScoreHistogram | None]:
        """Predict a split, and count all scores. Collective."""
        worker = self.worker
        pairs = collect_pairs(worker, split, self.ensemble)
        if split.name == "dev":
            found = cross_fitted_dev(worker, self.ensemble.config, pairs, self.ensemble.names)
            self.ensemble = self.ensemble.fitted(pairs, split.label_matrix(), worker.occurrences)
            path = worker.paths.evaluation("dev") / layout.SCORERS
            run_collectively(lambda: write_ablation(worker, self.ensemble, pairs, found, path), here=worker.is_first)
        else:
            found = self.ensemble.fuse(pairs, exclusive=worker.config.data.task == "single_label")
        predictions = predictions_of(worker, found)
        return predictions, self._histogram(split, predictions)

    def _histogram(self, split: Split, predictions: SparsePredictions) -> ScoreHistogram | None:
        """Count all scores; labels that are not candidates share the lowest score."""
        histogram = _histogram(self.worker)
        if histogram is None:
            return None
        gold = split.label_matrix()
        for start in range(0, len(predictions), _BLOCK):
            rows = slice(start, start + _BLOCK)
            ids_BK, scores_BK = predictions.label_ids_NK[rows], predictions.scores_NK[rows]
            logits_BL = np.full((len(ids_BK), len(self.worker.corpus.labels)), _LOWEST, np.float32)
            at = np.nonzero(ids_BK >= 0)
            logits_BL[at[0], ids_BK[at]] = logit(np.clip(scores_BK[at].astype(np.float64), 1e-7, 1 - 1e-7))
            histogram.update(torch.from_numpy(logits_BL).to(self.worker.strategy.device), gold[rows])
        return histogram

    def add_metrics(self, split: Split, evaluation: Evaluation, predictions: SparsePredictions) -> None:
        """Do nothing: the fusion is the calibration."""
        del split, evaluation, predictions


def _histogram(worker: Worker) -> ScoreHistogram | None:
    """Make the counts of all scores for the areas under the curve, if all are computed and the tables stay small."""
    labels = len(worker.corpus.labels)
    if labels > MAX_LABELS_WITH_AUC or worker.config.evaluate.shortlist is not None:
        return None
    return ScoreHistogram(labels, device=worker.strategy.device)
