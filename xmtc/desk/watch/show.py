"""Show results: tables on the terminal, and a page with all parts."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xmtc.report.section import Paragraph, Part, Table
from xmtc.report.write import write_page
from xmtc.track.console import printable, terminal_table

_ROWS, _WIDTH = 12, 160


def show_results(
    title: str, facts: str, parts: Sequence[Part], page: Path | None
) -> None:
    """Print paragraphs and the first rows of each table, and write the page if there is a place for it.

    Args:
        title: heading of the page.
        facts: what was looked at, a sentence.
        parts: the results; tables without rows are left out.
        page: HTML file; its tables are written beside it as CSV and Parquet.

    Raises:
        StorageError: the page cannot be written.
    """
    parts = [part for part in parts if not isinstance(part, Table) or part.rows]
    if page is not None:
        write_page(page, title, facts, parts)
    where = "on the page" if page is not None else "with -o PAGE.html"
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    print(printable(facts))
    for part in parts:
        if isinstance(part, Paragraph):
            print(printable(part.text))
        if isinstance(part, Table):
            where = "on the page" if page is not None else "with --output"
            more = (
                f" ({len(part.rows) - _ROWS} more rows {where})"
                if len(part.rows) > _ROWS
                else ""
            )
            numbers = part.columns[part.words :]
            title = part.caption + more
            console.print(
                terminal_table(
                    part.columns, part.rows[:_ROWS], right=numbers, title=title
                )
            )
    if page is not None:
        print(f"page: {page}")
