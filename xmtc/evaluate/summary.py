"""The metrics as a table for people: on the terminal and in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from xmtc.evaluate.metrics import Metric, all_metrics, summary_metrics, task_of
from xmtc.track.console import terminal_table

_NDCG = "ndcg"


def percent(value: float | None, interval: list[float] | None = None) -> str:
    """Format a fraction in percent, with its interval in brackets; a dash for null."""
    if value is None:
        return "–"
    text = f"{100 * value:.1f}"
    return (
        text
        if interval is None
        else f"{text} [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    )


def in_words(name: str, value: float) -> str:
    """Write a metric as tables do, such as `nDCG@5 41.5 %`; what is none of the metrics keeps its name and number."""
    titles = {metric.name: metric.title for metric in all_metrics()}
    title = titles.get(name)
    if title is None and name.startswith(_NDCG):  # of attention, at another depth
        title = name.replace(_NDCG, "nDCG")
    return f"{title} {percent(value)} %" if title else f"{name} {value:.4g}"


def summary_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """List metric, value with interval, labels and documents of the headline metrics, then of macro-F1 by bin.

    Bins without labels are left out, and a bin that holds them all.
    """
    intervals = metrics.get("ci95", {})
    rows = [
        (
            metric.title,
            percent(metrics[metric.name], intervals.get(metric.name)),
            _behind(metrics, metric),
        )
        for metric in summary_metrics(task_of(metrics))
    ]
    for name, row in metrics["bins"].items():
        if not 0 < row["labels"] < metrics["labels_present"]:
            continue
        interval = row.get("ci95", {}).get("macro_f1")
        covered = f"{row['labels']:,} labels, {row['docs']:,} docs"
        rows.append(
            (
                f"macro-F1 of labels with {name} train docs",
                percent(row["macro_f1"], interval),
                covered,
            )
        )
    return rows


def _behind(metrics: Mapping[str, Any], metric: Metric) -> str:
    """Describe the labels and documents that a metric covers."""
    documents = metrics["docs_with_labels" if metric.needs_gold else "docs"]
    return f"{metrics['labels_present']:,} labels, {documents:,} docs"


def summary_table(metrics: Mapping[str, Any], title: str = "Evaluation") -> Table:
    """Make the summary for the terminal: percent, with 95 % bootstrap intervals if there are any."""
    drawn = (
        ", with 95 % bootstrap intervals over documents" if metrics.get("ci95") else ""
    )
    rows = [
        (metric, value, Text(covered, "dim"))
        for metric, value, covered in summary_rows(metrics)
    ]
    return terminal_table(
        ("metric", "value", "of"),
        rows,
        right=("value", "of"),
        title=title,
        caption=f"percent{drawn}",
    )


def markdown_summary(metrics: Mapping[str, Any], title: str) -> str:
    """Make the summary in Markdown, for a pull request."""
    return f"### {title}\n\n{markdown_table(('metric', 'value, %', 'of'), summary_rows(metrics))}"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table in Markdown; a bar in a cell does not end it."""
    lines = [
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
        for row in (columns, *rows)
    ]
    lines.insert(1, "|" + "---|" * len(columns))
    return "\n".join(lines) + "\n"
