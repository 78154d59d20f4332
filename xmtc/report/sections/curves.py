"""Rankings by their length, and scores against what came true."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report.charts import Axis, Series, line_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Page, Part, Section


class CurvesSection(Section):
    """P@k, R@k and nDCG@k by k; precision and recall, F1 by threshold, reliability."""

    name, heading, link = "curves", "Curves", "Curves"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        groups = (_ranking_charts(page), _score_charts(page))
        return [Figures(charts) for charts in groups if charts]


def _ranking_charts(page: Page) -> list[Chart]:
    """Draw P@k, R@k and nDCG@k by k; of single-label tasks only R@k, which is their accuracy@k."""
    charts, shown = [], (("p", "P@k"), ("ndcg", "nDCG@k"), ("r", "R@k"))
    for key, title in (("r", "Accuracy@k"),) if page.one_label else shown:
        lines = [
            Series(run.name, run.details["cutoffs"]["k"], run.details["cutoffs"][key], r, marked=True)
            for r, run in enumerate(page.runs)
            if "cutoffs" in run.details
        ]
        if lines:
            svg = line_chart(lines, Axis("k"), Axis(f"{title}, %", percent=True, low=0), f"{title} by k")
            over = "Mean over all documents." if key == "p" else "Mean over documents that have gold labels."
            charts.append(Chart(f"{title} by k", over, svg))
    return charts


def _score_charts(page: Page) -> list[Chart]:
    """Draw reliability and, if labels are predicted by threshold, precision–recall and F1 by threshold."""
    with_scores = [(r, run) for r, run in enumerate(page.runs) if "threshold_curve" in run.details]
    if not with_scores:
        return []
    right = [
        Series(run.name, run.details["reliability"]["score"], run.details["reliability"]["right"], r, marked=True)
        for r, run in with_scores
    ]
    errors = ", ".join(f"{run.name} {100 * run.details['reliability']['ece']:.2f} %" for _, run in with_scores)
    diagonal = Series("calibrated", [0, 1], [0, 1], faint=True)
    reliability = Chart(
        "Reliability",
        f"Share right by score, kept predictions only. Expected calibration error: {errors}.",
        line_chart(
            [diagonal, *right],
            Axis("mean score, %", percent=True, low=0, high=1),
            Axis("right, %", percent=True, low=0, high=1),
            "share right by score",
        ),
    )
    return [reliability] if page.one_label else [*_threshold_charts(with_scores), reliability]


def _threshold_charts(runs: Sequence[tuple[int, RunResults]]) -> list[Chart]:
    curves = [(r, run, run.details["threshold_curve"]) for r, run in runs]
    pairs = [Series(run.name, c["recall"], c["precision"], r) for r, run, c in curves]
    f1 = [Series(run.name, c["threshold"], c["f1"], r) for r, run, c in curves]
    tuned = [f"{run.name} {run.metrics['threshold']:.3f}" for _, run in runs if run.metrics["decision"] == "micro"]
    percent_y = Axis("precision, %", percent=True, low=0, high=1)
    return [
        Chart(
            "Precision and recall",
            "Micro-averaged over the kept predictions, by threshold.",
            line_chart(pairs, Axis("recall, %", percent=True, low=0, high=1), percent_y, "precision by recall"),
        ),
        Chart(
            "F1 by threshold",
            f"Micro-F1. Thresholds in use: {', '.join(tuned)}." if tuned else "Micro-F1.",
            line_chart(f1, Axis("threshold", low=0, high=1), Axis("micro-F1, %", percent=True, low=0), "F1 curve"),
        ),
    ]
