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
from xmtc.evaluate.classification import label_scores
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import release_curve
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.evaluate.judged import Judged
from xmtc.evaluate.metrics import (
    DocumentMetric,
    PlainMetric,
    Ratio,
    bin_metrics,
    metrics_of,
)
from xmtc.evaluate.per_label import most_confused, per_label_table
from xmtc.fusion.decision import BEST, Decision
from xmtc.scorers.predictions import Gold, SparsePredictions, shape_of

_SEED = 13
"""Of the bootstrap. Evaluations of the same documents share resamples, so that they compare in pairs."""


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
        lengths: int32 (N,), content tokens, for the table of documents.
    """

    doc_ids: Sequence[str] | None = None
    lengths: NDArray[np.int32] | None = None

    def names(self, count: int) -> Sequence[str]:
        """Return the ids, or the numbers of `count` rows."""
        return (
            self.doc_ids if self.doc_ids is not None else list(map(str, range(count)))
        )


def evaluate(
    predictions: SparsePredictions,
    gold: Gold,
    labels: LabelTable,
    train_documents: int,
    *,
    config: EvaluateConfig,
    decision: Decision | None,
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
        decision: tuned on dev; None for single-label tasks, which predict the best label.
        documents: their ids and lengths, if known.
        histogram: all scores, for micro_auc and macro_auc, which are null without (top-k predictions cannot give them).

    Returns:
        The evaluation; metrics are fractions.

    Raises:
        DataError: predictions and gold labels do not fit each other.
    """
    start = time.perf_counter()
    documents = documents or EvaluatedDocuments()
    _check_shapes(predictions, gold, labels)
    predictions = predictions.top(config.top_k)
    made = decision or BEST
    gold.sort_indices()
    judged = Judged(
        predictions,
        made.chosen(predictions.label_ids_NK, predictions.scores_NK),
        gold,
        1
        / labels.propensities(
            train_documents, config.propensity_a, config.propensity_b
        ),
        {name: bin_mask(name, labels.train_counts) for name in config.bins},
        histogram,
    )
    task = "single_label" if decision is None else "multi_label"
    measured = _Measured(judged, task)
    replicates = measured.resampled(config.resamples, documents)
    metrics = measured.metrics(replicates) | _facts(
        judged, decision, train_documents, config.top_k
    )
    material = details.report_details(judged, exclusive=task == "single_label")
    material["release"] = release_curve(judged, made)
    per_label = partial(per_label_table, labels, judged, most_confused(judged, 3))
    metrics["seconds"] = round(time.perf_counter() - start, 3)
    return Evaluation(
        metrics, per_label, material, replicates, _documents_table(judged, documents)
    )


def _check_shapes(
    predictions: SparsePredictions, gold: Gold, labels: LabelTable
) -> None:
    documents, columns = shape_of(gold)
    if len(predictions) != documents:
        raise DataError(
            f"predictions are of {len(predictions)} documents, gold labels of {documents}"
        )
    if columns != len(labels):
        raise DataError(
            f"gold labels are over {columns} labels, the label table has {len(labels)}"
        )
    if not documents:
        raise DataError("no documents to evaluate: the split is empty")
    predictions.check(columns)


