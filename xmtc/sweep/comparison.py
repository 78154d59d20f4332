"""One comparison of the runs of a sweep: means over seeds with intervals, costs, failures."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from xmtc.evaluate import layout
from xmtc.evaluate.metrics import all_metrics
from xmtc.evaluate.summary import markdown_table, percent
from xmtc.files import read_json, reading, write_json, write_text
from xmtc.report.runs import report_runs
from xmtc.report.write import MAX_RUNS
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.state import read_run
from xmtc.run.status import seconds_of
from xmtc.sweep.config import SweepConfig
from xmtc.sweep.plan import Cell, words_of
from xmtc.track.tracker import read_metrics


@dataclass(frozen=True)
class CellResult:
    """What became of a cell.

    Attributes:
        values: by key.
        runs: directories of the runs that finished.
        metrics: metric → mean over the runs.
        ci95: metric → interval of the mean: by Student's t over the seeds, empty if fewer than two of them finished;
            in a sweep of one seed, over documents.
        train_s: see `train_seconds`, mean over the runs.
        failed: seed → why.
    """

    values: Mapping[str, Any]
    runs: list[str]
    metrics: dict[str, float]
    ci95: dict[str, list[float]]
    train_s: float | None
    failed: dict[int, str]


def summarise(
    cell: Cell, metric_names: Sequence[str], failures: Mapping[str, str]
) -> CellResult:
    """Compute means and costs of the finished runs of a cell.

    Args:
        cell: its runs have been tried.
        metric_names: metrics; one that a finished run does not have is left out.
        failures: name of each run that failed → why.
    """
    finished = [RunPaths.of(run) for run in cell.runs if run.name not in failures]
    metrics_by_run = [_metrics_of_dev(paths) for paths in finished]
    means: dict[str, float] = {}
    intervals: dict[str, list[float]] = {}
    for name in metric_names:
        values = [
            metrics[name] for metrics in metrics_by_run if metrics.get(name) is not None
        ]
        if not values or len(values) < len(finished):
            continue
        means[name] = statistics.mean(values)
        interval = student_interval(values)
        if interval is None and len(cell.runs) == 1:
            interval = metrics_by_run[0].get("ci95", {}).get(name)
        intervals[name] = interval or []
    seconds = [
        run_seconds
        for run_seconds in map(train_seconds, finished)
        if run_seconds is not None
    ]
    return CellResult(
        values=cell.values,
        runs=[str(paths.root) for paths in finished],
        metrics=means,
        ci95=intervals,
        train_s=statistics.mean(seconds) if seconds else None,
        failed={
            run.seed: failures[run.name] for run in cell.runs if run.name in failures
        },
    )


def student_interval(values: Sequence[float]) -> list[float] | None:
    """Compute the 95 % interval of the mean by Student's t; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = statistics.mean(values)
    reach = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return [float(mean - reach), float(mean + reach)]


def write_comparison(
    output: Path, results: Sequence[CellResult], settings: SweepConfig
) -> None:
    """Write the table as JSON and Markdown, best cell first, and a report of the best cells' first runs."""
    ordered = sorted(results, key=lambda result: _rank(result, settings.metrics[0]))
    output.mkdir(parents=True, exist_ok=True)
    content = {
        "seeds": settings.seeds,
        "metrics": settings.metrics,
        "cells": [asdict(result) for result in ordered],
    }
    write_json(output / "sweep.json", content, indent=2)
    write_text(output / "sweep.md", _markdown(ordered, settings))
    best_runs = [Path(result.runs[0]) for result in ordered if result.runs][:MAX_RUNS]
    if best_runs:
        report_runs(best_runs, output / layout.REPORT, "dev")


def _rank(result: CellResult, metric_name: str) -> float:
    """Return a number that is lowest for the best cell, and infinite for a cell without the metric."""
    if metric_name not in result.metrics:
        return math.inf
    metric = next(metric for metric in all_metrics() if metric.name == metric_name)
    value = result.metrics[metric_name]
    return -value if metric.higher_is_better else value


def _markdown(results: Sequence[CellResult], settings: SweepConfig) -> str:
    """Write the table, a sentence that explains it, and a line for each run that failed."""
    columns = [*settings.keys, *settings.metrics, "training, s", "runs", "first run"]
    table = markdown_table(
        columns, [_row(result, settings.metrics) for result in results]
    )
    several_seeds = len(settings.seeds) > 1
    spread = (
        "over seeds (Student's t)"
        if several_seeds
        else "over documents (bootstrap), of one seed"
    )
    lines = [table, f"Metrics of dev in percent, means with 95 % intervals {spread}."]
    for result in results:
        for seed, reason in result.failed.items():
            lines.append(f"Failed: {words_of(result.values)}, seed {seed}: {reason}")
    return "\n".join(lines) + "\n"


def _row(result: CellResult, metric_names: Sequence[str]) -> list[str]:
    """Write the cells of a row: values, metrics with intervals, cost, runs that finished, the first run's name."""
    values = [json.dumps(value) for value in result.values.values()]
    metrics = [
        percent(result.metrics.get(name), result.ci95.get(name) or None)
        for name in metric_names
    ]
    seconds = "–" if result.train_s is None else f"{result.train_s:,.0f}"
    finished = f"{len(result.runs)} of {len(result.runs) + len(result.failed)}"
    first_run = (
        Path(result.runs[0]).name if result.runs else "–"
    )  # the report calls the cell so, too
    return [*values, *metrics, seconds, finished, first_run]


def _metrics_of_dev(paths: RunPaths) -> dict[str, Any]:
    """Read the metrics of dev: test must stay unseen when a cell is chosen."""
    with reading(paths.metrics("dev"), fix="evaluate the run again"):
        return read_json(paths.metrics("dev"))


def train_seconds(paths: RunPaths) -> float | None:
    """Return the seconds of fine-tuning, see `seconds_of`; None before it is done, or without a head."""
    return seconds_of(
        Stage.FINETUNE, read_run(paths.root), read_metrics(paths.metrics_log)
    )
