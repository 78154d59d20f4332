"""What each scorer reaches alone, and what leaving it out would cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.section import Page, Paragraph, Part, Section, Table, union

_METRICS = {
    "p@1": "P@1",
    "ndcg@5": "nDCG@5",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
}
_TEXT = (
    "Dev, in percent: the fused score, and each scorer alone{left_out}. Every fusion is fitted on one half of dev and "
    "measured on the other. The columns on the right are macro-F1 of labels by their number of training documents."
)
_LEFT_OUT = ", and the difference to the fused score when one is left out"
_NOT_LEFT_OUT = "`xmtc ablate RUN` measures what leaving a scorer out costs; reports written afterwards show it."


class ScorersSection(Section):
    """The scorers of a fused model, one by one."""

    name, heading, link = "scorers", "Scorers", "Scorers"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        if not any(run.scorers for run in page.runs):
            return []
        if any(run.scorers and run.scorers.get("without") for run in page.runs):
            return [Paragraph(_TEXT.format(left_out=_LEFT_OUT)), _table(page)]
        return [
            Paragraph(_TEXT.format(left_out="")),
            _table(page),
            Paragraph(_NOT_LEFT_OUT, "note"),
        ]


def _table(page: Page) -> Table:
    groups = union(run.scorers["fused"]["bins"] for run in page.runs if run.scorers)
    rows = []
    for index, run in enumerate(page.runs):
        if run.scorers:
            rows += [
                (index, [run.name, *cells]) for cells in _rows(run.scorers, groups)
            ]
    columns = ["run", "scorers", *_METRICS.values(), *groups]
    return Table.by_run("scorers", columns, rows, "Scorers alone, fused, and left out")


def _rows(scorers: Mapping[str, Any], groups: Sequence[str]) -> list[list[str]]:
    """Make the rows of a run: the fused score, each scorer alone, and the fusions without one as differences."""
    fused = _values(scorers["fused"], groups)
    rows = [["fused", *map(percent, fused)]]
    for name, metrics in scorers["alone"].items():
        rows.append([f"{name} alone", *map(percent, _values(metrics, groups))])
    for name, metrics in scorers.get("without", {}).items():
        differences = map(_difference, _values(metrics, groups), fused)
        rows.append([f"without {name}", *differences])
    return rows


def _values(metrics: Mapping[str, Any], groups: Sequence[str]) -> list[float | None]:
    """List the metrics of the table, and macro-F1 of each group of labels."""
    return [
        *(metrics.get(name) for name in _METRICS),
        *(metrics["bins"].get(name) for name in groups),
    ]


def _difference(value: float | None, fused: float | None) -> str:
    """Format the difference to the fused score in points."""
    if value is None or fused is None:
        return "–"
    return f"{100 * (value - fused):+.1f}"
