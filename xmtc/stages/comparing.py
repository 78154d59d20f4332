"""Measure the model that training started from on documents of this run, so that the report shows any regression.

Suffixes: N documents, K predicted labels, L labels.
"""

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from xmtc.data.corpus import Corpus, Split
from xmtc.data.labels import LabelTable
from xmtc.data.parallel import map_processes
from xmtc.data.readers.base import Document
from xmtc.data.spool import text_hash
from xmtc.errors import DataError
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.flips import Decisions, flips
from xmtc.evaluate.store import read_predictions, write_evaluation
from xmtc.fusion.decision import BEST
from xmtc.predict.decided import decided
from xmtc.predict.predictor import Model
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.scorers.predictions import Gold, SparsePredictions
from xmtc.track.console import print_line
from xmtc.track.progress import ConsoleTask, Progress

_BATCH = 256
"""Texts that the previous model labels at once."""


def compare_with_initial_model(
    config: RunConfig, paths: RunPaths, corpus: Corpus
) -> None:
    """Evaluate both models on the same documents and labels, for the report; do nothing without `init_from`.

    The documents are those of each evaluated split, except training documents of the previous model, if they are known:
    its scorers store their ids; a model without scorers has none. The labels are those that it knows. A split that has
    been compared is left out.

    Raises:
        DataError: a document of the split is no longer in the source, or has another text.
    """
    compared = paths.against_initial_model("after").evaluated()
    names = [
        name
        for name in paths.evaluated()
        if name in corpus.splits and name not in compared
    ]
    if paths.initial_model is None or not names:
        return
    model = Model.from_pretrained(paths.initial_model)
    known_L = np.array([label in model.labels for label in corpus.labels.labels])
    for name in names:
        _compare_split(config, paths, corpus, model, known_L, corpus.split(name))


def _compare_split(
    config: RunConfig,
    paths: RunPaths,
    corpus: Corpus,
    model: Model,
    known_L: NDArray[np.bool_],
    split: Split,
) -> None:
    """Evaluate both models on one split, and write both evaluations."""
    learnt = (
        set() if model.scorer.ensemble is None else set(model.scorer.ensemble.doc_ids)
    )
    rows_N = _rows(
        split, learnt, known_L, single=corpus.manifest.task == "single_label"
    )
    if not len(rows_N):
        print_line(
            f"init_from: no document of {split.name} is left for comparing the models"
        )
        return
    doc_ids = split.doc_ids()
    before = _predicted(
        model, config, corpus.labels, known_L, split.text_hashes()[rows_N]
    )
    stored = read_predictions(
        paths.predictions(split.name),
        corpus.labels.labels,
        doc_ids,
        config.evaluate.top_k,
    )
    after = stored.take(rows_N).only(known_L)
    gold = split.label_matrix()[rows_N]
    gold.data &= known_L[gold.indices]
    gold.eliminate_zeros()
    documents = EvaluatedDocuments(
        [doc_ids[row] for row in rows_N], split.lengths[rows_N]
    )
    old_evaluation, old_decisions = _measure(config, corpus, documents, before, gold)
    new_evaluation, new_decisions = _measure(config, corpus, documents, after, gold)
    new_evaluation.details["flips"] = flips(
        old_decisions,
        new_decisions,
        corpus.labels,
        config.evaluate.bins,
        gold,
        judged_N=np.ones(len(rows_N), np.bool_),
    )
    write_evaluation(
        paths.against_initial_model("before").evaluation(split.name), old_evaluation
    )
    write_evaluation(
        paths.against_initial_model("after").evaluation(split.name), new_evaluation
    )


def _rows(
    split: Split, learnt: set[str], known_L: NDArray[np.bool_], *, single: bool
) -> NDArray[np.int64]:
    """Select the documents to compare on. If each has exactly one label, both models must know it."""
    if not known_L.any():
        return np.empty(0, np.int64)
    fits_N = np.array([doc_id not in learnt for doc_id in split.doc_ids()])
    if single:
        fits_N &= (split.label_matrix() @ known_L) > 0
    return np.flatnonzero(fits_N)


def _measure(
    config: RunConfig,
    corpus: Corpus,
    documents: EvaluatedDocuments,
    predictions: SparsePredictions,
    gold: Gold,
) -> tuple[Evaluation, Decisions]:
    """Compute metrics of predictions, and make decisions, with a decision tuned on the same documents."""
    labels = corpus.labels
    decision = None
    if corpus.manifest.task != "single_label":
        decision = outcomes_of(predictions, gold).tuned(
            config.evaluate.decision, labels.train_counts
        )
    evaluation = evaluate(
        predictions,
        gold,
        labels,
        corpus.train_documents,
        config=config.evaluate,
        decision=decision,
        documents=documents,
    )
    chosen_NK = (decision or BEST).chosen(
        predictions.label_ids_NK, predictions.scores_NK
    )
    return evaluation, (predictions, chosen_NK)


def _predicted(
    model: Model,
    config: RunConfig,
    labels: LabelTable,
    known_L: NDArray[np.bool_],
    hashes_N: NDArray[np.uint64],
) -> SparsePredictions:
    """Predict the labels of documents of the source, by the hashes of their texts."""
    place_of_hash: dict[int, int] = {}
    missing = set(hashes_N.tolist())

    def texts(task: ConsoleTask) -> Iterator[list[str]]:
        rows = _texts(config, missing)
        while batch := list(islice(rows, _BATCH)):
            for hash_of_text, _ in batch:
                place_of_hash[hash_of_text] = len(place_of_hash)
            yield [text for _, text in batch]
            task.advance(len(batch))

    with Progress().task("score with the previous model", len(missing)) as task:
        predictions, _ = decided(
            model.scorer, texts(task), labels, known_L, config.evaluate.top_k
        )
    return predictions.take(
        np.array([place_of_hash[hash_of_text] for hash_of_text in hashes_N.tolist()])
    )


def _texts(config: RunConfig, missing: set[int]) -> Iterator[tuple[int, str]]:
    """Read texts from the source again, because the corpus has only their tokens; yield each once, with its hash.

    Args:
        config: configuration of the run.
        missing: hashes of the texts; those that were yielded are taken out.

    Raises:
        DataError: one is no longer there.
    """
    rows = config.data.source.build().read(
        map_processes, Progress(enabled=False), config.data.longest_document
    )
    for row in rows:
        if not isinstance(row, Document):
            continue
        hash_of_text = text_hash(row.text)
        if hash_of_text in missing:
            missing.remove(hash_of_text)
            yield hash_of_text, row.text
    if missing:
        raise DataError(
            f"data.source: {len(missing):,} documents that were just evaluated are no longer there, or have other "
            "texts; restore them, or run the same command again, which trains on the new ones"
        )
