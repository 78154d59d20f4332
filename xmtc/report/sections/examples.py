"""Documents that the user asked to see."""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from xmtc.report.parts import Part
from xmtc.report.section import Example, Page, Section


@dataclass(frozen=True)
class _Document(Part):
    """A document with its labels.

    Attributes:
        example: the document.
    """

    template = "parts/document.html"
    example: Example


class ExamplesSection(Section):
    """Paragraph, gold and predicted labels of some documents."""

    name, heading = "examples", "Examples"

    @override
    def applies(self, page: Page) -> bool:
        """Whether the user asked for examples."""
        return bool(page.examples)

    @override
    def render(self, page: Page) -> Sequence[Part]:
        return [_Document(example) for example in page.examples]
