"""The sections of the report, in their order on the page."""

from xmtc.config.members import installed_objects
from xmtc.report.section import GROUP, Section
from xmtc.report.sections.comparison import ComparisonSection, StartSection
from xmtc.report.sections.curves import CurvesSection
from xmtc.report.sections.decisions import DecisionsSection
from xmtc.report.sections.labels import LabelsSection
from xmtc.report.sections.metrics import FrequencySection, HeadlineSection
from xmtc.report.sections.overview import OverviewSection
from xmtc.report.sections.scorers import ScorersSection
from xmtc.report.sections.setup import SetupSection
from xmtc.report.sections.training import TrainingSection

_RESULTS: tuple[Section, ...] = (
    OverviewSection(),
    HeadlineSection(),
    FrequencySection(),
    ScorersSection(),
    ComparisonSection(),
    StartSection(),
    CurvesSection(),
    DecisionsSection(),
    TrainingSection(),
    LabelsSection(),
)
_BACKGROUND: tuple[Section, ...] = (SetupSection(),)


def all_sections() -> list[Section]:
    """List the sections of this package, with those of installed packages between the results and the background.

    Raises:
        ConfigError: an installed section cannot be used.
    """
    names = [section.name for section in (*_RESULTS, *_BACKGROUND)]
    return [*_RESULTS, *installed_objects(GROUP, Section, names), *_BACKGROUND]
