"""What a section of the report is made of: tables, figures and text, each with a template."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from markupsafe import Markup
from typing_extensions import override


class Part:
    """A piece of a section.

    Attributes:
        template: the file below `assets/parts` that shows it, as the variable `part`.
    """

    template: ClassVar[str]

    def tables(self) -> Sequence["Table"]:
        """Return its tables, which are also written as CSV and Parquet."""
        return ()


@dataclass(frozen=True)
class Table(Part):
    """A table of the page, also written as CSV and Parquet.

    Attributes:
        name: name of its files; no other table of the page has it.
        columns: heads.
        rows: cells as shown.
        runs: index of the run of each row, where rows belong to runs.
        words: how many columns, from the first, hold words; the others hold numbers.
        caption: what the table shows.
        in_summary: whether the Markdown summary has it too.
    """

    template = "parts/table.html"
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    runs: Sequence[int] | None = None
    words: int = 1
    caption: str = ""
    in_summary: bool = False

    @override
    def tables(self) -> Sequence["Table"]:
        return (self,)

    def captioned(self, caption: str) -> "Table":
        """Return the same table with a caption."""
        return replace(self, caption=caption)


@dataclass(frozen=True)
class TablePair(Part):
    """Two tables side by side.

    Attributes:
        left, right: the tables.
    """

    template = "parts/table_pair.html"
    left: Table
    right: Table

    @override
    def tables(self) -> Sequence[Table]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Chart:
    """A figure of the page.

    Attributes:
        title: what it shows.
        note: a sentence more.
        svg: the chart.
        legend: whether it tells runs apart.
    """

    title: str
    note: str
    svg: Markup
    legend: bool = True


@dataclass(frozen=True)
class Figures(Part):
    """Charts side by side.

    Attributes:
        charts: at least one.
    """

    template = "parts/figures.html"
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Paragraph(Part):
    """A paragraph.

    Attributes:
        text: plain text.
        look: a class of the style sheet: `note`, `warning`, or none.
    """

    template = "parts/paragraph.html"
    text: str
    look: str = ""


@dataclass(frozen=True)
class Fold(Part):
    """Preformatted text that is shown when the reader opens it.

    Attributes:
        summary: the line that is always shown.
        text: plain text.
    """

    template = "parts/fold.html"
    summary: str
    text: str


@dataclass(frozen=True)
class Html(Part):
    """Markup that a section has made itself.

    Attributes:
        markup: HTML in which everything from data has been escaped, as by `markupsafe` or a Jinja template.
    """

    template = "parts/html.html"
    markup: Markup
