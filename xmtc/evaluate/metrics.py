"""What is measured: one list of metrics, which evaluation, intervals, tables, reports and checks of settings read.

A metric is a function whose docstring is its definition, and whose kind says how it is resampled: a `DocumentMetric` is
a ratio of sums over documents, a `LabelMetric` follows from counts of each label, and a `PlainMetric` has no interval.
An installed package adds one by an entry point of the group `xmtc.metrics`.

Checks of a configuration read this list, so this module does not import NumPy.

For a document d with gold labels G and kept labels ranked r = 1, 2, …, y_r is 1 if the label at rank r is in G, else 0.
N is the number of documents, N_G the number with gold labels.

Shapes: N documents, K kept predictions, L labels, G groups of labels, R resamples.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xmtc.config.members import installed_objects
from xmtc.data.config import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from xmtc.evaluate.classification import LabelSums
    from xmtc.evaluate.judged import Judged, Rankings

GROUP = "xmtc.metrics"
"""Entry points of metrics in installed packages."""
EVERY_TASK: tuple[Task, ...] = ("multi_label", "single_label")


@dataclass(frozen=True)
class Ratio:
    """A metric as Σ numerator / Σ denominator over documents.

    Attributes:
        numerator_N: float32.
        denominator_N: float32; metrics with the same denominator share the array.
    """

    numerator_N: "NDArray[np.float32]"
    denominator_N: "NDArray[np.float32]"

    @classmethod
    def of(cls, numerator_N: "NDArray[Any]", denominator_N: "NDArray[Any]") -> "Ratio":
        """Make a ratio of numbers of any type."""
        return cls(
            numerator_N.astype("float32"), denominator_N.astype("float32", copy=False)
        )

    @property
    def value(self) -> float:
        """The metric; 0 if the denominator is 0 (no document has a value)."""
        total = float(self.denominator_N.sum(dtype="float64"))
        return float(self.numerator_N.sum(dtype="float64")) / total if total else 0.0


@dataclass(frozen=True)
class Metric:
    """What all metrics have.

    Attributes:
        name: key in metrics.json.
        title: what tables call it; the report leaves it out without one.
        compute: the metric, see the kinds below; its docstring is the definition on the page of metrics.
        only: the task that it belongs to. Default: every task.
        summary: tasks in whose summary and comparisons it stands.
        single_label: whether the report shows it where labels exclude each other.
        needs_gold: whether documents without gold labels have no value.
        higher_is_better: None where it compares nothing.
        each_epoch: whether an epoch can be chosen by it.
        bin_place: its place among the metrics of each bin of labels; None if bins do not have it.
    """

    name: str
    title: str
    compute: Callable[..., Any]
    only: Task | None = None
    summary: Sequence[Task] = ()
    single_label: bool = False
    needs_gold: bool = False
    higher_is_better: bool | None = True
    each_epoch: bool = True
    bin_place: int | None = None

    @property
    def definition(self) -> str:
        """The docstring of `compute`."""
        return " ".join((inspect.getdoc(self.compute) or "").split())


@dataclass(frozen=True)
class DocumentMetric(Metric):
    """A ratio of two sums over documents. The bootstrap reweights the documents.

    Attributes:
        compute: from a `Judged`, and for bins from the `Rankings` of a bin's labels too.
    """

    compute: Callable[[Any], Ratio]


@dataclass(frozen=True)
class LabelMetric(Metric):
    """A metric over labels. The bootstrap counts each label's documents by their weights.

    Attributes:
        compute: from counts, for every group of labels and every resample: (G, R).
    """

    compute: "Callable[[LabelSums], NDArray[np.floating]]"


@dataclass(frozen=True)
class PlainMetric(Metric):
    """A metric without an interval.

    Attributes:
        compute: None if the predictions alone cannot give it.
    """

    compute: "Callable[[Judged], float | None]"


def metrics_of(task: str) -> list[Metric]:
    """List the metrics of a task, those of installed packages at the end."""
    return [metric for metric in all_metrics() if metric.only in (None, task)]


def task_of(metrics: Mapping[str, Any]) -> Task:
    """Return the task whose metrics these are."""
    return "multi_label" if metrics.get("accuracy") is None else "single_label"


def summary_metrics(task: str) -> list[Metric]:
    """List the metrics of summaries and comparisons."""
    return [metric for metric in metrics_of(task) if task in metric.summary]


def bin_metrics(task: str) -> list[Metric]:
    """List the metrics of bins, in their order there."""
    placed = [
        (metric.bin_place, metric)
        for metric in metrics_of(task)
        if metric.bin_place is not None
    ]
    return [metric for _, metric in sorted(placed, key=lambda item: item[0])]


def goals(task: str) -> list[str]:
    """List the metrics by which an epoch can be chosen: every evaluation has them, and higher is better."""
    return [
        metric.name
        for metric in metrics_of(task)
        if metric.higher_is_better and metric.each_epoch
    ]


@functools.cache
def all_metrics() -> tuple[Metric, ...]:
    """List every metric, in the order of the report.

    Raises:
        ConfigError: an installed metric cannot be used.
    """
    return (
        *_BUILT_IN,
        *installed_objects(GROUP, Metric, [metric.name for metric in _BUILT_IN]),
    )


def precision(k: int) -> Metric:
    """Make P@k."""

    def compute(judged: "Judged") -> Ratio:
        """(1/N) Σ_d (1/k) Σ_{r≤k} y_r"""
        return Ratio.of(judged.right(k) / k, judged.every_N)

    return DocumentMetric(
        f"p@{k}", f"P@{k}", compute, summary=("multi_label",) if k in (1, 3, 5) else ()
    )


def recall(k: int) -> Metric:
    """Make R@k."""

    def compute(rankings: "Rankings") -> Ratio:
        """(1/N_G) Σ_d (1/|G|) Σ_{r≤k} y_r"""
        return Ratio.of(
            rankings.right_of_all(k) / rankings.at_least_one_N, rankings.with_gold_N
        )

    return DocumentMetric(
        f"r@{k}", f"R@{k}", compute, needs_gold=True, bin_place=6 if k == 10 else None
    )


def _r_precision(rankings: "Rankings") -> Ratio:
    """(1/N_G) Σ_d (1/min(5, |G|)) Σ_{r≤5} y_r"""
    return Ratio.of(
        rankings.right(5) / rankings.at_least_one_N.clip(max=5), rankings.with_gold_N
    )


def ndcg(k: int) -> Metric:
    """Make nDCG@k."""

    def compute(rankings: "Rankings") -> Ratio:
        """(1/N_G) Σ_d [Σ_{r≤k} y_r / log₂(r+1)] / [Σ_{r≤min(k,|G|)} 1 / log₂(r+1)]"""
        return Ratio.of(
            rankings.gains(k) / rankings.ideal_gains(k), rankings.with_gold_N
        )

    if k != 5:
        return DocumentMetric(f"ndcg@{k}", "", compute, needs_gold=True)
    return DocumentMetric(
        "ndcg@5",
        "nDCG@5",
        compute,
        summary=("multi_label",),
        needs_gold=True,
        bin_place=5,
    )


def _propensity_scored_precision(k: int) -> Metric:
    def compute(judged: "Judged") -> Ratio:
        """Propensity-scored precision: Σ_d Σ_{r≤k} y_r / p(label at r), divided by the best attainable total (Jain et
        al. 2016).
        """
        attained_NK, attainable_NK = judged.propensity_scored
        return Ratio.of(attained_NK[:, :k].sum(1) / k, attainable_NK[:, :k].sum(1) / k)

    summary: Sequence[Task] = ("multi_label",) if k == 5 else ()
    return DocumentMetric(
        f"psp@{k}", f"PSP@{k}", compute, summary=summary, needs_gold=True
    )


def _propensity_scored_ndcg(k: int) -> Metric:
    def compute(judged: "Judged") -> Ratio:
        """Propensity-scored nDCG, in xclib's variant: each document's gain, attained and best
        attainable, is first divided by nDCG's normaliser.
        """
        scale_N = judged.ideal_gains(k)
        attained_NK, attainable_NK = judged.propensity_scored
        attained_N = judged.discounted(attained_NK, k)
        attainable_N = judged.discounted(attainable_NK, k)
        return Ratio.of(attained_N / scale_N, attainable_N / scale_N)

    return DocumentMetric(
        f"psndcg@{k}", "PSnDCG@5" if k == 5 else "", compute, needs_gold=True
    )


def _micro_f1(sums: "LabelSums") -> "NDArray[np.floating]":
    """2TP / (2TP + FP + FN) over all (document, label) decisions."""
    return sums.share(2 * sums.right_GR, sums.predicted_GR + sums.gold_GR)


def _micro_precision(sums: "LabelSums") -> "NDArray[np.floating]":
    """TP / (TP + FP) over all (document, label) decisions."""
    return sums.share(sums.right_GR, sums.predicted_GR)


def _micro_recall(sums: "LabelSums") -> "NDArray[np.floating]":
    """TP / (TP + FN) over all (document, label) decisions."""
    return sums.share(sums.right_GR, sums.gold_GR)


def _macro_precision(sums: "LabelSums") -> "NDArray[np.floating]":
    """Mean precision of the labels present in the split, 0 for a label without predictions."""
    return sums.macro_precision_GR


def _macro_recall(sums: "LabelSums") -> "NDArray[np.floating]":
    """Mean recall of the labels present in the split."""
    return sums.macro_recall_GR


def _macro_f1(sums: "LabelSums") -> "NDArray[np.floating]":
    """Mean F1 of the labels present in the split: **the main metric**."""
    return sums.share(sums.f1_GR, sums.labels_GR)


def _macro_f1_predicted(sums: "LabelSums") -> "NDArray[np.floating]":
    """The same over the labels present in the split or predicted. A label predicted only wrongly counts as 0."""
    return sums.share(sums.f1_GR, sums.found_GR)


def _macro_f1_all(sums: "LabelSums") -> "NDArray[np.floating]":
    """The same sum over all labels, absent ones 0."""
    return sums.f1_GR / sums.labels_G[:, None].clip(min=1)


def _macro_f1_harmonic(sums: "LabelSums") -> "NDArray[np.floating]":
    """Harmonic mean of macro-precision and macro-recall, called macro-F1 in older work on clinical coding."""
    precision_GR = sums.macro_precision_GR
    recall_GR = sums.macro_recall_GR
    return sums.share(2 * precision_GR * recall_GR, precision_GR + recall_GR)


def _samples_f1(judged: "Judged") -> Ratio:
    """Mean F1 of a document's label set; two empty sets have F1 1."""
    return Ratio.of(judged.outcome.f1_N(), judged.every_N)


