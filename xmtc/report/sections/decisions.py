"""What rules of decision give and cost, and how sure documents are."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.fusion.decision import EXPECTED
from xmtc.report.charts import Axis, Series, line_chart
from xmtc.report.section import Chart, Figures, Page, Paragraph, Part, Section, Table

_COLUMNS = {
    "micro_precision": "micro-precision",
    "micro_recall": "micro-recall",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "macro_f1_predicted": "macro-F1 (present or predicted)",
    "samples_f1": "samples-F1",
}
_RULES = (
    "The first rule of a run is the one in use; `xmtc decide` changes it without training. Rules are tuned on dev; on "
    "dev itself, each half is decided by the outcomes of the other half."
)
_FIRST_BAR = 3
_BARS_APART = 4
"""Of the points of the curve, which become rows of the table of bars."""
_BAR_DIGITS = 1e4


class DecisionsSection(Section):
    """A table of rules, and the quality of the documents that are released."""

    name, heading, link = "decisions", "Decisions", "Decisions"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        parts: list[Part] = []
        rules = _rules(page)
        if rules.rows:
            parts += [Paragraph(_RULES), rules]
        charts = _release_charts(page)
        if charts:
            parts += [Figures(charts), _bars(page)]
        return parts


def _rules(page: Page) -> Table:
    """Tabulate what each rule of each run gives."""
    rows = []
    for index, run in enumerate(page.runs):
        for rule in run.details.get("rules", ()):
            shares = [percent(rule[key]) for key in _COLUMNS]
            rows.append(
                (
                    index,
                    [
                        rule["rule"],
                        run.name,
                        *shares,
                        f"{rule['predicted_per_doc']:.2f}",
                    ],
                )
            )
    columns = ["rule", "run", *_COLUMNS.values(), "labels per document"]
    return Table.by_run("rules", columns, rows, "What each rule gives, %")


def _bars(page: Page) -> Table:
    """Tabulate the bars of expected quality that release some shares of the documents."""
    rows = []
    for index, run in enumerate(page.runs):
        curve = run.details.get("release")
        if curve:
            for place in range(_FIRST_BAR, len(curve["share"]), _BARS_APART):
                rows.append(
                    (
                        index,
                        [
                            percent(curve["share"][place]),
                            run.name,
                            *_cells_of_bar(curve, place),
                        ],
                    )
                )
    columns = ["released, %", "run"]
    for key in EXPECTED:
        columns += [f"expected_{key}>=", f"{key}, %"]
    caption = "The bar (`xmtc score --release`) that releases a share of the documents, and their true mean"
    return Table.by_run("bars", columns, rows, caption)


def _cells_of_bar(curve: Mapping[str, Any], place: int) -> list[str]:
    """Write the bar and the true mean at a point of the curve, for each quality that can be expected."""
    cells = []
    for key in EXPECTED:
        rounded_down = (
            math.floor(_BAR_DIGITS * curve["bars"][key][place]) / _BAR_DIGITS
        )  # a higher bar releases fewer
        cells += [f"{rounded_down:.4f}", percent(curve[key][place])]
    return cells


def _release_charts(page: Page) -> list[Chart]:
    """Draw the true quality of the documents of which most is expected, by their share."""
    with_curve = [
        (index, run) for index, run in enumerate(page.runs) if "release" in run.details
    ]
    if not with_curve:
        return []
    charts = []
    for key in EXPECTED:
        lines = []
        errors = []
        for index, run in with_curve:
            curve = run.details["release"]
            lines.append(Series(run.name, curve["share"], curve[key], index))
            errors.append(f"{run.name} {100 * curve['error'][key]:.1f}")
        title = "F1" if key == "f1" else key
        note = (
            f"Documents are released, that is, used without a person's check, in the order of the {title} that the "
            f"model expects; the curve is their true mean {title}. In ten equal groups of documents, the expected and "
            f"the true mean lie {', '.join(errors)} points apart on average."
        )
        svg = line_chart(
            lines,
            Axis("released, %", percent=True, low=0, high=1),
            Axis(f"{title}, %", percent=True, low=0, high=1),
            f"{title} by share",
        )
        charts.append(Chart(f"Released documents: {title}", note, svg))
    return charts
