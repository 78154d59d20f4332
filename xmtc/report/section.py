"""What a section of the report is, and which ones a page has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from xmtc.config import members
from xmtc.errors import ConfigError
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
    def one_label(self) -> bool:
        """Whether labels exclude each other: then rankings and thresholds mean nothing."""
        return one_label(self.runs)


@runtime_checkable
class Section(Protocol):
    """A section of the page.

    An installed package adds one by an entry point of the group `xmtc.report_sections`. The entry point's name is the
    section's, and its object is a class without arguments, or an instance of one. Document text belongs into a report
    only if the user asked for it (`Page.examples`).

    Attributes:
        name: the anchor of the section; letters, digits and hyphens.
        link: its text in the navigation; empty leaves it out there.
    """

    name: str
    link: str

    def title(self, page: Page) -> str:
        """Return the heading, as plain text."""
        ...

    def applies(self, page: Page) -> bool:
        """Whether the runs hold what this section needs; it is left out otherwise."""
        ...

    def render(self, page: Page) -> Sequence[Part]:
        """Make the parts of the section, in order; only called if it applies."""
        ...


def one_label(runs: Sequence[RunResults]) -> bool:
    """Whether labels exclude each other in all runs."""
    return all(run.metrics.get("accuracy") is not None for run in runs)


def installed_sections(taken: Sequence[str]) -> list[Section]:
    """Load the sections of installed packages.

    Args:
        taken: names of the existing sections.

    Raises:
        ConfigError: an entry point cannot be imported, is not a section, or has a name that is taken.
    """
    found: list[Section] = []
    for point in members.entry_points(GROUP):
        given, package = members.loaded(point, GROUP)
        section = given() if isinstance(given, type) else given
        if not isinstance(section, Section):
            raise ConfigError(
                f"{package}: its entry point {GROUP}: {point.name} is not a section of the report: it needs name, "
                "link, title, applies and render; see xmtc.report.section.Section"
            )
        if section.name in (*taken, *(other.name for other in found)):
            raise ConfigError(
                f"{package}: its entry point {GROUP}: {point.name} adds a section named {section.name!r}, which "
                "another one has; uninstall the package, or rename the section in it"
            )
        found.append(section)
    return found