class _Measured:
    """Metrics of documents and labels, over all labels and over those of each bin.

    Attributes:
        ratios: metrics that are ratios of sums over documents; names of a bin's begin with `<bin>/`.
        groups: groups of labels by the prefix of their metrics: all labels first, with an empty prefix.
        values: every metric that is resampled, prefixes likewise.
    """

    def __init__(self, judged: Judged, task: str) -> None:
        self._judged = judged
        self._metrics = metrics_of(task)
        self._bin_metrics = bin_metrics(task)
        self.ratios: dict[str, Ratio] = {}
        for metric in self._metrics:
            if isinstance(metric, DocumentMetric):
                self.ratios[metric.name] = metric.compute(judged)
        _, label_count = shape_of(judged.gold)
        self.groups = {"": np.ones(label_count, np.bool_)}
        for name, mask_L in judged.bins.items():
            self.groups[f"{name}/"] = mask_L
            rankings = judged.rankings(mask_L)
            for metric in self._bin_metrics:
                if isinstance(metric, DocumentMetric):
                    self.ratios[f"{name}/{metric.name}"] = metric.compute(rankings)
        self.values = {
            name: ratio.value for name, ratio in self.ratios.items()
        } | self._label_values()

    def _label_values(self) -> dict[str, float]:
        masks_GL = np.array(list(self.groups.values()))
        scores = label_scores(self._judged.outcome.label_sums(masks_GL))
        values = {}
        for group, prefix in enumerate(self.groups):
            for name, score_G1 in scores.items():
                values[prefix + name] = float(score_G1[group, 0])
        return values

    def resampled(
        self, resamples: int, documents: EvaluatedDocuments
    ) -> Replicates | None:
        """Draw the bootstrap; None without resamples."""
        if not resamples:
            return None
        count = len(self._judged.counts_N)
        digest = xxhash.xxh3_64()
        for doc_id in documents.names(count):
            digest.update(f"{doc_id}\n".encode())
        drawn = bootstrap(
            self.ratios, self._judged.outcome, self.groups, resamples, _SEED
        )
        centred = {
            name: values + (self.values[name] - values.mean())
            for name, values in drawn.items()
        }
        return Replicates(centred, f"{digest.hexdigest()}-{count}-{resamples}-{_SEED}")

    def metrics(self, replicates: Replicates | None) -> dict[str, Any]:
        """Make the metrics of metrics.json, with intervals and bins."""
        metrics: dict[str, Any] = {
            name: value for name, value in self.values.items() if "/" not in name
        }
        for metric in self._metrics:
            if isinstance(metric, PlainMetric):
                metrics[metric.name] = metric.compute(self._judged)
        if replicates:
            metrics["ci95"] = {
                name: replicates.interval(name)
                for name in replicates.values
                if "/" not in name
            }
        metrics["bins"] = {
            name: self._bin(name, replicates) for name in self._judged.bins
        }
        return metrics

    def _bin(self, name: str, replicates: Replicates | None) -> dict[str, Any]:
        """Make one bin's row; its metrics are null if no document of the split has a label of the bin."""
        mask_L = self._judged.bins[name]
        gold_L = self._judged.outcome.gold_L
        documents = int(self.ratios[f"{name}/rp@5"].denominator_N.sum())
        row: dict[str, Any] = {
            "labels": int((gold_L[mask_L] > 0).sum()),
            "labels_all": int(mask_L.sum()),
            "docs": documents,
        }
        shown = [metric.name for metric in self._bin_metrics]
        for metric_name in shown:
            row[metric_name] = (
                self.values[f"{name}/{metric_name}"] if documents else None
            )
        if replicates and documents:
            row["ci95"] = {
                metric_name: replicates.interval(f"{name}/{metric_name}")
                for metric_name in shown
            }
        return row


def _facts(
    judged: Judged, decision: Decision | None, train_documents: int, top_k: int
) -> dict[str, Any]:
    """Collect facts about the numbers. `truncated_docs`: documents whose last label of `top_k` is predicted."""
    outcome = judged.outcome
    kept = judged.chosen_NK.shape[1]
    documents, labels = shape_of(judged.gold)
    wants_all_kept = decision is not None and decision.rule == f"top_k={top_k}"
    may_be_cut = decision is not None and not wants_all_kept and kept == top_k < labels
    return {
        "decision": None if decision is None else decision.rule,
        "threshold": None if decision is None else decision.threshold,
        "docs": documents,
        "docs_with_labels": int((judged.counts_N > 0).sum()),
        "labels": labels,
        "labels_present": int((outcome.gold_L > 0).sum()),
        "train_docs": train_documents,
        "labels_per_doc": outcome.gold.nnz / documents,
        "predicted_per_doc": outcome.predicted.nnz / documents,
        "top_k": kept,
        "truncated_docs": int(judged.chosen_NK[:, -1].sum()) if may_be_cut else 0,
    }


def _documents_table(judged: Judged, documents: EvaluatedDocuments) -> pa.Table:
    right_N, predicted_N, gold_N = judged.outcome.document_counts()
    columns = {"doc_id": pa.array(documents.names(len(gold_N)), pa.string())}
    if documents.lengths is not None:
        columns["tokens"] = pa.array(documents.lengths, pa.int32())
    counts = {
        "gold": gold_N,
        "predicted": predicted_N,
        "right": right_N,
        "right_at_5": judged.right(5),
    }
    for name, count_N in counts.items():
        columns[name] = pa.array(count_N.astype(np.int32))
    return pa.table(columns)
