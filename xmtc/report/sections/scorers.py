"""What each scorer reaches alone, and what leaving it out would cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.section import Page, Paragraph, Part, Section, Table

_METRICS = {"p@1": "P@1", "ndcg@5": "nDCG@5", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}


class ScorersSection(Section):
    """The scorers of a fused model, one by one."""

    name, heading, link = "scorers", "Scorers", "Scorers"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        text = (
            "Dev, in percent: the fused score, each scorer alone, and the difference to the fused score when one is "
            "left out. Every fusion is fitted on one half of dev and measured on the other. The columns on the right "
            "are macro-F1 of labels by their number of training documents."
        )
        return [Paragraph(text), _table(page)] if any(run.scorers for run in page.runs) else []


def _table(page: Page) -> Table:
    found = [(r, run.name, run.scorers) for r, run in enumerate(page.runs) if run.scorers]
    bins = list(dict.fromkeys(name for _, _, scorers in found for name in scorers["fused"]["bins"]))
    rows = []
    for r, run, scorers in found:
        lines = [("fused", scorers["fused"], None)]
        lines += [(f"{name} alone", values, None) for name, values in scorers["alone"].items()]
        lines += [(f"without {name}", v, scorers["fused"]) for name, v in scorers.get("without", {}).items()]
        rows += [(r, [run, title, *_cells(values, against, bins)]) for title, values, against in lines]
    columns = ["run", "scorers", *_METRICS.values(), *bins]
    return Table.by_run("scorers", columns, rows, "Scorers alone, fused, and left out")


def _cells(values: Mapping[str, Any], against: Mapping[str, Any] | None, bins: Sequence[str]) -> list[str]:
    numbers, others = (
        [*map(found.get, _METRICS), *map(found["bins"].get, bins)] for found in (values, against or values)
    )
    if against is None:
        return [percent(value) for value in numbers]
    pairs = zip(numbers, others, strict=True)
    return ["–" if None in (value, other) else f"{100 * (value - other):+.1f}" for value, other in pairs]
