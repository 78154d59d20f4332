"""Measure the model that training started from on documents of this run, so that the report shows any regression.

Suffixes: N documents, K predicted labels, L labels.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from xmtc.data.corpus import Corpus, Split
from xmtc.data.labels import LabelTable
from xmtc.data.parallel import map_processes
from xmtc.data.readers.base import Document
from xmtc.errors import DataError
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.store import read_predictions, write_evaluation
from xmtc.predict.predictor import Model
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.track.console import print_line
from xmtc.track.progress import Progress

_BATCH = 256  # texts that the previous model labels at once


def compare_with_initial_model(config: RunConfig, paths: RunPaths, corpus: Corpus) -> None:
    """Evaluate both models on the same documents and labels, for the report; do nothing without `init_from`.

    The documents are those of each evaluated split, except training documents of the previous model, if they are known:
    its scorers store their ids; a model without scorers has none. The labels are those that it knows.

    Raises:
        DataError: a document of the split is no longer in the source.
    """
    if paths.initial_model is None:
        return
    model = Model.from_pretrained(paths.initial_model)
    known_L = np.array([label in model.labels for label in corpus.labels.labels])
    learnt = set(model.ensemble.doc_ids) if model.ensemble is not None else set()
    for name in (name for name in paths.evaluated() if name in corpus.splits):
        split = corpus.split(name)
        rows_N = _rows(split, learnt, known_L, single=corpus.manifest.task == "single_label")
        if not len(rows_N):
            print_line(f"init_from: no document of {name} is left for comparing the models")
            continue
        ids, top_k = split.doc_ids(), config.evaluate.top_k
        before = _predicted(model, config, corpus.labels, [ids[row] for row in rows_N])
        after = read_predictions(paths.predictions(name), corpus.labels.labels, ids, top_k).take(rows_N)
        folders = paths.against_initial_model("before"), paths.against_initial_model("after")
        for folder, predictions in zip(folders, (before, after), strict=True):
            evaluation = _measure(config, corpus, split, rows_N, predictions.only(known_L), known_L)
            write_evaluation(folder.evaluation(name), evaluation)


def _rows(split: Split, learnt: set[str], known_L: NDArray[np.bool_], *, single: bool) -> NDArray[np.int64]:
    """Select the documents to compare on. If each has exactly one label, both models must know it."""
    fits_N = np.array([doc_id not in learnt for doc_id in split.doc_ids()])
    if single:
        fits_N &= (split.label_matrix() @ known_L) > 0
    return np.flatnonzero(fits_N) if known_L.any() else np.empty(0, np.int64)


def _measure(
    config: RunConfig,
    corpus: Corpus,
    split: Split,
    rows_N: NDArray[np.int64],
    predictions: SparsePredictions,
    known_L: NDArray[np.bool_],
) -> Evaluation:
    """Compute metrics of predictions for some documents of a split, over known labels."""
    gold = split.label_matrix()[rows_N]
    gold.data &= known_L[gold.indices]
    gold.eliminate_zeros()
    ids = split.doc_ids()
    documents = EvaluatedDocuments([ids[row] for row in rows_N], split.lengths[rows_N])
    decision, counts_L = None, corpus.labels.train_counts
    if corpus.manifest.task != "single_label":
        decision = outcomes_of(predictions, gold).tuned(config.evaluate.decision, counts_L)
    return evaluate(
        predictions,
        gold,
        corpus.labels,
        corpus.train_documents,
        config=config.evaluate,
        decision=decision,
        documents=documents,
    )


def _predicted(model: Model, config: RunConfig, labels: LabelTable, doc_ids: Sequence[str]) -> SparsePredictions:
    """Predict the labels of documents of the source, by their ids in this run."""
    rows, top_k = {doc_id: row for row, doc_id in enumerate(doc_ids)}, min(config.evaluate.top_k, len(model.labels))
    ids_NK = np.full((len(rows), top_k), -1, np.int32)
    scores_NK = np.zeros((len(rows), top_k), np.float32)
    with Progress().task("score with the previous model", len(rows)) as task:
        for batch in _batches(config, rows):
            found = model.predict([one.text for one in batch], top_k)
            for one, best in zip(batch, found, strict=True):
                kept = [prediction for prediction in best if prediction.label in labels]
                place = (rows[one.doc_id], slice(len(kept)))
                ids_NK[place] = labels.indices(prediction.label for prediction in kept)
                scores_NK[place] = [prediction.score for prediction in kept]
            task.advance(len(batch))
    return SparsePredictions(ids_NK, scores_NK)


def _batches(config: RunConfig, wanted: Collection[str]) -> Iterator[tuple[Document, ...]]:
    """Read documents from the source again, because the corpus has only their tokens.

    Raises:
        DataError: one is no longer there.
    """
    reader = config.data.source.build()
    found = (
        row
        for row in reader.read(map_processes, Progress(enabled=False))
        if isinstance(row, Document) and row.doc_id in wanted
    )
    count = 0
    while batch := tuple(islice(found, _BATCH)):
        count += len(batch)
        yield batch
    if count != len(wanted):
        raise DataError(
            f"data.source: {len(wanted) - count:,} documents that were just evaluated are no longer there; start again "
            "with --overwrite"
        )
