"""Runs against the first one."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report import compare
from xmtc.report.parts import Paragraph, Part
from xmtc.report.section import Page, Section

_INTERVALS = "Paired bootstrap: both runs on the same resampled documents. ▲ and ▼ mark intervals without 0."


class ComparisonSection(Section):
    """Paired differences, labels won and lost, settings that differ."""

    name, link = "compare", "Comparison"

    @override
    def title(self, page: Page) -> str:
        return f"Comparison with {page.first.name}"

    @override
    def applies(self, page: Page) -> bool:
        """Whether there are several runs."""
        return page.several

    @override
    def render(self, page: Page) -> Sequence[Part]:
        runs = page.runs
        differences, unpaired = compare.differences(runs)
        warnings = [f"Not compared in pairs: {sentence}." for sentence in unpaired]
        warnings += [f"{sentence}." for sentence in compare.caveats(runs)]
        parts: list[Part] = [Paragraph(warning, "warning") for warning in warnings]
        if differences.rows:
            parts += [Paragraph(_INTERVALS), differences]
        optional = (compare.wins(runs), compare.changes(runs), compare.settings(runs))
        return [*parts, *(table for table in optional if table is not None)]
