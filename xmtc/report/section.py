"""What a section of the report is, and which ones a page has."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xmtc.data.config import Task
from xmtc.evaluate.metrics import task_of
from xmtc.report.parts import Part
from xmtc.report.run_results import RunResults

GROUP = "xmtc.report_sections"
"""Entry points of sections in installed packages."""


@dataclass(frozen=True)
class Example:
    """A document shown in full, which the user asked for.

    Attributes:
        doc_id: its id.
        text: its text.
        gold: its labels.
        predicted: (label, score), best first.
    """

    doc_id: str
    text: str
    gold: Sequence[str]
    predicted: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Page:
    """What a page reports on.

    Attributes:
        runs: at least one; the others are compared with the first.
        examples: documents that the user asked to see.
    """

    runs: Sequence[RunResults]
    examples: Sequence[Example] = ()

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
        """Whether labels exclude each other: then rankings and thresholds mean nothing."""
        return self.task == "single_label"


class Section(ABC):
    """A section of the page.

    An installed package adds one by an entry point of the group `xmtc.report_sections`. The entry point's name is the
    section's, and its object is a subclass whose constructor takes no arguments. Document text belongs into a report
    only if the user asked for it (`Page.examples`).

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

    def applies(self, page: Page) -> bool:
        """Whether the runs hold what this section needs; it is left out otherwise."""
        del page
        return True

    @abstractmethod
    def render(self, page: Page) -> Sequence[Part]:
        """Make the parts of the section, in order; only called if it applies."""


def task_of_all(runs: Sequence[RunResults]) -> Task:
    """Return the task of all runs; `multi_label` if they differ."""
    return "single_label" if all(task_of(run.metrics) == "single_label" for run in runs) else "multi_label"


def label_title(label: str, name: str) -> str:
    """Return a label with its name, if it has one."""
    return label if name == label else f"{label} ({name})"


def union(names: Iterable[Iterable[str]]) -> list[str]:
    """List every name once, in the order in which they first occur."""
    return list(dict.fromkeys(name for group in names for name in group))