def _exact_match(judged: "Judged") -> Ratio:
    """Share of documents with exactly the gold set."""
    right_N, predicted_N, gold_N = judged.outcome.document_counts()
    return Ratio.of((right_N == predicted_N) & (right_N == gold_N), judged.every_N)


def _accuracy(judged: "Judged") -> Ratio:
    """Share of documents whose best label is right. That is the decision of single-label tasks, without a threshold."""
    return Ratio.of(judged.right(1), judged.every_N)


def _mean_average_precision(judged: "Judged") -> float:
    """Mean over labels of average precision (scikit-learn's, ties together) over *kept* predictions: exact if a label
    was kept for every document, otherwise a lower bound.
    """
    defined_L = judged.average_precision_L[judged.outcome.gold_L > 0]
    return float(defined_L.mean()) if len(defined_L) else 0.0


def _micro_auc(judged: "Judged") -> float | None:
    """Area under the ROC curve of all (document, label) pairs, from histograms of scores; null for prediction files."""
    return None if judged.auc is None else judged.auc.micro


def _macro_auc(judged: "Judged") -> float | None:
    """Mean over labels of the area under the ROC curve, likewise."""
    return None if judged.auc is None else judged.auc.macro


def _micro_auc_error(judged: "Judged") -> float | None:
    """The greatest possible distance of `micro_auc` from the exact area."""
    return None if judged.auc is None else judged.auc.micro_error


