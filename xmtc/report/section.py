"""What a section of the report is, and the parts that it is made of."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup

from xmtc.data.config import Task
from xmtc.evaluate.metrics import task_of
from xmtc.report.run_results import RunResults

GROUP = "xmtc.report_sections"
"""Entry points of sections in installed packages."""


@dataclass(frozen=True)
class Page:
    """What a page reports on.

    Attributes:
        runs: at least one; the others are compared with the first.
    """

    runs: Sequence[RunResults]

    @property
    def first(self) -> RunResults:
        """The run that others are compared with."""
        return self.runs[0]

    @property
    def several(self) -> bool:
        """Whether there is anything to compare."""
        return len(self.runs) > 1

    @property
    def task(self) -> Task:
        """The task of all runs; `multi_label` if they differ."""
        return task_of_all(self.runs)

    @property
    def one_label(self) -> bool:
        """Whether labels exclude each other: rankings and thresholds mean nothing then."""
        return self.task == "single_label"


class Part:
    """A piece of a section.

    Attributes:
        template: the file below `assets/parts` that shows it, as the variable `part`.
    """

    template: ClassVar[str]


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
        unfolded: whether a report of runs shows it without a click.
    """

    template = "parts/table.html"
    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    runs: Sequence[int] | None = None
    words: int = 1
    caption: str = ""
    in_summary: bool = False
    unfolded: bool = False

    @classmethod
    def by_run(
        cls,
        name: str,
        columns: Sequence[str],
        rows: Sequence[tuple[int, Sequence[str]]],
        caption: str,
        *,
        in_summary: bool = False,
        unfolded: bool = False,
    ) -> "Table":
        """Make a table of rows with the index of their run, whose two first columns hold words."""
        runs = [run for run, _ in rows]
        cells = [row for _, row in rows]
        return cls(
            name,
            columns,
            cells,
            runs,
            words=2,
            caption=caption,
            in_summary=in_summary,
            unfolded=unfolded,
        )


@dataclass(frozen=True)
class KeyFigure:
    """A number that the report opens with.

    Attributes:
        title: what it says, in a few words.
        values: of each run, in percent, with its interval; a dash where there is none.
        sentences: what it means, in words, for each run.
    """

    title: str
    values: Sequence[str]
    sentences: Sequence[str]


@dataclass(frozen=True)
class KeyFigures(Part):
    """Key figures side by side.

    Attributes:
        figures: at least one.
    """

    template = "parts/key_figures.html"
    figures: Sequence[KeyFigure]


@dataclass(frozen=True)
class Chart:
    """A figure of the page.

    Attributes:
        title: what it shows.
        note: a sentence more.
        svg: the chart.
    """

    title: str
    note: str
    svg: Markup


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


class Section(ABC):
    """A section of the page.

    An installed package adds one by an entry point of the group `xmtc.report_sections`. The entry point's name is the
    section's, and its object is a subclass whose constructor takes no arguments. Document
    text does not belong into a report.

    Attributes:
        name: the anchor of the section; letters, digits and hyphens.
        heading: its heading, as plain text.
        link: its text in the navigation; empty leaves it out there.
    """

    name: str
    heading: str = ""
    link: str = ""

    def title(self, page: Page) -> str:
        """Return the heading, where it depends on the page."""
        del page
        return self.heading

    @abstractmethod
    def render(self, page: Page) -> Sequence[Part | None]:
        """Make the parts of the section, in order; None is no part. Without any, the page leaves the section out."""


def task_of_all(runs: Sequence[RunResults]) -> Task:
    """Return the task of all runs; `multi_label` if they differ."""
    return (
        "single_label"
        if all(task_of(run.metrics) == "single_label" for run in runs)
        else "multi_label"
    )


def label_title(label: str, name: str) -> str:
    """Return a label with its name, if it has one."""
    return label if name == label else f"{label} ({name})"


def union(names: Iterable[Iterable[str]]) -> list[str]:
    """List every name once, in the order in which they first occur."""
    return list(dict.fromkeys(name for group in names for name in group))
