"""A run against the model that it continued from."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report import compare
from xmtc.report.parts import Paragraph, Part
from xmtc.report.section import Page, Section


class StartSection(Section):
    """Paired differences, and labels that became better or worse."""

    name, heading, link = "start", "Against the model that training started from", "Before and after"

    @override
    def applies(self, page: Page) -> bool:
        """Whether the page is about one run, and that run has `model.init_from`."""
        return not page.several and page.first.start is not None

    @override
    def render(self, page: Page) -> Sequence[Part]:
        assert page.first.start is not None
        before, after = runs = page.first.start
        labels, documents = before.metrics["labels_present"], before.metrics["docs"]
        text = (
            f"Both models on {documents:,} documents of {after.split}, over the {labels:,} labels in them that both "
            "know, with thresholds tuned there for each. Documents that the model before is known to have learnt from "
            "are left out. ▲ and ▼ mark intervals without 0."
        )
        parts: list[Part] = [Paragraph(text)]
        if worse := compare.worse(before, after):
            parts.append(Paragraph(f"Worse than before: {', '.join(worse)}.", "warning"))
        differences, unpaired = compare.differences(runs)
        parts += [Paragraph(f"Not compared in pairs: {sentence}.", "warning") for sentence in unpaired]
        optional = (differences if differences.rows else None, compare.wins(runs), compare.changes(runs))
        return [*parts, *(table for table in optional if table is not None)]
