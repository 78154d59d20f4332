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
        if not page.several:
            return []
        table, unpaired = compare.paired_differences(page.runs)
        parts: list[Part | None] = _not_paired(unpaired)
        parts += [
            Paragraph(f"{sentence}.", "warning")
            for sentence in compare.caveats(page.runs)
        ]
        if table.rows:
            parts += [Paragraph(_INTERVALS), table]
        return [
            *parts,
            compare.most_changed_labels(page.runs),
            compare.differing_settings(page.runs),
        ]


class StartSection(Section):
    """Paired differences, and labels that became better or worse, of a run that has `model.init_from`."""

    name, heading, link = (
        "start",
        "Against the model that training started from",
        "Before and after",
    )

    @override
    def render(self, page: Page) -> Sequence[Part | None]:
        if page.several or page.first.start is None:
            return []
        before, after = page.first.start
        labels = before.metrics["labels_present"]
        documents = before.metrics["docs"]
        text = (
            f"Both models on {documents:,} documents of {after.split}, over the {labels:,} labels in them that both "
            "know, with thresholds tuned there for each. Documents that the model before is known to have learnt from "
            "are left out. ▲ and ▼ mark intervals without 0."
        )
        return [Paragraph(text), *before_and_after(before, after)]


def before_and_after(before: RunResults, after: RunResults) -> list[Part | None]:
    """Show what a second model changes: paired differences, labels won and lost, decisions that flip."""
    parts: list[Part | None] = []
    worse = compare.worse_metrics(before, after)
    if worse:
        parts.append(Paragraph(f"Worse than before: {', '.join(worse)}.", "warning"))
    table, unpaired = compare.paired_differences((before, after))
    parts += _not_paired(unpaired)
    if table.rows:
        parts.append(table)
    parts.append(compare.most_changed_labels((before, after)))
    return [*parts, *compare.flip_tables(after.details["flips"])]


def _not_paired(sentences: Sequence[str]) -> list[Part | None]:
    """Warn of each run that cannot be compared in pairs."""
    return [
        Paragraph(f"Not compared in pairs: {sentence}.", "warning")
        for sentence in sentences
    ]
