"""Rankings by their length, and scores against what came true."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report.charts import Axis, Series, line_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Page, Part, Section

_CURVES = {"p": "P@k", "ndcg": "nDCG@k", "r": "R@k"}
_CURVES_ONE_LABEL = {"r": "Accuracy@k"}
"""Of single-label tasks, R@k is the accuracy within the best k, and the other two follow from it."""

IndexedRuns = Sequence[tuple[int, RunResults]]
"""Runs with their places on the page, which set their look."""


class CurvesSection(Section):
    """P@k, R@k and nDCG@k by k; precision and recall, F1 by threshold, reliability."""

    name, heading, link = "curves", "Curves", "Curves"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        groups = (_ranking_charts(page), _score_charts(page))
        return [Figures(charts) for charts in groups if charts]


def _ranking_charts(page: Page) -> list[Chart]:
    """Draw P@k, R@k and nDCG@k by k."""
    with_curve = [
        (index, run) for index, run in enumerate(page.runs) if "cutoffs" in run.details
    ]
    if not with_curve:
        return []
    charts = []
    for key, title in (_CURVES_ONE_LABEL if page.one_label else _CURVES).items():
        lines = []
        for index, run in with_curve:
            curves = run.details["cutoffs"]
            lines.append(Series(run.name, curves["k"], curves[key], index, marked=True))
        svg = line_chart(
            lines, Axis("k"), Axis(f"{title}, %", percent=True, low=0), f"{title} by k"
        )
        note = (
            "Mean over all documents."
            if key == "p"
            else "Mean over documents that have gold labels."
        )
        charts.append(Chart(f"{title} by k", note, svg))
    return charts


def _score_charts(page: Page) -> list[Chart]:
    """Draw reliability and, if labels are predicted by threshold, precision–recall and F1 by threshold."""
    with_scores = [
        (index, run)
        for index, run in enumerate(page.runs)
        if "threshold_curve" in run.details
    ]
    if not with_scores:
        return []
    reliability = _reliability_chart(with_scores)
    return (
        [reliability]
        if page.one_label
        else [*_threshold_charts(with_scores), reliability]
    )


def _reliability_chart(runs: IndexedRuns) -> Chart:
    """Draw the share of right predictions by their score."""
    lines = [Series("calibrated", [0, 1], [0, 1], faint=True)]
    errors = []
    for index, run in runs:
        curve = run.details["reliability"]
        lines.append(
            Series(run.name, curve["score"], curve["right"], index, marked=True)
        )
        errors.append(f"{run.name} {100 * curve['ece']:.2f} %")
    svg = line_chart(
        lines,
        Axis("mean score, %", percent=True, low=0, high=1),
        Axis("right, %", percent=True, low=0, high=1),
        "share right by score",
    )
    note = f"Share right by score, kept predictions only. Expected calibration error: {', '.join(errors)}."
    return Chart("Reliability", note, svg)


def _threshold_charts(runs: IndexedRuns) -> list[Chart]:
    """Draw precision by recall, and F1 by threshold."""
    precision_by_recall = []
    f1_by_threshold = []
    thresholds = []
    for index, run in runs:
        curve = run.details["threshold_curve"]
        precision_by_recall.append(
            Series(run.name, curve["recall"], curve["precision"], index)
        )
        f1_by_threshold.append(Series(run.name, curve["threshold"], curve["f1"], index))
        if run.metrics["decision"] == "micro":
            thresholds.append(f"{run.name} {run.metrics['threshold']:.3f}")
    recall = Axis("recall, %", percent=True, low=0, high=1)
    precision = Axis("precision, %", percent=True, low=0, high=1)
    threshold = Axis("threshold", low=0, high=1)
    f1 = Axis("micro-F1, %", percent=True, low=0)
    return [
        Chart(
            "Precision and recall",
            "Micro-averaged over the kept predictions, by threshold.",
            line_chart(precision_by_recall, recall, precision, "precision by recall"),
        ),
        Chart(
            "F1 by threshold",
            f"Micro-F1. Thresholds in use: {', '.join(thresholds)}."
            if thresholds
            else "Micro-F1.",
            line_chart(f1_by_threshold, threshold, f1, "F1 curve"),
        ),
    ]
