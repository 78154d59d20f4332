"""Metrics by the labels' number of training documents."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.metrics import LabelMetric, bin_metrics
from xmtc.evaluate.summary import percent
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.parts import Chart, Figures, Paragraph, Part, Table
from xmtc.report.section import Page, Section, union


class FrequencySection(Section):
    """Macro-F1 and recall of rare and frequent labels, with the other metrics of their groups in a table."""

    name, heading, link = "frequency", "By label frequency", "Label frequency"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        text = "Labels grouped by their number of training documents."
        if not page.one_label:
            text += " nDCG@5 ranks only the group's labels; for R@10, all labels compete for the ten places."
        return [Paragraph(text), Figures(_charts(page)), _table(page)]


def _table(page: Page) -> Table:
    """Tabulate metrics by the labels' number of training documents: a row for each bin and run."""
    shown = [m for m in bin_metrics(page.task) if isinstance(m, LabelMetric) or not page.one_label]
    columns = ["training documents", "run", "labels", "documents", *(metric.title for metric in shown)]
    rows, owners = [], []
    for name in union(run.metrics["bins"] for run in page.runs):
        for r, run in enumerate(page.runs):
            row = run.metrics["bins"].get(name)
            if row is None:
                continue
            values = [percent(row[m.name], row.get("ci95", {}).get(m.name)) for m in shown]
            rows.append([name, run.name, f"{row['labels']:,}", f"{row['docs']:,}", *values])
            owners.append(r)
    caption = "Metrics by number of training documents of the label"
    return Table("frequency", columns, rows, owners, words=2, caption=caption)


def _charts(page: Page) -> list[Chart]:
    """Draw macro-F1 and recall by bin."""
    names = union(run.metrics["bins"] for run in page.runs)
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
