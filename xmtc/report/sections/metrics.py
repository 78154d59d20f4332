"""The metrics of the whole split, and of rare and frequent labels."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.metrics import LabelMetric, bin_metrics, metrics_of
from xmtc.evaluate.summary import percent
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.section import Chart, Figures, Page, Paragraph, Part, Section, Table, union

_AUC = "AUC is over all scores and has no interval."
_NOTE = (
    "P@k and PSP@k count every document; R@k, RP@k and nDCG@k those with gold labels. PSnDCG follows xclib. Macro-F1 "
    f"is over the labels present. Average precision is over kept predictions, a lower bound. {_AUC}"
)
_NOTE_ONE_LABEL = f"The decision is the best label. Macro metrics are means over labels. {_AUC}"


class HeadlineSection(Section):
    """One row for each metric, one column for each run."""

    name, heading, link = "headline", "Headline", "Headline"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        """Percent with 95 % intervals."""
        return [_table(page), Paragraph(_NOTE_ONE_LABEL if page.one_label else f"{_NOTE}{_bare(page)}", "note")]


def _bare(page: Page) -> str:
    """Say how many documents have no gold label, if any."""
    metrics = page.first.metrics
    bare = metrics["docs"] - metrics["docs_with_labels"]
    if not bare:
        return ""
    return (
        f" {bare:,} of {metrics['docs']:,} documents have no gold labels: each label predicted for them is wrong, and "
        "R@k, RP@k and nDCG@k leave them out."
    )


def _table(page: Page) -> Table:
    metrics = [
        metric for metric in metrics_of(page.task) if metric.title and (metric.single_label or not page.one_label)
    ]
    shown = [metric for metric in metrics if any(run.metrics.get(metric.name) is not None for run in page.runs)]
    rows = [
        [metric.title, *(percent(run.metrics.get(metric.name), run.interval(metric.name)) for run in page.runs)]
        for metric in shown
    ]
    columns = ["metric", *(run.name for run in page.runs)]
    return Table("headline", columns, rows, caption="Metrics of the whole split")


class FrequencySection(Section):
    """Macro-F1 and recall of rare and frequent labels, with the other metrics of their groups in a table. One group of
    all labels, as few classes are, would repeat the headline.
    """

    name, heading, link = "frequency", "By label frequency", "Label frequency"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        names = union([name for name, row in run.metrics["bins"].items() if row["labels"]] for run in page.runs)
        text = "Labels grouped by their number of training documents."
        if not page.one_label:
            text += " nDCG@5 ranks only the group's labels; for R@10, all labels compete for the ten places."
        if page.one_label and len(names) < 2:
            return []
        return [Paragraph(text), Figures(_charts(page, names)), _frequency_table(page, names)]


def _frequency_table(page: Page, names: Sequence[str]) -> Table:
    """Tabulate metrics by the labels' number of training documents: a row for each bin and run."""
    shown = [m for m in bin_metrics(page.task) if isinstance(m, LabelMetric) or not page.one_label]
    columns = ["training documents", "run", "labels", "documents", *(metric.title for metric in shown)]
    rows = []
    for name in names:
        for r, run in enumerate(page.runs):
            if row := run.metrics["bins"].get(name):
                values = [percent(row[m.name], row.get("ci95", {}).get(m.name)) for m in shown]
                rows.append((r, [name, run.name, f"{row['labels']:,}", f"{row['docs']:,}", *values]))
    return Table.by_run("frequency", columns, rows, "Metrics by number of training documents of the label")


def _charts(page: Page, names: Sequence[str]) -> list[Chart]:
    """Draw macro-F1 and recall by bin."""
    charts = []
    for key, title in (("macro_f1", "Macro-F1"), ("micro_recall", "Micro-recall")):
        bars = []
        for r, run in enumerate(page.runs):
            found = [run.metrics["bins"].get(name, {}) for name in names]
            intervals = [row.get("ci95", {}).get(key) for row in found]
            bars.append(Bars(run.name, [row.get(key) for row in found], r, intervals))
        svg = bar_chart(names, bars, "training documents of the label", Axis(f"{title}, %", percent=True), title)
        charts.append(Chart(f"{title} by label frequency", "95 % bootstrap intervals over documents.", svg))
    return charts
