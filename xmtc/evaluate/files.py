"""Measuring the predictions file of any system against a corpus."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xmtc.data.corpus import Corpus
from xmtc.errors import ConfigError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import EvaluatedDocuments, Evaluation, evaluate
from xmtc.evaluate.store import read_predictions, write_evaluation
from xmtc.evaluate.thresholds import Thresholds, tune_threshold


def evaluate_files(
    predictions: Path,
    gold: Path,
    split: str,
    output: Path,
    config: EvaluateConfig,
    thresholds: Thresholds | None = None,
    known: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluate a predictions file of any system against a prepared corpus, and write the results.

    Args:
        predictions: Parquet, see `read_predictions`.
        gold: corpus directory.
        split: split of the corpus whose documents the file holds.
        output: folder to write, see `write_evaluation`.
        config: the `evaluate` section.
        thresholds: scores from which a label counts as predicted. None takes the one of greatest micro-F1 on these
            documents, which flatters the system; metrics.json then says `"threshold_tuned_here": true`. A single-label
            corpus has no threshold: its decision is the best label.
        known: metrics of these documents that were measured otherwise, for those that the file cannot give.

    Raises:
        DataError: the file does not fit the corpus; names the document or label.
        ConfigError: thresholds for a single-label corpus.
    """
    corpus = Corpus.open(gold)
    corpus.verify()  # Arrow reads a shard with a flipped byte beyond its memory, which ends the process
    single = corpus.manifest.task == "single_label"
    if single and thresholds is not None:
        raise ConfigError(f"{gold}: single-label: the best label counts as predicted; leave out --threshold")
    part = corpus.split(split)
    doc_ids, labels = part.doc_ids(), corpus.labels
    found = read_predictions(predictions, labels.labels, doc_ids, config.top_k)
    truth = part.label_matrix()
    tuned_here = thresholds is None and not single
    thresholds = None if single else thresholds or tune_threshold(found, truth)
    evaluation = evaluate(
        found,
        truth,
        labels,
        corpus.train_documents,
        config=config,
        thresholds=thresholds,
        documents=EvaluatedDocuments(doc_ids, part.lengths),
    )
    unknown = [key for key, value in evaluation.metrics.items() if value is None]
    evaluation.metrics.update({key: known[key] for key in unknown if known and key in known})
    evaluation.metrics["threshold_tuned_here"] = tuned_here
    write_evaluation(output, evaluation)
    return evaluation
