"""How much attention lies on the labels' most informative tokens."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.parts import Paragraph, Part, Table
from xmtc.report.section import Page, Section


class AttentionSection(Section):
    """Attention on the tokens that the ranking puts first, against chance."""

    name, heading = "attention", "Attention and informative tokens"

    @override
    def applies(self, page: Page) -> bool:
        """Whether a run's attention was compared with its token ranking."""
        return any(run.attention for run in page.runs)

    @override
    def render(self, page: Page) -> Sequence[Part]:
        text = (
            "Share of attention on the tokens that carry most information about the label, over pairs of dev documents "
            "and their gold labels, next to the share of such tokens in the document. "
            "Without stage 1 (plant.epochs), attention starts at random."
        )
        return [Paragraph(text), _table(page)]


def _table(page: Page) -> Table:
    """Tabulate the share of attention on the labels' most informative tokens."""
    rows, owners = [], []
    for r, run in enumerate(page.runs):
        found = run.attention
        if found:
            start = "trained in stage 1" if found["planted"] else "random"
            values = [percent(found["attention"]), percent(found["chance"])]
            gain = f"{found['attention'] / found['chance']:.1f}×" if found["chance"] else "–"
            rows.append([run.name, start, *values, gain, f"{found['top_tokens']}", f"{found['pairs']:,}"])
            owners.append(r)
    numbers = ["attention on top tokens, %", "by chance, %", "times chance", "top tokens", "pairs"]
    caption = "Attention on the labels' top tokens"
    return Table("attention", ["run", "attention starts", *numbers], rows, owners, words=2, caption=caption)
