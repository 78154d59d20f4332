"""Fit the scorers other than the head, which takes minutes and gives the first result of a run.

Suffixes: N documents, D width of the encoder, L labels.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.data.corpus import Split
from xmtc.data.words import Words
from xmtc.distributed.collectives import all_gather_object, run_collectively
from xmtc.evaluate.store import write_evaluation
from xmtc.fusion.ensemble import Ensemble, names_of
from xmtc.scorers.base import Features, Scorer, Training
from xmtc.scorers.config import ScorerSettings
from xmtc.scorers.label_text import names_of_labels
from xmtc.stages.exporting import export
from xmtc.stages.finetune import load_best
from xmtc.stages.fused_scores import FusedPredictor, load_ensemble
from xmtc.stages.hidden_states import ENCODE_TOKENS
from xmtc.stages.measuring import measure_split, numeric_metrics
from xmtc.stages.worker import Worker
from xmtc.track.console import print_line

T = TypeVar("T")


def scorers(worker: Worker) -> None:
    """Fit every scorer on train and save them; if a head is to be fused with them, write a first result without it."""
    config = worker.config
    fitted = _fit(worker, [worker.train], config.model.scorers, cached=worker.encoder_use.caches_states)
    vocabulary, doc_ids = worker.corpus.vocabulary(), worker.train.doc_ids()
    ensemble = Ensemble(vocabulary, fitted, doc_ids, config.model.fusion, has_head=False)
    run_collectively(lambda: ensemble.save(worker.paths.scorers), here=worker.is_first)
    if config.model.head.scores:
        _first_result(worker)


def refit(worker: Worker) -> None:
    """Fit the scorers that read hidden states again, on those of the trained encoder."""
    load_best(worker)
    wanted = [one for one in worker.config.model.scorers if "states" in one.needs]
    fitted = _fit(worker, [worker.train], wanted, cached=False)
    ensemble = load_ensemble(worker, has_head=False)
    refitted = replace(ensemble, scorers=ensemble.scorers | fitted)
    run_collectively(lambda: refitted.save(worker.paths.scorers), here=worker.is_first)


def fitted_on_dev_too(worker: Worker, ensemble: Ensemble) -> Ensemble:
    """Return an ensemble whose scorers are fitted on train and dev together; the fusion stays. Collective."""
    config = worker.config
    splits = [worker.train, worker.dev]
    place = worker.paths.scorers / "on_dev_too"
    cached = worker.encoder_use.caches_states and not worker.encoder_use.trains
    fitted = _fit(worker, splits, config.model.scorers, cached=cached)
    found = replace(ensemble, scorers=fitted, doc_ids=[one for split in splits for one in split.doc_ids()])
    run_collectively(lambda: found.save(place), here=worker.is_first)  # other ranks did not fit all of them
    return Ensemble.load(place, config.model.scorers, config.model.fusion, has_head=ensemble.has_head)


def _first_result(worker: Worker) -> None:
    """Measure the scorers on dev and export them, before the head trains, with the quicker fusion. Collective."""
    ensemble = load_ensemble(worker, has_head=False)
    quicker = replace(ensemble, config=replace(ensemble.config, kind="linear"))
    fused = FusedPredictor(worker, quicker, cached=worker.encoder_use.caches_states)
    predictions, histogram = fused.predict(worker.dev)
    evaluation, outcomes = measure_split(worker, worker.dev, predictions, histogram=histogram)

    def write() -> None:
        write_evaluation(worker.paths.evaluation("dev"), evaluation)
        export(worker, {}, fused.ensemble, outcomes, {"dev": numeric_metrics(evaluation.metrics)}, predictions)
        shown = ", ".join(f"{key} {evaluation.metrics[key]:.4f}" for key in ("ndcg@5", "micro_f1", "macro_f1"))
        print_line(f"scorers without the head, dev: {shown}; a model of them is in {worker.paths.model}")

    run_collectively(write, here=worker.is_first)


def _fit(
    worker: Worker, splits: Sequence[Split], wanted: Sequence[ScorerSettings], *, cached: bool
) -> dict[str, Scorer]:
    """Fit scorers on the documents of some splits, on rank 0; on other ranks, only those whose work is shared.

    Raises:
        DataError: a scorer cannot be fitted; raised on all ranks.
    """
    every, states_ND = worker.config.model.scorers, None
    if any("states" in one.needs for one in wanted):
        states_ND = np.concatenate([_pooled_states(worker, split, cached=cached) for split in splits])
    words = [split.words() for split in splits]
    features = Features(Words(_stacked([one.counts_NC for one in words]), words[0].vocabulary), states_ND)
    labels_NL = _stacked([split.label_matrix() for split in splits])
    needed = any("label_states" in one.needs for one in wanted)
    embed = (lambda texts: worker.embed(texts).numpy()) if needed else None
    names = names_of_labels(worker.corpus.labels, worker.corpus.vocabulary(), embed)
    training = Training(features, labels_NL, names)
    fitted: dict[str, Scorer] = {}

    def fit(name: str, settings: ScorerSettings) -> None:
        fitted[name] = settings.fit(training)

    with worker.progress.task("fit scorers", total=len(wanted), unit="scorers") as task:
        for name, settings in zip(names_of(every), every, strict=True):
            if any(settings is one for one in wanted):
                run_collectively(partial(fit, name, settings), here=settings.shares_work or worker.is_first)
                task.advance(1)
    return fitted


def _stacked(parts: Sequence[Matrix]) -> Matrix:
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def _pooled_states(worker: Worker, split: Split, *, cached: bool) -> NDArray[np.float32]:
    """Compute pooled states (N, D) of a split's documents, on every rank. Collective."""
    classifier = worker.classifier.eval()
    states_ND = np.zeros((len(split), classifier.encoder.width), np.float32)
    own = []
    with torch.inference_mode():
        for one, batch in worker.batches.read(
            split, ENCODE_TOKENS, cached=cached, title=f"pool states of {split.name}"
        ):
            with worker.strategy.autocast():
                states_ND[one.documents] = classifier.pool_mean(batch).cpu().numpy()
            own.append(one.documents)
    rows = np.unique(np.concatenate(own))
    for others, found in all_gather_object((rows, states_ND[rows])):
        states_ND[others] = found
    return states_ND
