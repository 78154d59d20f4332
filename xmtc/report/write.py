"""Putting the page, its Markdown summary and its tables on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.evaluate import layout
from xmtc.evaluate.spreadsheet import to_csv
from xmtc.evaluate.summary import markdown_summary, markdown_table
from xmtc.files import check_page, replacing_directory, write_text, writing
from xmtc.report.charts import environment, swatch
from xmtc.report.compare import other_documents
from xmtc.report.run_results import RunResults
from xmtc.report.section import GROUP, Page, Part, Table
from xmtc.report.sections import all_sections

MAX_RUNS = 8
_LIST = ".xmtc"
"""Names the files of the folder of tables."""


@dataclass(frozen=True)
class _Rendered:
    """A section as the template takes it."""

    name: str
    link: str
    title: str
    parts: Sequence[Part]


def write_report(runs: Sequence[RunResults], output: Path) -> None:
    """Write the report of one run, or of several side by side.

    Next to `output` (HTML, self-contained) it writes the folder `<stem>_tables/`: every table as CSV and Parquet, and
    `summary.md` for a pull request. Document text never appears.

    Args:
        runs: the first is the one that others are compared with; names must differ.
        output: the page.

    Raises:
        DataError: no runs, too many, or two of the same name.
        StorageError: page or folder cannot be written, or holds something that xmtc did not write.
        ConfigError: a section of an installed package cannot be used.
    """
    folder = _check_place(output)
    _check_runs([run.name for run in runs])
    page = Page(runs)
    summaries = [
        markdown_summary(run.metrics, f"{run.name}: {run.split}") for run in runs
    ]
    _publish(output, folder, _rendered(page), _context(page), summaries)


def _check_runs(names: Sequence[str]) -> None:
    """Refuse no runs, too many, and two of the same name."""
    if not 1 <= len(names) <= MAX_RUNS:
        raise DataError(f"a report takes 1 to {MAX_RUNS} runs, not {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two runs are named {name!r}; rename one directory")


def write_page(output: Path, title: str, facts: str, parts: Sequence[Part]) -> None:
    """Write a page that is not of runs, with its tables beside it as in `write_report`.

    Args:
        output: the page.
        title: its heading.
        facts: a sentence beneath it.
        parts: its content.

    Raises:
        StorageError: see `write_report`.
    """
    context = {
        "title": title,
        "heading": title,
        "facts": facts,
        "runs": (),
        "other_documents": (),
        "unfinished": (),
        "chosen_here": False,
        "fold_tables": False,
    }
    _publish(
        output,
        _check_place(output),
        [_Rendered("results", "", "Results", parts)],
        context,
        [f"### {title}\n"],
    )


def _check_place(output: Path) -> Path:
    """Refuse to replace what xmtc did not write. Return the folder of the tables."""
    folder = output.parent / f"{output.stem}_tables"
    if not (
        output.parent / layout.METRICS
    ).is_file():  # in the folder of an evaluation, all is xmtc's
        check_page(output)
        _check_folder(folder)
    return folder


def _publish(
    output: Path,
    folder: Path,
    sections: Sequence[_Rendered],
    context: dict[str, Any],
    summaries: Sequence[str],
) -> None:
    """Write the page, and the folder of its tables with the Markdown summary."""
    tables = [
        part
        for section in sections
        for part in section.parts
        if isinstance(part, Table) and part.rows
    ]
    _check_names(tables)
    assets = {"css": asset("report.css"), "js": asset("report.js")}
    page = (
        environment()
        .get_template("report.html")
        .render(context | assets | {"sections": sections})
    )
    write_text(output, page)
    summary_tables = [
        markdown_table(table.columns, table.rows)
        for table in tables
        if table.in_summary
    ]
    with writing(folder), replacing_directory(folder) as partial:
        (partial / layout.SUMMARY).write_text(
            "\n".join([*summaries, *summary_tables]), encoding="utf-8"
        )
        for table in tables:
            frame = pd.DataFrame(
                [list(row) for row in table.rows], columns=pd.Index(table.columns)
            )
            (partial / f"{table.name}.csv").write_text(to_csv(frame), encoding="utf-8")
            frame.to_parquet(partial / f"{table.name}.parquet", index=False)
        names = [path.name for path in partial.iterdir()]
        (partial / _LIST).write_text(
            "".join(f"{name}\n" for name in names), encoding="utf-8"
        )


def _rendered(page: Page) -> list[_Rendered]:
    """Render the sections that have something to show."""
    rendered = []
    for section in all_sections():
        parts = [part for part in section.render(page) if part]
        if parts:
            rendered.append(
                _Rendered(section.name, section.link, section.title(page), parts)
            )
    return rendered


def _check_names(tables: Sequence[Table]) -> None:
    """Refuse two tables of one name, which would be written to the same file."""
    names = [table.name for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two sections of the report have a table named {name!r}, and both would be written to {name}.csv; "
                f"rename the one of the installed package ({GROUP})"
            )


def _context(page: Page) -> dict[str, Any]:
    """Make what the template shows around the sections."""
    names = [run.name for run in page.runs]
    heading = (
        " and ".join(names)
        if len(names) < 3
        else f"{names[0]} and {len(names) - 1} other runs"
    )
    runs = [
        {"name": run.name, "split": run.split, "swatch": swatch(index)}
        for index, run in enumerate(page.runs)
    ]
    return {
        "title": f"{', '.join(names)} · evaluation",
        "heading": heading,
        "runs": runs,
        "facts": _facts(page.first),
        "other_documents": other_documents(page.runs),
        "unfinished": [run.name for run in page.runs if not run.is_final],
        "chosen_here": any(run.split == "dev" for run in page.runs),
        "fold_tables": True,
    }


def _facts(run: RunResults) -> str:
    """Say what was evaluated, and how to read the numbers."""
    metrics = run.metrics
    return (
        f"{metrics['docs']:,} documents and {metrics['labels_present']:,} labels of split {run.split}, after training "
        f"on {metrics['train_docs']:,} documents with {metrics['labels']:,} labels in all. Percent throughout; "
        "brackets are 95 % bootstrap intervals over documents."
    )


def asset(name: str) -> Markup:
    """Read a file of the page that is shown as it is."""
    return Markup((files("xmtc.report") / "assets" / name).read_text(encoding="utf-8"))


def _check_folder(folder: Path) -> None:
    """Refuse a folder with files that are not those of an earlier report."""
    with writing(folder):
        if not folder.exists():
            return
        own_names = {_LIST}
        listed = folder / _LIST
        if listed.is_file():
            own_names.update(
                listed.read_text(encoding="utf-8", errors="replace").splitlines()
            )
        foreign = (
            not folder.is_dir() or {path.name for path in folder.iterdir()} - own_names
        )
    if foreign:
        raise StorageError(
            f"{folder}: the report's tables go there, and it holds something that xmtc did not write; choose another "
            "--output, or move it away"
        )
