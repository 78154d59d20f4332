"""Whether everybody can read the pages: axe-core's rules for WCAG 2.2 AA, at two widths, light and dark.

    npm install axe-core
    PYTHONPATH=tests/support python tools/check/accessibility.py node_modules/axe-core/axe.min.js site/index.html http://127.0.0.1:8000

prints every violation with its elements, and pages that are wider than the window. It needs Chromium.
"""

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from browser import Browser, find_browser

WIDTHS = (1280, 400)
VIOLATIONS = """axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}).then(found => {
  window.found = found.violations.map(
    one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.target.join(" ")).join("; ")}`)
})"""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def violations(browser: Browser, axe: str, place: str) -> Iterator[str]:
    """What is wrong with the page that a browser shows."""
    browser.run(f"{axe};0")
    browser.run(f"window.found = null; {VIOLATIONS}; 0")
    browser.wait("window.found !== null")
    yield from (f"{place}: {one}" for one in browser.run("window.found"))
    if wider := browser.run(TOO_WIDE):
        yield f"{place}: {wider} px wider than the window"


def in_one_mode(
    binary: str, axe: str, pages: Sequence[str], dark: bool, pictures: Path | None
) -> Iterator[str]:
    """What is wrong with pages in a new browser: pages remember the mode in which they were first seen."""
    browser, mode = (
        Browser(binary, Path(tempfile.mkdtemp(prefix="profile-"))),
        "dark" if dark else "light",
    )
    try:
        for page, width in itertools.product(pages, WIDTHS):
            browser.open(
                page if "://" in page else Path(page).resolve(), width=width, dark=dark
            )
            yield from violations(browser, axe, f"{page} {width} px {mode}")
            if pictures is not None:
                stem = page.rstrip("/").rpartition("/")[2].partition(".")[0]
                browser.picture(pictures / f"{stem}-{width}-{mode}.png")
    finally:
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("axe", type=Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("pages", nargs="+", help="files or addresses")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each")
    arguments = parser.parse_args()
    binary = find_browser() or sys.exit("no Chromium is installed: the pages need one")
    axe, found = arguments.axe.read_text(encoding="utf-8"), 0
    for dark in (False, True):
        for line in in_one_mode(binary, axe, arguments.pages, dark, arguments.pictures):
            print(line, flush=True)
            found += 1
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
