"""The metrics of the whole split."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.metrics import metrics_of
from xmtc.evaluate.summary import percent
from xmtc.report.parts import Paragraph, Part, Table
from xmtc.report.section import Page, Section

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
