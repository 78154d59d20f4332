"""The metrics of the whole split."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.parts import Part, Table, Text
from xmtc.report.section import Page, Section
from xmtc.report.titles import HEADLINE, ONE_LABEL

_AUC = "AUC is over all scores and has no interval."
_NOTE = (
    "P@k and PSP@k count every document; R@k, RP@k and nDCG@k those with gold labels. PSnDCG follows xclib. Average "
    f"precision is over kept predictions, a lower bound. {_AUC}"
)
_NOTE_ONE_LABEL = f"The decision is the best label. Macro metrics are means over labels. {_AUC}"


class HeadlineSection(Section):
    """One row for each metric, one column for each run."""

    name, link = "headline", "Headline"

    @override
    def title(self, page: Page) -> str:
        return "Headline"

    def applies(self, page: Page) -> bool:
        """Return True: the section always applies."""
        return True

    @override
    def render(self, page: Page) -> Sequence[Part]:
        """Percent with 95 % intervals."""
        return [_table(page), Text(_NOTE_ONE_LABEL if page.one_label else f"{_NOTE}{_bare(page)}", "note")]


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
    keys = ONE_LABEL if page.one_label else HEADLINE
    shown = [key for key in keys if any(run.metrics.get(key) is not None for run in page.runs)]
    rows = [
        [HEADLINE[key], *(percent(run.metrics.get(key), run.metrics.get("ci95", {}).get(key)) for run in page.runs)]
        for key in shown
    ]
    columns = ["metric", *(run.name for run in page.runs)]
    return Table("headline", columns, rows, caption="Metrics of the whole split")
