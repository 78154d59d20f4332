"""A section of the report that an installed package adds, from its entry point to the page."""

import importlib.metadata
import sys
import types

import pandas as pd
import pytest

from synthetic_runs import make_run
from xmtc.config import members
from xmtc.errors import ConfigError
from xmtc.report.run_results import RunResults
from xmtc.report.section import Paragraph, Section, Table
from xmtc.report.write import write_report


class CostSection(Section):
    """What each run cost, in a currency of its own."""

    name, link = "cost", "Cost"

    def title(self, page):
        return f"Cost of {page.first.name} & others"

    def render(self, page):
        if not page.several:
            return []
        rows = [[run.name, f"{run.metrics['docs']:,}"] for run in page.runs]
        table = Table("cost", ["run", "<price>"], rows, caption="Prices")
        return [Paragraph("Prices are <made up>."), table]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        RunResults.load(make_run(folder, name, documents=60, labels=30))
        for name in ("one", "two")
    ]


@pytest.fixture
def install(monkeypatch):
    """Make an object the section of an installed package."""

    def install(section):
        module = types.ModuleType("other_package")
        module.__dict__["section"] = section
        monkeypatch.setitem(sys.modules, "other_package", module)
        point = importlib.metadata.EntryPoint(
            "cost", "other_package:section", "xmtc.report_sections"
        )
        monkeypatch.setattr(
            members,
            "entry_points",
            lambda group: (point,) if group == point.group else (),
        )

    return install


@pytest.mark.parametrize(
    "given", [CostSection, CostSection()], ids=["class", "instance"]
)
def test_an_installed_section_is_on_the_page(install, runs, tmp_path, given):
    install(given)
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert '<a href="#cost">Cost</a>' in page
    assert '<section id="cost"><h2>Cost of one &amp; others</h2>' in page
    assert "<p>Prices are &lt;made up&gt;.</p>" in page
    assert "&lt;price&gt;" in page
    assert (
        page.index('id="labels"') < page.index('id="cost"') < page.index('id="setup"')
    )
    assert pd.read_csv(tmp_path / "report_tables" / "cost.csv")["run"].tolist() == [
        "one",
        "two",
    ]


def test_a_section_without_what_it_needs_is_left_out(install, runs, tmp_path):
    install(CostSection)
    write_report(runs[:1], tmp_path / "report.html")
    assert "#cost" not in (tmp_path / "report.html").read_text()


class Headline(CostSection):
    """A section with a name that is taken."""

    name = "headline"


class SameTable(CostSection):
    """A section with a table whose name is taken."""

    def render(self, page):
        return [Table("headline", ["a"], [["b"]])]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (object(), r"cost is no Section; see xmtc\.report\.section\.Section"),
        (Headline, "the name 'headline', which another one has"),
        (SameTable, "two sections of the report have a table named 'headline'"),
    ],
)
def test_what_cannot_be_a_section_is_refused(install, runs, tmp_path, given, message):
    install(given)
    with pytest.raises(ConfigError, match=message):
        write_report(runs, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
