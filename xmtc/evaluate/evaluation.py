"""All metrics of one set of predictions.

Shapes: N documents, K kept predictions, L labels.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from xmtc.data.bins import bin_mask
from xmtc.data.labels import LabelTable
from xmtc.errors import DataError
from xmtc.evaluate import details
from xmtc.evaluate.bootstrap import Replicates, bootstrap
from xmtc.evaluate.classification import Outcome, document_ratios, label_scores
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.levels import by_level
from xmtc.evaluate.per_label import most_confused, per_label_table
from xmtc.evaluate.predictions import Gold, SparsePredictions, match, shape_of
from xmtc.evaluate.ranked import average_precision
from xmtc.evaluate.ranking import Ratio, ranking_ratios, ratios_of_some
from xmtc.evaluate.thresholds import Thresholds, best_of_each

BIN_METRICS = ("macro_f1", "micro_f1", "micro_recall", "rp@5", "ndcg@5", "r@10")
"""Per bin; `micro_recall` is written as `recall`."""


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`.

    Attributes:
        metrics: the content of metrics.json.
        make_per_label: makes `per_label`.
        details: curves, calibration and other material of the report, JSON-able.
        replicates: every interval's metric on every resample, for paired comparison; None without bootstrap.
        documents: per document its id (if known), length (if known), gold labels and right predictions among its five
            best.
    """

    metrics: dict[str, Any]
    make_per_label: Callable[[], pa.Table] = field(repr=False)
    details: dict[str, Any]
    replicates: Replicates | None
    documents: pa.Table = field(repr=False)

    @cached_property
    def per_label(self) -> pa.Table:
        """One row per label, see `per_label_table`. Made when it is read: the metrics of an epoch do without it."""
        return self.make_per_label()


@dataclass(frozen=True)
class EvaluatedDocuments:
    """The documents of an evaluation, without their labels.

    Attributes:
        doc_ids: N ids, by which runs are compared in pairs; without them row numbers are used.
        lengths: int32 (N,), content tokens, for metrics by length.
    """

    doc_ids: Sequence[str] | None = None
    lengths: NDArray[np.int32] | None = None

    def names(self, count: int) -> Sequence[str]:
        """Return the ids, or the numbers of `count` rows."""
        return self.doc_ids if self.doc_ids is not None else list(map(str, range(count)))


@dataclass(frozen=True)
class _Measured:
    """The quantities that metrics are computed from."""

    ratios: dict[str, Ratio]
    outcome: Outcome
    bins: dict[str, NDArray[np.bool_]]

    @property
    def groups(self) -> dict[str, NDArray[np.bool_]]:
        """Groups of labels by the prefix of their metrics: all labels first, with an empty prefix."""
        labels = shape_of(self.outcome.gold)[1]
        return {"": np.ones(labels, np.bool_)} | {f"{name}/": mask_L for name, mask_L in self.bins.items()}

    def values(self) -> dict[str, float]:
        """Compute every metric; names of a bin's metrics begin with `<bin>/`."""
        groups = self.groups
        used = np.union1d(self.outcome.predicted.indices, self.outcome.gold.indices)  # others add nothing to any sum
        right_L1, predicted_L1, gold_L1 = (c[used, None].astype(np.float64) for c in self.outcome.label_counts())
        masks_GL = np.array([mask_L[used] for mask_L in groups.values()], np.float64)
        labels_G = np.array([mask_L.sum() for mask_L in groups.values()], np.float64)
        scores = label_scores(right_L1, predicted_L1, gold_L1, masks_GL, labels_G)
        values = {name: ratio.value for name, ratio in self.ratios.items()}
        for g, prefix in enumerate(groups):
            values |= {prefix + name: float(scores[name][g, 0]) for name in scores}
        return values


