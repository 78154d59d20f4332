"""Fit the scorers other than the head, which takes minutes and gives the first result of a run.

Suffixes: N documents, D width of the encoder, L labels.
"""

import logging
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
from xmtc.evaluate.summary import in_words
from xmtc.fusion.ensemble import Ensemble, names_of
from xmtc.scorers.base import Features, Scorer, Training
from xmtc.scorers.config import ScorerSettings
from xmtc.scorers.label_text import names_of_labels
from xmtc.stages.exporting import export
from xmtc.stages.finetune import load_best
from xmtc.stages.fused_predictor import FusedPredictor, load_ensemble
from xmtc.stages.hidden_states import ENCODE_TOKENS
from xmtc.stages.measuring import measure_split, numeric_metrics
from xmtc.stages.worker import Worker
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)

T = TypeVar("T")


def scorers(worker: Worker) -> None:
    """Fit every scorer on train and save them; if a head is to be fused with them, write a first result without it."""
    config = worker.config
    fitted = _fit(
        worker,
        [worker.train],
        config.model.scorers,
        cached=worker.encoder_use.caches_states,
    )
    ensemble = Ensemble(
        worker.corpus.vocabulary(),
        fitted,
        worker.train.doc_ids(),
        config.model.fusion,
        has_head=False,
    )
    run_collectively(lambda: ensemble.save(worker.paths.scorers), here=worker.is_first)
    if config.model.head.scores:
        _first_result(worker)


def refit(worker: Worker) -> None:
    """Fit the scorers that read hidden states again, on those of the trained encoder."""
    load_best(worker)
    of_states = [
        settings
        for settings in worker.config.model.scorers
        if "states" in settings.needs
    ]
    fitted = _fit(worker, [worker.train], of_states, cached=False)
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
    doc_ids = [*worker.train.doc_ids(), *worker.dev.doc_ids()]
    refitted = replace(ensemble, scorers=fitted, doc_ids=doc_ids)
    run_collectively(
        lambda: refitted.save(place), here=worker.is_first
    )  # other ranks did not fit all of them
    return Ensemble.load(
        place, config.model.scorers, config.model.fusion, has_head=ensemble.has_head
    )


def _first_result(worker: Worker) -> None:
    """Measure the scorers on dev and export them, before the head trains, with the quicker fusion. Collective."""
    ensemble = load_ensemble(worker, has_head=False)
    quicker = replace(ensemble, config=replace(ensemble.config, kind="linear"))
    fused = FusedPredictor(worker, quicker, cached=worker.encoder_use.caches_states)
    predictions, histogram = fused.predict(worker.dev)
    evaluation, outcomes = measure_split(
        worker, worker.dev, predictions, histogram=histogram
    )

    def write() -> None:
        write_evaluation(worker.paths.evaluation("dev"), evaluation)
        export(
            worker,
            {},
            fused.ensemble,
            outcomes,
            {"dev": numeric_metrics(evaluation.metrics)},
            predictions,
        )
        shown = ", ".join(
            in_words(key, evaluation.metrics[key])
            for key in ("ndcg@5", "micro_f1", "macro_f1")
        )
        print_line(
            f"scorers without the head, dev: {shown}; a model of them is in {worker.paths.model}"
        )

    run_collectively(write, here=worker.is_first)


def _fit(
    worker: Worker,
    splits: Sequence[Split],
    to_fit: Sequence[ScorerSettings],
    *,
    cached: bool,
) -> dict[str, Scorer]:
    """Fit scorers on the documents of some splits, on rank 0; on other ranks, only those whose work is shared.

    Raises:
        DataError: a scorer cannot be fitted; raised on all ranks.
    """
    training = _training(worker, splits, to_fit, cached=cached)
    fitted: dict[str, Scorer] = {}

    def fit(name: str, settings: ScorerSettings) -> None:
        fitted[name] = settings.fit(training)

    every_scorer = worker.config.model.scorers
    with worker.progress.task("fit scorers", total=len(to_fit), unit="scorers") as task:
        for name, settings in zip(names_of(every_scorer), every_scorer, strict=True):
            if any(settings is scorer for scorer in to_fit):
                takes_part = settings.shares_work or worker.is_first
                run_collectively(partial(fit, name, settings), here=takes_part)
                task.advance(1)
    return fitted


def _training(
    worker: Worker,
    splits: Sequence[Split],
    to_fit: Sequence[ScorerSettings],
    *,
    cached: bool,
) -> Training:
    """Collect what these scorers are fitted on. Collective if one of them reads states."""
    needs = {need for settings in to_fit for need in settings.needs}
    states_ND = None
    if "states" in needs:
        states_ND = np.concatenate(
            [_pooled_states(worker, split, cached=cached) for split in splits]
        )
    embed = (
        (lambda texts: worker.embed(texts).numpy()) if "label_states" in needs else None
    )
    words_of_splits = [split.words() for split in splits]
    counts_NC = _stacked([words.counts_NC for words in words_of_splits])
    words = Words(counts_NC, words_of_splits[0].vocabulary)
    labels_NL = _stacked([split.label_matrix() for split in splits])
    unjudged_NL = _unjudged(splits)
    if worker.is_first and unjudged_NL is not None:
        warn_of_unjudged(unjudged_NL.nnz, to_fit)
    names = names_of_labels(worker.corpus.labels, worker.corpus.vocabulary(), embed)
    return Training(Features(words, states_ND), labels_NL, names, unjudged_NL)


def _unjudged(splits: Sequence[Split]) -> Matrix | None:
    """Return which labels of the documents nobody judged; None if all were judged."""
    matrices = [split.unjudged_matrix() for split in splits]
    if all(matrix is None or matrix.nnz == 0 for matrix in matrices):
        return None
    return _stacked(
        [
            sparse.csr_array(split.label_matrix().shape, dtype=bool)
            if matrix is None
            else matrix
            for split, matrix in zip(splits, matrices, strict=True)
        ]
    )


def warn_of_unjudged(unjudged: int, scorers: Sequence[ScorerSettings]) -> None:
    """Say which scorers read labels as absent though nobody judged them."""
    kinds = [scorer.kind for scorer in scorers if not scorer.leaves_out_unjudged]
    if kinds:
        logger.warning(
            "%s are fitted as if %s labels that nobody judged were absent from their documents; the other scorers, the "
            "head, the fusion and the metrics leave them out",
            ", ".join(dict.fromkeys(kinds)),
            f"{unjudged:,}",
        )


def _stacked(parts: Sequence[Matrix]) -> Matrix:
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def _pooled_states(
    worker: Worker, split: Split, *, cached: bool
) -> NDArray[np.float32]:
    """Compute pooled states (N, D) of a split's documents, on every rank. Collective."""
    classifier = worker.classifier.eval()
    states_ND = np.zeros((len(split), classifier.encoder.width), np.float32)
    batches = worker.batches.read(
        split, ENCODE_TOKENS, cached=cached, title=f"pool states of {split.name}"
    )
    rows_of_batches = []
    with torch.inference_mode():
        for micro_batch, batch in batches:
            with worker.strategy.autocast():
                states_ND[micro_batch.documents] = (
                    classifier.pool_mean(batch).cpu().numpy()
                )
            rows_of_batches.append(micro_batch.documents)
    own_rows = np.unique(np.concatenate(rows_of_batches))
    for rows_of_rank, states_of_rank in all_gather_object(
        (own_rows, states_ND[own_rows])
    ):
        states_ND[rows_of_rank] = states_of_rank
    return states_ND
