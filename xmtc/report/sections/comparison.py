"""Runs against the first one."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report import compare
from xmtc.report.run_results import RunResults
from xmtc.report.section import Page, Paragraph, Part, Section

_INTERVALS = "Paired bootstrap: both runs on the same resampled documents. ▲ and ▼ mark intervals without 0."


class ComparisonSection(Section):
    """Paired differences, labels won and lost, settings that differ."""

    name, link = "compare", "Comparison"

    @override
    def title(self, page: Page) -> str:
        return f"Comparison with {page.first.name}"

    @override
    def render(self, page: Page) -> Sequence[Part | None]:
        runs = page.runs
        if not page.several:
            return []
        differences, unpaired = compare.differences(runs)
        warnings = [f"Not compared in pairs: {sentence}." for sentence in unpaired]
        warnings += [f"{sentence}." for sentence in compare.caveats(runs)]
        parts: list[Part] = [Paragraph(warning, "warning") for warning in warnings]
        if differences.rows:
            parts += [Paragraph(_INTERVALS), differences]
        return [*parts, compare.changes(runs), compare.settings(runs)]


class StartSection(Section):
    """Paired differences, and labels that became better or worse, of a run that has `model.init_from`."""

    name, heading, link = "start", "Against the model that training started from", "Before and after"

    @override
    def render(self, page: Page) -> Sequence[Part | None]:
        if page.several or page.first.start is None:
            return []
        before, after = page.first.start
        labels, documents = before.metrics["labels_present"], before.metrics["docs"]
        text = (
            f"Both models on {documents:,} documents of {after.split}, over the {labels:,} labels in them that both "
            "know, with thresholds tuned there for each. Documents that the model before is known to have learnt from "
            "are left out. ▲ and ▼ mark intervals without 0."
        )
        return [Paragraph(text), *before_and_after(before, after)]


def before_and_after(before: RunResults, after: RunResults) -> list[Part | None]:
    """Show what a second model changes: paired differences, labels won and lost, decisions that flip."""
    runs, parts = (before, after), []
    if worse := compare.worse(before, after):
        parts.append(Paragraph(f"Worse than before: {', '.join(worse)}.", "warning"))
    differences, unpaired = compare.differences(runs)
    parts += [Paragraph(f"Not compared in pairs: {sentence}.", "warning") for sentence in unpaired]
    parts += [differences if differences.rows else None, compare.changes(runs)]
    return [*parts, *compare.flip_tables(after.details["flips"])]