def evaluate(
    predictions: SparsePredictions,
    gold: Gold,
    labels: LabelTable,
    train_documents: int,
    *,
    config: EvaluateConfig,
    thresholds: Thresholds | None,
    documents: EvaluatedDocuments | None = None,
    histogram: ScoreHistogram | None = None,
) -> Evaluation:
    """Measure predictions against gold labels.

    Args:
        predictions: (N, K) best first.
        gold: boolean (N, L).
        labels: label table with train counts.
        train_documents: documents of the train split, for propensities.
        config: the `evaluate` section.
        thresholds: tuned on dev; None for single-label tasks, whose decision is the best label.
        documents: their ids and lengths, if known.
        histogram: all scores, for micro_auc and macro_auc, which are null without (top-k predictions cannot give them).

    Returns:
        The evaluation; metrics are fractions.

    Raises:
        DataError: predictions and gold labels do not fit each other.
    """
    start, documents = time.perf_counter(), documents or EvaluatedDocuments()
    _check_shapes(predictions, gold, labels)
    predictions = predictions.top(config.top_k)
    gold.sort_indices()
    hits_NK = match(predictions.label_ids_NK, gold)
    chosen_NK = best_of_each(predictions) if thresholds is None else thresholds.chosen(predictions)
    outcome = Outcome.of(predictions, chosen_NK, hits_NK, gold)
    measured = _measure(predictions, hits_NK, gold, outcome, labels, train_documents, config)
    precision_L = average_precision(predictions, hits_NK, outcome.label_counts()[2])
    replicates = _resample(measured, config, documents)
    metrics = _metrics(measured, replicates, precision_L)
    metrics |= _auc(histogram) | _facts(predictions, chosen_NK, measured.outcome, thresholds, train_documents)
    confused = most_confused(predictions, chosen_NK, hits_NK, outcome, 3)
    material = _details(predictions, hits_NK, gold, measured, labels, documents.lengths)
    metrics["ece"] = material["reliability"]["ece"]
    if thresholds is None:
        metrics["accuracy"] = metrics["p@1"]
        if replicates:
            metrics["ci95"]["accuracy"] = metrics["ci95"]["p@1"]
        material |= details.confusion(outcome)
    table = _documents_table(hits_NK, gold, outcome, documents)
    metrics["seconds"] = round(time.perf_counter() - start, 3)
    per_label = partial(per_label_table, labels, outcome, precision_L, confused)
    return Evaluation(metrics, per_label, material, replicates, table)


def _check_shapes(predictions: SparsePredictions, gold: Gold, labels: LabelTable) -> None:
    documents, columns = shape_of(gold)
    if len(predictions) != documents:
        raise DataError(f"predictions are of {len(predictions)} documents, gold labels of {documents}")
    if columns != len(labels):
        raise DataError(f"gold labels are over {columns} labels, the label table has {len(labels)}")
    if not documents:
        raise DataError("no documents to evaluate: the split is empty")
    predictions.check(columns)


def _measure(
    predictions: SparsePredictions,
    hits_NK: NDArray[np.bool_],
    gold: Gold,
    outcome: Outcome,
    labels: LabelTable,
    train_documents: int,
    config: EvaluateConfig,
) -> _Measured:
    weights_L = 1 / labels.propensities(train_documents, config.propensity_a, config.propensity_b)
    ratios = ranking_ratios(hits_NK, predictions, gold, weights_L) | document_ratios(outcome)
    bins = {name: bin_mask(name, labels.train_counts) for name in config.bins}
    for name, mask_L in bins.items():
        some = ratios_of_some(hits_NK, predictions, gold, mask_L)
        ratios |= {f"{name}/{metric}": ratio for metric, ratio in some.items()}
    return _Measured(ratios, outcome, bins)


def _resample(measured: _Measured, config: EvaluateConfig, documents: EvaluatedDocuments) -> Replicates | None:
    if not config.resamples:
        return None
    count = shape_of(measured.outcome.gold)[0]
    digest = xxhash.xxh3_64()
    for doc_id in documents.names(count):
        digest.update(f"{doc_id}\n".encode())
    drawn = bootstrap(measured.ratios, measured.outcome, measured.groups, config.resamples, config.seed)
    estimates = measured.values()
    centred = {name: values + (estimates[name] - values.mean()) for name, values in drawn.items()}
    return Replicates(centred, f"{digest.hexdigest()}-{count}-{config.resamples}-{config.seed}")


