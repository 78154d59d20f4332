"""Predict a split with all scorers fused; all ranks share the work.

Suffixes: N documents, L labels, K predictions.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.data.corpus import Split
from xmtc.data.loader import in_threads
from xmtc.distributed.collectives import all_gather_object, run_collectively
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.fusion.cross_fit import CrossFit
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.predict.fused_scores import FusedScores
from xmtc.scorers.predictions import SparsePredictions, logits_of
from xmtc.stages.ablation import Ablation
from xmtc.stages.head_scores import new_histogram, shortlist_of
from xmtc.stages.worker import Worker

_BLOCK = 512  # documents whose scores of all labels are in memory at once
_LABELS_AT_ONCE = 1_000_000  # of all batches whose scores of all labels are in memory at once
_LOWEST = -30.0  # logit of labels that are not candidates, below that of every candidate


def load_ensemble(worker: Worker, *, has_head: bool) -> Ensemble:
    """Load the fitted scorers, without a fusion."""
    model = worker.config.model
    return Ensemble.load(worker.paths.scorers, model.scorers, model.fusion, has_head=has_head)


class FusedPredictor:
    """Predicts with all scorers, fused. Dev is predicted first, because the fusion is fitted on it.

    Each half of dev is predicted with a fusion fitted on the other half, so dev metrics and thresholds are unbiased.
    Other splits, and the exported model, use a fusion fitted on all of dev, which also chooses the kind.

    Args:
        worker: worker of this rank.
        ensemble: scorers, with or without the head, and the settings of their fusion.
        cached: whether to read states of dev from disk, which are those of the untrained encoder.

    Attributes:
        ensemble: the ensemble; it has a fusion once dev is predicted.
    """

    def __init__(self, worker: Worker, ensemble: Ensemble, *, cached: bool) -> None:
        self.worker, self.ensemble, self._cached = worker, ensemble, cached
        self._occurrences = Occurrences.of(worker.train.label_matrix())

    def predict(self, split: Split) -> tuple[SparsePredictions, ScoreHistogram | None]:
        """Predict a split, and count all scores; dev fits the fusion and writes the ablation. Collective."""
        worker, pairs = self.worker, self._pairs(split)
        if split.name == "dev":
            found = self._fit(pairs)
        else:
            assert self.ensemble.fusion is not None, "dev is predicted first"
            found = self.ensemble.fusion.fuse(pairs, exclusive=worker.config.data.one_label)
        predictions = found.top(worker.config.evaluate.top_k)
        return predictions, self._histogram(split, predictions)

    def _fit(self, pairs: Pairs) -> SparsePredictions:
        """Fit the fusion on dev and write the ablation. Return dev, cross-fitted by a fusion of the same kind."""
        worker, gold_NL = self.worker, self.worker.dev.label_matrix()
        self.ensemble = self.ensemble.fitted(pairs, gold_NL, self._occurrences)
        ablation = Ablation(worker, self.ensemble, CrossFit(pairs, gold_NL, self._occurrences))
        logits_NK = ablation.logits()
        run_collectively(lambda: ablation.write(logits_NK), here=worker.is_first)
        return ablation.candidates(logits_NK)

    def _pairs(self, split: Split) -> Pairs:
        """Collect the candidates of all documents of a split, in order, on every rank. Collective.

        Other threads score words while this one encodes the next documents.
        """
        worker, ensemble = self.worker, self.ensemble
        cached = self._cached and (ensemble.has_head or ensemble.needs_states) and split.name != "test"
        shortlist = shortlist_of(worker) if ensemble.has_head else None
        fused = FusedScores(worker.classifier, ensemble, split.words, shortlist=shortlist)
        tokens = worker.config.finetune.tokens_per_micro_batch
        worker.classifier.eval()

        def encoded() -> Iterator[Callable[[], tuple[NDArray[np.int64], Pairs]]]:
            for one, batch in worker.batches.read(split, tokens, cached=cached, title=f"score {split.name}"):
                with torch.inference_mode(), worker.strategy.autocast():
                    features, head = fused.features(batch)
                yield lambda rows=one.documents, found=(features, head): (rows, ensemble.pairs(*found))

        threads = max(1, min(torch.get_num_threads(), _LABELS_AT_ONCE // len(worker.corpus.labels)))
        parts = list(in_threads(encoded(), threads))
        gathered = [part for of_rank in all_gather_object(parts) for part in of_rank]
        rows = np.concatenate([documents for documents, _ in gathered])
        _, first = np.unique(rows, return_index=True)  # fillers repeat documents
        return Pairs.concatenate([pairs for _, pairs in gathered]).take(first)

    def _histogram(self, split: Split, predictions: SparsePredictions) -> ScoreHistogram | None:
        """Count all scores; labels that are not candidates share the lowest score."""
        histogram = new_histogram(self.worker)
        if histogram is None:
            return None
        gold = split.label_matrix()
        for start in range(0, len(predictions), _BLOCK):
            rows = slice(start, start + _BLOCK)
            ids_BK, scores_BK = predictions.label_ids_NK[rows], predictions.scores_NK[rows]
            logits_BL = np.full((len(ids_BK), len(self.worker.corpus.labels)), _LOWEST, np.float32)
            at = np.nonzero(ids_BK >= 0)
            logits_BL[at[0], ids_BK[at]] = logits_of(scores_BK[at])
            histogram.update(torch.from_numpy(logits_BL).to(self.worker.strategy.device), gold[rows])
        return histogram
