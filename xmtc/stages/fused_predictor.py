"""Predict a split with all scorers fused; all ranks share the work.

Suffixes: N documents, L labels, K predictions.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.data.corpus import Split
from xmtc.data.loader import in_threads
from xmtc.distributed.collectives import all_gather_object, run_collectively
from xmtc.errors import DataError
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.fusion.cross_fit import CrossFit
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.predict.fused_scores import FusedScores
from xmtc.scorers.base import Features, Scored
from xmtc.scorers.predictions import SparsePredictions, logits_of
from xmtc.stages.ablation import Ablation
from xmtc.stages.head_scores import new_histogram, shortlist_of
from xmtc.stages.worker import Worker

_BLOCK = 512
"""Documents whose scores of all labels are in memory at once."""
_LABELS_AT_ONCE = 1_000_000
"""Labels of all batches whose scores of all labels are in memory at once."""
_LOWEST = -30.0
"""Logit of labels that are not candidates, below that of every candidate."""


def load_ensemble(worker: Worker, *, has_head: bool) -> Ensemble:
    """Load the fitted scorers, without a fusion."""
    model = worker.config.model
    return Ensemble.load(
        worker.paths.scorers, model.scorers, model.fusion, has_head=has_head
    )


class FusedPredictor:
    """Predicts with all scorers, fused. Dev is predicted first, because the fusion is fitted on it.

    Each half of dev is predicted with a fusion fitted on the other half, so dev metrics and thresholds are unbiased.
    Other splits, and the exported model, use a fusion of the same kind, fitted on all of dev.

    Args:
        worker: worker of this rank.
        ensemble: scorers, with or without the head, and the settings of their fusion.
        cached: whether to read states of dev from disk, which are those of the untrained encoder.

    Attributes:
        ensemble: the ensemble; it has a fusion once dev is predicted.
    """

    def __init__(self, worker: Worker, ensemble: Ensemble, *, cached: bool) -> None:
        self.worker = worker
        self.ensemble = ensemble
        self._cached = cached
        self._occurrences = Occurrences.of(worker.train.label_matrix())

    def predict(self, split: Split) -> tuple[SparsePredictions, ScoreHistogram | None]:
        """Predict a split, and count all scores; dev fits the fusion and writes the ablation. Collective."""
        config = self.worker.config
        pairs = self.pairs(split)
        if split.name == "dev":
            candidates = self._fit(pairs)
        else:
            assert self.ensemble.fusion is not None, "dev is predicted first"
            candidates = self.ensemble.fusion.fuse(
                pairs, exclusive=config.data.one_label
            )
        predictions = candidates.top(config.evaluate.top_k)
        return predictions, self._histogram(split, predictions)

    def _fit(self, pairs: Pairs) -> SparsePredictions:
        """Fit the fusion on dev and write the ablation. Return dev, cross-fitted by a fusion of the same kind."""
        ablation = self.ablation(pairs)
        run_collectively(ablation.write, here=self.worker.is_first)
        return ablation.candidates(ablation.logits_NK)

    def ablation(self, pairs: Pairs) -> Ablation:
        """Fit the fusion on the judged pairs of dev. Return what fuses some of the scorers on its halves.

        Raises:
            DataError: no candidate is right.
        """
        pairs = pairs.without(self.worker.dev.unjudged_matrix())
        gold_NL = self.worker.dev.label_matrix()
        if not pairs.right(gold_NL).any():
            raise DataError(
                "the fusion of the scorers cannot be fitted, because no label that they find for dev is right: give a "
                "dev split that shares labels with train"
            )
        ensemble = self.ensemble
        cross_fit = CrossFit(
            pairs, gold_NL, self._occurrences, ensemble.config.candidates
        )
        fusion, logits_NK = cross_fit.everything(ensemble.names, ensemble.config)
        self.ensemble = replace(ensemble, fusion=fusion)
        return Ablation(self.worker, self.ensemble, cross_fit, logits_NK)

    def pairs(self, split: Split) -> Pairs:
        """Collect the candidates of all documents of a split, in order, on every rank. Collective.

        Other threads score words while this one encodes the next documents.
        """
        worker = self.worker
        ensemble = self.ensemble
        reads_states = ensemble.has_head or ensemble.needs_states
        cached = self._cached and reads_states and split.name != "test"
        shortlist = shortlist_of(worker) if ensemble.has_head else None
        fused = FusedScores(
            worker.classifier, ensemble, split.words, shortlist=shortlist
        )
        tokens = worker.config.finetune.tokens_per_micro_batch
        worker.classifier.eval()

        def encoded() -> Iterator[Callable[[], tuple[NDArray[np.int64], Pairs]]]:
            batches = worker.batches.read(
                split, tokens, cached=cached, title=f"score {split.name}"
            )
            for micro_batch, batch in batches:
                with torch.inference_mode(), worker.strategy.autocast():
                    features, head = fused.features(batch)
                yield partial(pairs_of, micro_batch.documents, features, head)

        def pairs_of(
            rows: NDArray[np.int64], features: Features, head: Scored | None
        ) -> tuple[NDArray[np.int64], Pairs]:
            return rows, ensemble.pairs(features, head)

        threads = max(
            1,
            min(torch.get_num_threads(), _LABELS_AT_ONCE // len(worker.corpus.labels)),
        )
        parts = list(in_threads(encoded(), threads))
        gathered = list(chain.from_iterable(all_gather_object(parts)))
        rows = np.concatenate([documents for documents, _ in gathered])
        _, first = np.unique(rows, return_index=True)  # fillers repeat documents
        return Pairs.concatenate([pairs for _, pairs in gathered]).take(first)

    def _histogram(
        self, split: Split, predictions: SparsePredictions
    ) -> ScoreHistogram | None:
        """Count all scores; labels that are not candidates share the lowest score."""
        histogram = new_histogram(self.worker)
        if histogram is None:
            return None
        gold = split.label_matrix()
        unjudged = split.unjudged_matrix()
        label_count = len(self.worker.corpus.labels)
        for start in range(0, len(predictions), _BLOCK):
            block = slice(start, start + _BLOCK)
            ids_BK = predictions.label_ids_NK[block]
            scores_BK = predictions.scores_NK[block]
            used_BK = ids_BK >= 0
            rows, _ = np.nonzero(used_BK)
            logits_BL = np.full((len(ids_BK), label_count), _LOWEST, np.float32)
            logits_BL[rows, ids_BK[used_BK]] = logits_of(scores_BK[used_BK])
            histogram.update(
                torch.from_numpy(logits_BL).to(self.worker.strategy.device),
                gold[block],
                None if unjudged is None else unjudged[block],
            )
        return histogram
