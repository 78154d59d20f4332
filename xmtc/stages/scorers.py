"""Fit the scorers other than the head, which takes minutes and gives the first result of a run.

Suffixes: N documents, D width of the encoder, L labels.
"""

from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.data.arrays import Floats
from xmtc.data.corpus import Split
from xmtc.distributed.collectives import all_gather_object, all_reduce_sum, rank_and_world_size, run_collectively
from xmtc.evaluate import layout
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.store import write_evaluation
from xmtc.fusion.candidates import Pairs
from xmtc.fusion.ensemble import Ensemble, names_of
from xmtc.models.label_text import label_texts
from xmtc.predict.fused import FusedScores
from xmtc.scorers.base import Candidates, Features, Scorer, Training
from xmtc.scorers.config import ScorerSettings
from xmtc.scorers.label_text import label_words
from xmtc.stages.ablation import cross_fitted_dev, write_ablation
from xmtc.stages.exporting import export
from xmtc.stages.scoring import measure_split, numeric_metrics, shortlist_of
from xmtc.stages.weights import load_best
from xmtc.stages.worker import ENCODE_TOKENS, Worker
from xmtc.track.console import print_line

T = TypeVar("T")


def scorers(worker: Worker) -> None:
    """Fit every scorer on train and save them; if a head is to be fused with them, write a first result without it."""
    if worker.config.trains_encoder and worker.config.scores_states:
        load_best(worker)
    fitted = _fit(worker, _states(worker, worker.train))
    run_collectively(lambda: fitted.save(worker.paths.scorers), here=worker.is_first)
    if worker.config.model.head.scores:
        _first_result(worker)


def _first_result(worker: Worker) -> None:
    """Measure the scorers on dev and export them, before the head trains, with the quicker fusion. Collective."""
    ensemble = load_ensemble(worker, has_head=False)
    ensemble = replace(ensemble, config=replace(ensemble.config, kind="linear"))
    pairs = collect_pairs(worker, worker.dev, ensemble)
    found = cross_fitted_dev(worker, ensemble.config, pairs, ensemble.names)
    evaluation, thresholds = measure_split(worker, worker.dev, predictions_of(worker, found))

    def write() -> None:
        folder = worker.paths.evaluation("dev")
        write_evaluation(folder, evaluation)
        fitted = ensemble.fitted(pairs, worker.dev.label_matrix(), worker.occurrences)
        write_ablation(worker, fitted, pairs, found, folder / layout.SCORERS)
        export(worker, {}, fitted, thresholds, {"dev": numeric_metrics(evaluation.metrics)})
        shown = ", ".join(f"{key} {evaluation.metrics[key]:.4f}" for key in ("ndcg@5", "micro_f1", "macro_f1"))
        print_line(
            f"scorers without the head, dev: {shown}; a model that predicts with them is in {worker.paths.model}"
        )

    run_collectively(write, here=worker.is_first)


def load_ensemble(worker: Worker, *, has_head: bool) -> Ensemble:
    """Load the fitted scorers, without a fusion."""
    model = worker.config.model
    return Ensemble.load(worker.paths.scorers, model.scorers, model.fusion, has_head=has_head)


class WorkerCommunicator:
    """The workers of a run, as the `Communicator` of scorers."""

    def __init__(self) -> None:
        self.rank, self.size = rank_and_world_size()

    def sum(self, values: Floats) -> Floats:
        """Sum over workers."""
        return all_reduce_sum(torch.from_numpy(values)).numpy()

    def gather(self, value: T) -> list[T]:
        """Return the values of all workers, in order of rank."""
        return all_gather_object(value)


def _fit(worker: Worker, states_ND: NDArray[np.float32] | None) -> Ensemble:
    """Fit all scorers on rank 0; on other ranks, only those whose work is shared.

    Raises:
        DataError: a scorer cannot be fitted; raised on all ranks.
    """
    config, train, vocabulary = worker.config.model, worker.train, worker.corpus.vocabulary()
    labels = label_words(label_texts(worker.corpus.labels), vocabulary)
    features = Features(train.word_rows(), states_ND)
    training = Training(features, train.label_matrix(), train.text_hashes(), labels, WorkerCommunicator())
    fitted: dict[str, Scorer] = {}

    def fit(name: str, settings: ScorerSettings) -> None:
        fitted[name] = settings.fit(training)

    with worker.progress.task("fit scorers", total=len(config.scorers), unit="scorers") as task:
        for name, settings in zip(names_of(config.scorers), config.scorers, strict=True):
            run_collectively(partial(fit, name, settings), here=settings.shares_work or worker.is_first)
            task.advance(1)
    return Ensemble(vocabulary, fitted, train.doc_ids(), config.fusion, has_head=False)


def _states(worker: Worker, split: Split) -> NDArray[np.float32] | None:
    """Compute pooled states (N, D) of a split's documents, on every rank; None if no scorer reads them. Collective."""
    if not worker.config.scores_states:
        return None
    collate = worker.collator(split, cached=not worker.config.trains_encoder)
    worker.classifier.eval()
    batches = worker.batches(split, ENCODE_TOKENS)
    states_ND = np.zeros((len(split), worker.classifier.encoder.width), np.float32)
    with (
        torch.inference_mode(),
        worker.progress.task(f"pool states of {split.name}", total=sum(len(one.documents) for one in batches)) as task,
    ):
        for one in batches:
            batch = collate(one).to(worker.strategy.device)
            with worker.strategy.autocast():
                states_ND[one.documents] = worker.classifier.pool_mean(batch).cpu().numpy()
            task.advance(len(one.documents))
    own = np.unique(np.concatenate([one.documents for one in batches]))
    for rows, found in all_gather_object((own, states_ND[own])):
        states_ND[rows] = found
    return states_ND


def collect_pairs(worker: Worker, split: Split, ensemble: Ensemble) -> Pairs:
    """Collect the candidates of all documents of a split, in order, on every rank. Collective."""
    cached = split.name != "test" and not worker.config.trains_encoder
    reads_model = ensemble.has_head or ensemble.needs_states
    collate = worker.collator(split, cached=cached and reads_model)
    shortlist = shortlist_of(worker) if ensemble.has_head else None
    fused = FusedScores(worker.classifier, ensemble, split.word_rows, shortlist=shortlist)
    batches = worker.batches(split, worker.config.finetune.tokens_per_micro_batch)
    parts: list[tuple[NDArray[np.int64], Pairs]] = []
    worker.classifier.eval()
    with (
        torch.inference_mode(),
        worker.progress.task(f"score {split.name}", total=sum(len(one.documents) for one in batches)) as task,
    ):
        for one in batches:
            with worker.strategy.autocast():
                parts.append((one.documents, fused.pairs(collate(one).to(worker.strategy.device))[1]))
            task.advance(len(one.documents))
    gathered = [part for of_rank in all_gather_object(parts) for part in of_rank]
    rows = np.concatenate([documents for documents, _ in gathered])
    _, first = np.unique(rows, return_index=True)  # fillers repeat documents
    return Pairs.concatenate([pairs for _, pairs in gathered]).take(first)


def predictions_of(worker: Worker, found: Candidates) -> SparsePredictions:
    """Select the best candidates, as many as are evaluated."""
    top_k = worker.config.evaluate.top_k
    return SparsePredictions(found.label_ids_NK[:, :top_k], found.scores_NK[:, :top_k])
