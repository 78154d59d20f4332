"""What rules of decision give and cost, and how sure documents are."""

import math
from collections.abc import Sequence

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


class DecisionsSection(Section):
    """A table of rules, and the quality of the documents that are released."""

    name, heading, link = "decisions", "Decisions", "Decisions"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        parts: list[Part] = []
        if rules := _rules(page):
            parts += [Paragraph(_RULES), rules]
        charts = _release_charts(page)
        return [*parts, Figures(charts), _bars(page)] if charts else parts


def _rules(page: Page) -> Table | None:
    rows = [
        (r, [row["rule"], run.name, *(percent(row[key]) for key in _COLUMNS), f"{row['predicted_per_doc']:.2f}"])
        for r, run in enumerate(page.runs)
        for row in run.details.get("rules", ())
    ]
    columns = ["rule", "run", *_COLUMNS.values(), "labels per document"]
    return Table.by_run("rules", columns, rows, "What each rule gives, %") if rows else None


def _bars(page: Page) -> Table:
    rows = []
    for r, run in enumerate(page.runs):
        curve = run.details.get("release", {})
        for place in range(3, len(curve.get("share", ())), 4):
            lows = {key: math.floor(1e4 * curve["bars"][key][place]) / 1e4 for key in EXPECTED}  # others release fewer
            pairs = ((f"{lows[key]:.4f}", percent(curve[key][place])) for key in EXPECTED)
            rows.append((r, [percent(curve["share"][place]), run.name, *(cell for pair in pairs for cell in pair)]))
    columns = [cell for key in EXPECTED for cell in (f"expected_{key}>=", f"{key}, %")]
    caption = "The bar (`xmtc score --release`) that releases a share of the documents, and their true mean"
    return Table.by_run("bars", ["released, %", "run", *columns], rows, caption)


def _release_charts(page: Page) -> list[Chart]:
    known = [(r, run, run.details["release"]) for r, run in enumerate(page.runs) if "release" in run.details]
    charts = []
    for key in EXPECTED if known else ():
        lines = [Series(run.name, curve["share"], curve[key], r) for r, run, curve in known]
        errors = ", ".join(f"{run.name} {100 * curve['error'][key]:.1f}" for _, run, curve in known)
        title = "F1" if key == "f1" else key
        note = (
            f"Mean {title} of the documents of which most {title} is expected, by their share. Distance of expected "
            f"and true {title} in tenths of the documents, points: {errors}."
        )
        axes = Axis("released, %", percent=True, low=0, high=1), Axis(f"{title}, %", percent=True, low=0, high=1)
        charts.append(Chart(f"Released documents: {title}", note, line_chart(lines, *axes, f"{title} by share")))
    return charts
