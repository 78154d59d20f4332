"""Putting the page, its Markdown summary and its tables on disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xmtc.errors import DataError
from xmtc.evaluate.summary import markdown_summary
from xmtc.files import write_text
from xmtc.report import compare, sections
from xmtc.report.label_data import embed, label_columns
from xmtc.report.run_results import RunResults
from xmtc.report.sections import Table
from xmtc.report.svg import swatch

MOST_RUNS = 8


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


def write_report(runs: Sequence[RunResults], output: Path, examples: Sequence[Example] = ()) -> None:
    """Write the report of one run, or of several side by side.

    Beside `output` (HTML, self-contained) come `<stem>.md`, a summary for a pull request, and `<stem>_tables/` with
    every table as CSV and Parquet. Document text appears only through `examples`.

    Args:
        runs: the first is the one that others are compared with; names must differ.
        output: the page.
        examples: documents to show; the page warns of them.

    Raises:
        DataError: no runs, too many, or two of the same name; `output` cannot be a page.
    """
    if output.is_dir() or output.suffix == ".md":
        raise DataError(f"{output}: the report is an HTML page: give a file for it, such as report.html")
    names = [run.name for run in runs]
    if not 1 <= len(runs) <= MOST_RUNS:
        raise DataError(f"a report takes 1 to {MOST_RUNS} runs, not {len(runs)}")
    if len(set(names)) < len(names):
        raise DataError(f"two runs are named {next(n for n in names if names.count(n) > 1)!r}; rename one directory")
    context = _context(runs, examples)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{output}: cannot be written: {error.strerror}; choose another --output") from error
    write_text(output, _environment().get_template("report.html").render(context))
    summaries = [markdown_summary(run.metrics, f"{run.name}: {run.split}") for run in runs]
    if len(runs) > 1:
        summaries.append(_markdown(context["differences"]))
    write_text(output.with_suffix(".md"), "\n".join(summaries))
    _write_tables(output.with_name(output.stem + "_tables"), context)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("xmtc.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _context(runs: Sequence[RunResults], examples: Sequence[Example]) -> dict[str, Any]:
    best, worst = sections.extremes(runs[0])
    drift_text, drift = sections.drift(runs[0])
    several = len(runs) > 1
    differences, unpaired = compare.differences(runs)
    columns = label_columns(runs)
    return {
        "css": _asset("report.css"),
        "js": _asset("report.js"),
        "runs": [{"name": run.name, "split": run.split, "swatch": swatch(r)} for r, run in enumerate(runs)],
        "facts": _facts(runs[0]),
        "chosen_here": any(run.split == "dev" for run in runs),
        "one_label": sections.one_label(runs),
        "headline": sections.headline(runs),
        "frequency": sections.frequency(runs),
        "frequency_charts": sections.frequency_charts(runs),
        "differences": differences,
        "unpaired": unpaired,
        "caveats": compare.caveats(runs),
        "wins": compare.wins(runs) if several else None,
        "changes": compare.changes(runs) if several else None,
        "settings": compare.settings(runs) if several else None,
        "ranking_charts": sections.ranking_charts(runs),
        "score_charts": sections.score_charts(runs),
        "training_charts": sections.training_charts(runs),
        "best": best,
        "worst": worst,
        "histogram": sections.histogram_chart(runs),
        "lengths": sections.lengths(runs),
        "levels": sections.levels(runs),
        "attention": sections.attention(runs),
        "drift_text": drift_text,
        "drift": drift,
        "confusion": sections.confusion(runs[0]),
        "examples": examples,
        "configurations": [(run.name, sections.configuration(run)) for run in runs if run.config],
        "provenance": sections.provenance(runs),
        "bins": list(runs[0].metrics["bins"]),
        "shown_labels": len(columns["labels"]),
        "total_labels": columns["total"],
        "label_data": embed(columns),
    }


def _facts(run: RunResults) -> str:
    metrics = run.metrics
    return (
        f"{metrics['docs']:,} documents and {metrics['labels_present']:,} labels of split {run.split}, after training "
        f"on {metrics['train_docs']:,} documents with {metrics['labels']:,} labels in all"
    )


def _asset(name: str) -> Markup:
    return Markup((files("xmtc.report") / "assets" / name).read_text(encoding="utf-8"))


def _markdown(table: Table) -> str:
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in table.rows)]) + "\n"


def _write_tables(folder: Path, context: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for table in (value for value in context.values() if isinstance(value, Table) and value.rows):
        frame = pd.DataFrame([list(row) for row in table.rows], columns=pd.Index(table.columns))
        write_text(folder / f"{table.name}.csv", frame.to_csv(index=False))
        frame.to_parquet(folder / f"{table.name}.parquet", index=False)