def _metrics(measured: _Measured, replicates: Replicates | None, precision_L: NDArray[np.float64]) -> dict[str, Any]:
    values = measured.values()
    metrics: dict[str, Any] = {name: value for name, value in values.items() if "/" not in name}
    defined = ~np.isnan(precision_L)
    metrics["map"] = float(precision_L[defined].mean()) if defined.any() else 0.0
    tp_L, predicted_L, gold_L = measured.outcome.label_counts()
    present = max(int((gold_L > 0).sum()), 1)
    metrics["coverage"] = int(((predicted_L > 0) & (gold_L > 0)).sum()) / present
    metrics["coverage_right"] = int((tp_L > 0).sum()) / present
    if replicates:
        metrics["ci95"] = {name: replicates.interval(name) for name in replicates.values if "/" not in name}
    metrics["bins"] = {
        name: _bin(name, mask_L, gold_L, measured, values, replicates) for name, mask_L in measured.bins.items()
    }
    return metrics


def _bin(
    name: str,
    mask_L: NDArray[np.bool_],
    gold_L: NDArray[np.int32],
    measured: _Measured,
    values: dict[str, float],
    replicates: Replicates | None,
) -> dict[str, Any]:
    """Make one bin's row; its metrics are null if no document of the split has a label of the bin."""
    documents = int(measured.ratios[f"{name}/rp@5"].denominator_N.sum())
    row: dict[str, Any] = {"labels": int((gold_L[mask_L] > 0).sum()), "labels_all": int(mask_L.sum())}
    row["docs"] = documents
    written = {metric: metric.replace("micro_recall", "recall") for metric in BIN_METRICS}
    row |= {key: values[f"{name}/{metric}"] if documents else None for metric, key in written.items()}
    if replicates and documents:
        row["ci95"] = {key: replicates.interval(f"{name}/{metric}") for metric, key in written.items()}
    return row


def _auc(histogram: ScoreHistogram | None) -> dict[str, float | None]:
    if histogram is None:
        return {"micro_auc": None, "macro_auc": None}
    auc = histogram.auc()
    return {
        "micro_auc": auc.micro,
        "macro_auc": auc.macro,
        "micro_auc_error": auc.micro_error,
        "macro_auc_error": auc.macro_error,
    }


def _facts(
    predictions: SparsePredictions,
    chosen_NK: NDArray[np.bool_],
    outcome: Outcome,
    thresholds: Thresholds | None,
    train_documents: int,
) -> dict[str, Any]:
    """Collect facts about the numbers. `truncated_docs`: documents whose last kept label is still predicted."""
    documents, labels = shape_of(outcome.gold)
    kept = chosen_NK.shape[1]
    return {
        "threshold": None if thresholds is None else thresholds.global_,
        "labels_with_own_threshold": 0 if thresholds is None else thresholds.own,
        "docs": documents,
        "docs_with_labels": int((np.diff(outcome.gold.indptr) > 0).sum()),
        "labels": labels,
        "labels_present": len(np.unique(outcome.gold.indices)),
        "train_docs": train_documents,
        "labels_per_doc": outcome.gold.nnz / documents,
        "predicted_per_doc": outcome.predicted.nnz / documents,
        "top_k": kept,
        "truncated_docs": int(chosen_NK[:, -1].sum()) if 1 < kept < labels else 0,
    }


def _details(
    predictions: SparsePredictions,
    hits_NK: NDArray[np.bool_],
    gold: Gold,
    measured: _Measured,
    labels: LabelTable,
    lengths: NDArray[np.int32] | None,
) -> dict[str, Any]:
    material: dict[str, Any] = {"cutoffs": details.cutoff_curves(hits_NK, gold)}
    material |= details.score_details(predictions, hits_NK, gold, measured.bins)
    if lengths is not None:
        material["lengths"] = details.by_length(lengths, measured.ratios, measured.outcome)
    material["levels"] = by_level(labels, measured.outcome)
    return material


def _documents_table(
    hits_NK: NDArray[np.bool_],
    gold: Gold,
    outcome: Outcome,
    documents: EvaluatedDocuments,
) -> pa.Table:
    columns = {"doc_id": pa.array(documents.names(len(hits_NK)), pa.string())}
    if documents.lengths is not None:
        columns["tokens"] = pa.array(documents.lengths, pa.int32())
    columns["gold"] = pa.array(np.diff(gold.indptr), pa.int32())
    columns["predicted"] = pa.array(np.diff(outcome.predicted.indptr), pa.int32())
    columns["right"] = pa.array(np.diff(outcome.right.indptr), pa.int32())
    columns["right_at_5"] = pa.array(hits_NK[:, :5].sum(axis=1), pa.int32())
    return pa.table(columns)