def _macro_auc_error(judged: "Judged") -> float | None:
    """The greatest possible distance of `macro_auc` from the exact area."""
    return None if judged.auc is None else judged.auc.macro_error


def _coverage(judged: "Judged") -> float:
    """Share of the labels present that are ever predicted."""
    present_L = judged.outcome.gold_L > 0
    predicted_L = judged.outcome.predicted_L > 0
    return int((present_L & predicted_L).sum()) / max(int(present_L.sum()), 1)


def _coverage_right(judged: "Judged") -> float:
    """Share of the labels present that are ever predicted correctly."""
    present_L = judged.outcome.gold_L > 0
    right_L = judged.outcome.right_L > 0
    return int(right_L.sum()) / max(int(present_L.sum()), 1)


def _shortlist_recall(judged: "Judged") -> None:
    """Share of the best five labels that the shortlist holds, on a sample; measured with `evaluate.shortlist`."""
    del judged


def _calibration_error(judged: "Judged") -> float:
    """Expected calibration error: mean distance of score and share right over 15 equal score bins of the kept
    predictions, weighted by their number.
    """
    return judged.score_counts.reliability()["ece"]


_BUILT_IN: tuple[Metric, ...] = (
    DocumentMetric(
        "accuracy",
        "accuracy = micro-F1",
        _accuracy,
        only="single_label",
        summary=("single_label",),
        single_label=True,
    ),
    *(precision(k) for k in (1, 3, 5, 8)),
    *(recall(k) for k in (5, 10)),
    DocumentMetric("rp@5", "RP@5", _r_precision, needs_gold=True, bin_place=4),
    *(ndcg(k) for k in (1, 3, 5)),
    *(_propensity_scored_precision(k) for k in (1, 3, 5)),
    *(_propensity_scored_ndcg(k) for k in (1, 3, 5)),
    LabelMetric(
        "micro_f1", "micro-F1", _micro_f1, summary=("multi_label",), bin_place=2
    ),
    LabelMetric("micro_precision", "micro-precision", _micro_precision),
    LabelMetric("micro_recall", "micro-recall", _micro_recall, bin_place=3),
    LabelMetric(
        "macro_precision", "macro-precision", _macro_precision, single_label=True
    ),
    LabelMetric(
        "macro_recall",
        "macro-recall",
        _macro_recall,
        summary=("single_label",),
        single_label=True,
    ),
    LabelMetric(
        "macro_f1",
        "macro-F1",
        _macro_f1,
        summary=EVERY_TASK,
        single_label=True,
        bin_place=1,
    ),
    LabelMetric(
        "macro_f1_predicted",
        "macro-F1 (present or predicted)",
        _macro_f1_predicted,
        summary=("multi_label",),
        single_label=True,
    ),
    LabelMetric(
        "macro_f1_all", "macro-F1 (all labels)", _macro_f1_all, single_label=True
    ),
    LabelMetric(
        "macro_f1_harmonic", "harmonic mean of macro-P and macro-R", _macro_f1_harmonic
    ),
    DocumentMetric("samples_f1", "samples-F1", _samples_f1),
    DocumentMetric("exact_match", "exact match", _exact_match),
    PlainMetric("map", "mean average precision", _mean_average_precision),
    PlainMetric("micro_auc", "micro-AUC", _micro_auc, each_epoch=False),
    PlainMetric(
        "macro_auc", "macro-AUC", _macro_auc, each_epoch=False, single_label=True
    ),
    PlainMetric("micro_auc_error", "", _micro_auc_error, higher_is_better=None),
    PlainMetric("macro_auc_error", "", _macro_auc_error, higher_is_better=None),
    PlainMetric(
        "coverage", "coverage (labels ever predicted)", _coverage, single_label=True
    ),
    PlainMetric("coverage_right", "", _coverage_right),
    PlainMetric(
        "shortlist_recall@5",
        "share of the best five labels that the shortlist holds",
        _shortlist_recall,
        each_epoch=False,
    ),
    PlainMetric(
        "ece",
        "expected calibration error",
        _calibration_error,
        single_label=True,
        higher_is_better=False,
    ),
)
