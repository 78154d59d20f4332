"""The metrics of the whole split, and of rare and frequent labels."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.data.bins import UNSEEN
from xmtc.evaluate.metrics import LabelMetric, bin_metrics, metrics_of
from xmtc.evaluate.summary import percent
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.section import (
    Chart,
    Figures,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
    union,
)

_AUC = "AUC is over all scores and has no interval."
_NOTE = (
    "P@k and PSP@k count every document; R@k, RP@k and nDCG@k those with gold labels. PSnDCG follows xclib. Macro-F1 "
    f"is over the labels present. Average precision is over kept predictions, a lower bound. {_AUC}"
)
_NOTE_ONE_LABEL = (
    f"The decision is the best label. Macro metrics are means over labels. {_AUC}"
)
_CHART_TITLES = {"macro_f1": "Macro-F1", "micro_recall": "Micro-recall"}


class HeadlineSection(Section):
    """One row for each metric, one column for each run."""

    name, heading, link = "headline", "All metrics", "All metrics"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        """Percent with 95 % intervals."""
        note = (
            _NOTE_ONE_LABEL
            if page.one_label
            else _NOTE + _on_documents_without_labels(page)
        )
        return [_headline_table(page), Paragraph(note, "note")]


def _on_documents_without_labels(page: Page) -> str:
    """Say how many documents have no gold label, if any."""
    metrics = page.first.metrics
    without_labels = metrics["docs"] - metrics["docs_with_labels"]
    if not without_labels:
        return ""
    return (
        f" {without_labels:,} of {metrics['docs']:,} documents have no gold labels: each label predicted for them is "
        "wrong, and R@k, RP@k and nDCG@k leave them out."
    )


def _headline_table(page: Page) -> Table:
    rows = []
    for metric in metrics_of(page.task):
        belongs_here = metric.title and (metric.single_label or not page.one_label)
        measured = any(run.metrics.get(metric.name) is not None for run in page.runs)
        if belongs_here and measured:
            values = [
                percent(run.metrics.get(metric.name), run.interval(metric.name))
                for run in page.runs
            ]
            rows.append([metric.title, *values])
    columns = ["metric", *(run.name for run in page.runs)]
    return Table("headline", columns, rows, caption="Metrics of the whole split")


class FrequencySection(Section):
    """Recall of rare and frequent labels, with the other metrics of their groups in a table.

    One group of all labels, as few classes are, would repeat the headline.
    """

    name, heading, link = "frequency", "By label frequency", "Label frequency"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        groups = groups_with_labels(page)
        if page.one_label and len(groups) < 2:
            return []
        text = "Labels grouped by their number of training documents."
        if not page.one_label:
            text += " nDCG@5 ranks only the group's labels; for R@10, all labels compete for the ten places."
        if UNSEEN in groups:
            text += (
                f" Labels in the group {UNSEEN} have no training document, because they occur only in the documents of "
                "dev or test: nothing but their names can tell the model about them."
            )
        chart = frequency_chart(page, groups, "micro_recall")
        return [Paragraph(text), Figures([chart]), _frequency_table(page, groups)]


def groups_with_labels(page: Page) -> list[str]:
    """List the groups of labels, by training documents, that have labels in a run."""
    names_by_run = []
    for run in page.runs:
        names_by_run.append(
            [name for name, group in run.metrics["bins"].items() if group["labels"]]
        )
    return union(names_by_run)


def _frequency_table(page: Page, groups: Sequence[str]) -> Table:
    """Tabulate metrics by the labels' number of training documents: a row for each group and run."""
    metrics = [
        metric
        for metric in bin_metrics(page.task)
        if isinstance(metric, LabelMetric) or not page.one_label
    ]
    rows = []
    for name in groups:
        for index, run in enumerate(page.runs):
            group = run.metrics["bins"].get(name)
            if group:
                intervals = group.get("ci95", {})
                values = [
                    percent(group[metric.name], intervals.get(metric.name))
                    for metric in metrics
                ]
                rows.append(
                    (
                        index,
                        [
                            name,
                            run.name,
                            f"{group['labels']:,}",
                            f"{group['docs']:,}",
                            *values,
                        ],
                    )
                )
    columns = [
        "training documents",
        "run",
        "labels",
        "documents",
        *(metric.title for metric in metrics),
    ]
    return Table.by_run(
        "frequency",
        columns,
        rows,
        "Metrics by number of training documents of the label",
    )


def frequency_chart(page: Page, groups: Sequence[str], metric: str) -> Chart:
    """Draw a metric by the labels' number of training documents.

    Args:
        page: what the page reports on.
        groups: see `groups_with_labels`.
        metric: `macro_f1` or `micro_recall`.
    """
    title = _CHART_TITLES[metric]
    bars = []
    for index, run in enumerate(page.runs):
        rows = [run.metrics["bins"].get(name, {}) for name in groups]
        values = [row.get(metric) for row in rows]
        intervals = [row.get("ci95", {}).get(metric) for row in rows]
        bars.append(Bars(run.name, values, index, intervals))
    svg = bar_chart(
        groups,
        bars,
        "training documents of the label",
        Axis(f"{title}, %", percent=True),
        title,
    )
    return Chart(
        f"{title} by label frequency", "95 % bootstrap intervals over documents.", svg
    )
