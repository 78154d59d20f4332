"""The report in a browser: no errors, sorting, searching, run selection, dark, narrow, keyboard."""

import pandas as pd
import pytest

from browser import Browser, find_browser
from synthetic_runs import make_run
from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Table
from xmtc.report.write import write_page, write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [
        make_run(folder, "planted", skill=2.7),
        make_run(folder, "random-init", skill=2.3),
    ]
    output = folder / "report.html"
    write_report([RunResults.load(run) for run in runs], output)
    return output


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    binary = find_browser()
    if binary is None:
        pytest.skip(
            "no Chromium here (Debian: apt-get install chromium); the report was not tried in a browser"
        )
    running = Browser(binary, tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


def column(browser: Browser, number: int) -> list[str]:
    cells = f"#explorer tbody tr:not(.space) > :nth-child({number})"
    return browser.run(
        f"[...document.querySelectorAll('{cells}')].map(c => c.textContent)"
    )


def click(browser: Browser, selector: str) -> None:
    browser.run(f"document.querySelector('{selector}').click()")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_a_page_of_other_results_opens_like_a_report(browser, tmp_path, width, dark):
    chart = Chart(
        "bits",
        "note",
        bar_chart(["a", "b"], [Bars("dev", [0.4, 0.6])], "x", Axis("y"), "bits"),
    )
    table = Table("t", ["name", "number"], [["fish", "1"]], caption="All")
    write_page(
        tmp_path / "page.html", "Drift", "2 documents.", [table, Figures([chart])]
    )
    browser.open(tmp_path / "page.html", width=width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.querySelector('h1').textContent") == "Drift"
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('svg.chart').length") == 1


@pytest.mark.parametrize(
    ("width", "dark"), [(1280, False), (1280, True), (360, False), (360, True)]
)
def test_it_opens_without_errors_requests_or_sideways_scrolling(
    browser, page, width, dark
):
    browser.open(page, width=width, dark=dark)
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('svg.chart').length") > 8


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_the_page(browser, page, dark):
    browser.open(page, dark=dark)
    script = """(() => {
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const paper = light(getComputedStyle(document.body).backgroundColor);
      const ratio = (c) => { const v = light(c); return (Math.max(v, paper) + 0.05) / (Math.min(v, paper) + 0.05); };
      const look = (s, p) => ratio(getComputedStyle(document.querySelector(s))[p]);
      return {body: look('main p', 'color'), note: look('.note', 'color'), link: look('nav a', 'color'),
        first: look('svg .run-0 rect', 'fill'), second: look('svg .run-1 rect', 'fill')};
    })()"""
    found = browser.run(script)
    assert min(found["body"], found["note"], found["link"]) >= 4.5
    assert min(found["first"], found["second"]) >= 3


def test_sorting_turns_round(browser, page):
    browser.open(page)
    click(browser, "#explorer button[data-key=train]")
    falling = [int(x.replace(",", "")) for x in column(browser, 3)]
    assert falling == sorted(falling, reverse=True)
    assert len(set(falling)) > 3
    click(browser, "#explorer button[data-key=train]")
    rising = [int(x.replace(",", "")) for x in column(browser, 3)]
    assert rising == sorted(rising)
    assert (
        browser.run("document.querySelector('#explorer [aria-sort]').ariaSort")
        == "ascending"
    )
    click(browser, "#explorer button[data-key=label]")
    assert column(browser, 1)[0].startswith("numpy")


def test_search_and_bin_narrow_the_table(browser, page):
    browser.open(page)
    browser.run("document.getElementById('search').focus()")
    browser.type("ray m0")
    browser.wait(
        "document.querySelectorAll('#explorer tbody tr:not(.space)').length < 200"
    )
    browser.wait(
        "[...document.querySelectorAll('#explorer tbody th')].every(c => c.textContent.includes('ray'))"
    )
    browser.run(
        "const b = document.getElementById('bin'); b.value = '11-50'; b.dispatchEvent(new Event('change'))"
    )
    counts = [int(x) for x in column(browser, 3)]
    assert counts
    assert all(11 <= x <= 50 for x in counts)
    assert browser.run("document.getElementById('count').textContent").startswith(
        f"{len(counts)} of"
    )


def test_the_table_draws_only_what_is_in_sight(browser, page):
    browser.open(page)
    click(browser, "#present")
    assert len(column(browser, 1)) < 60
    browser.run("document.getElementById('window').focus()")
    last = "Number([...document.querySelectorAll('#explorer tr[aria-rowindex]')].at(-1).ariaRowIndex)"
    browser.wait(
        "document.getElementById('window').scrollHeight > 301 * 10"
    )  # on a busy machine a key may come before
    browser.press("End", 35)
    browser.wait(f"{last} === 301")


def test_runs_can_be_hidden_and_chosen(browser, page):
    browser.open(page)
    shown = "getComputedStyle(document.querySelector('svg.chart .run-1')).display !== 'none'"
    assert browser.run(shown)
    click(browser, 'input[data-run="1"]')
    assert not browser.run(shown)
    before = column(browser, 5)
    browser.run(
        "const r = document.getElementById('run'); r.value = '1'; r.dispatchEvent(new Event('change'))"
    )
    assert column(browser, 5) != before
    assert "F1 change" in browser.run(
        "document.querySelector('#explorer thead').textContent"
    )
    browser.call("Page.navigate", url="about:blank")
    browser.wait("location.href === 'about:blank'")
    browser.back()
    browser.wait(
        "document.getElementById('explorer') && document.readyState === 'complete'"
    )
    chosen = (
        browser.run("document.getElementById('run').value") == "1"
    )  # which the browser remembers
    assert (
        "F1 change"
        in browser.run("document.querySelector('#explorer thead').textContent")
    ) == chosen
    assert browser.run(shown) == browser.run(
        "document.querySelector('input[data-run=\"1\"]').checked"
    )
    assert browser.errors == []


def test_the_keyboard_reaches_and_uses_everything(browser, page):
    browser.open(page)
    reached = []
    for _ in range(60):
        browser.press("Tab", 9)
        name = browser.run(
            "document.activeElement.id || document.activeElement.dataset.key || ''"
        )
        reached.append(name)
        if name == "F1":
            break
    assert {"search", "bin", "present", "run", "window", "label", "F1"} <= set(reached)
    browser.press("Enter", 13)
    assert browser.run("document.activeElement.dataset.key") == "F1"
    assert (
        browser.run(
            "document.querySelector('#explorer [aria-sort] button').dataset.key"
        )
        == "F1"
    )


def test_thirty_thousand_labels_sort_and_search_without_lag(browser, tmp_path):
    run = make_run(tmp_path, "large", documents=200, labels=30_000)
    output = tmp_path / "large.html"
    write_report([RunResults.load(run)], output)
    assert output.stat().st_size < 5_000_000
    browser.open(output)
    click(browser, "#present")
    timed = (
        "(() => { const t = performance.now(); %s; return performance.now() - t; })()"
    )
    milliseconds = browser.run(
        timed % "document.querySelector('#explorer button[data-key=train]').click()"
    )
    assert milliseconds < 1000
    assert browser.errors == []


def test_a_run_of_other_documents_shows_its_own_f1(browser, page, tmp_path):
    runs = [page.parent / "planted", make_run(tmp_path, "fewer", documents=300)]
    write_report([RunResults.load(run) for run in runs], tmp_path / "report.html")
    browser.open(tmp_path / "report.html")
    browser.run(
        "(e => { e.value = 1; e.dispatchEvent(new Event('change')); })(document.getElementById('run'))"
    )
    frame = pd.read_parquet(runs[1] / "eval" / "test" / "per_label.parquet").set_index(
        "label"
    )
    shown = frame.loc[column(browser, 1)]
    assert len(shown) > 5
    assert column(browser, 4) == [f"{support:,}" for support in shown["support"]]
    assert [float(f1) for f1 in column(browser, 5)] == pytest.approx(
        (100 * shown["f1"]).tolist(), abs=0.06
    )
