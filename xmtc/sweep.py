"""`xmtc sweep`: a grid of configurations and seeds, trained one after the other, and one comparison of them.

A thin layer over `train_run`: every cell and seed is a separate run directory, so that finished ones are skipped,
interrupted ones continue, and everything that reads runs reads these. On a Ray cluster the runs are parallel.
"""

import functools
import json
import math
import statistics
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from scipy import stats

from xmtc.config.base import config
from xmtc.config.load import load_config, read_tree
from xmtc.config.plain import config_hash
from xmtc.config.problems import shown, suggestion
from xmtc.config.yaml_tree import Node
from xmtc.errors import ConfigError, XmtcError
from xmtc.evaluate import layout
from xmtc.evaluate.metrics import all_metrics, metrics_of
from xmtc.evaluate.summary import markdown_table, percent
from xmtc.files import read_json, reading, write_json, write_text
from xmtc.pipeline import prepare_stage
from xmtc.preflight.configuration import check
from xmtc.report.runs import report_runs
from xmtc.report.write import MAX_RUNS
from xmtc.run.config import RunConfig, Seed
from xmtc.run.copies import RunCopies
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.state import check_resume, read_run
from xmtc.run.status import seconds_of
from xmtc.track.console import print_line
from xmtc.track.tracker import read_metrics

Train = Callable[[RunConfig], Path]

SET_BY_SWEEP = ("name", "seed", "track.directory", "data.corpus")


@config
class SweepConfig:
    """What a grid file says."""

    grid: Annotated[dict[str, list[Any]], Field(min_length=1)]
    """Configuration keys, such as `finetune.optimizer.learning_rate`, each with the values to try: every combination is
    a cell."""
    seeds: Annotated[list[Seed], Field(min_length=1)] = field(default_factory=lambda: [1])
    """Each cell is trained once with each."""
    metrics: Annotated[list[str], Field(min_length=1)] = field(default_factory=lambda: ["micro_f1", "macro_f1"])
    """Of dev's `metrics.json`, compared; the first one orders the table."""

    def __post_init__(self) -> None:
        """Refuse what the sweep itself sets, keys without values, and seeds given twice."""
        for key, values in self.grid.items():
            held = next((own for own in SET_BY_SWEEP if f"{own}.".startswith(f"{key}.")), None)
            if held == key:
                raise ValueError(f"grid: {key} is set by the sweep; take it out (seeds go under `seeds`)")
            if held:
                raise ValueError(f"grid: {key} holds {held}, which the sweep sets; give its other keys one by one")
            if not values:
                raise ValueError(f"grid: {key} has no values")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {self.seeds}: one is given twice; take it out")


@dataclass(frozen=True)
class Cell:
    """One combination of values, with a run for each seed."""

    values: Mapping[str, Any]
    runs: Sequence[RunConfig]


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


def sweep(config_file: Path, grid_file: Path, overrides: Sequence[str], train: Train) -> int:
    """Train every cell and seed and write `sweep.json`, `sweep.md` and `report.html`.

    A run that fails is named, and the others continue; the same command retries it.

    Args:
        config_file: what the cells have in common.
        grid_file: see `SweepConfig`.
        overrides: overrides of the configuration, for all cells.
        train: `train_run`.

    Returns:
        How many runs failed.

    Raises:
        ConfigError: grid or configuration, of any cell, is wrong; nothing is trained then.
    """
    settings, base, cells = plan(config_file, grid_file, overrides)
    runs = [run for cell in cells for run in cell.runs]
    failures = train_all(runs, base, train)
    for run in runs:
        RunCopies(run).fetch_run()  # at a URI, another machine may have trained it
    rows = [summarise(cell, settings.metrics, failures) for cell in cells]
    comparison = RunCopies(replace(base, name=f"{base.name}-sweep"))
    write_comparison(comparison.paths.root, rows, settings)
    comparison.publish_run()
    print((comparison.paths.root / "sweep.md").read_text(encoding="utf-8"))
    print(f"comparison: {comparison.paths.root / 'sweep.md'}")
    return sum(len(row.failed) for row in rows)


def plan(config_file: Path, grid_file: Path, overrides: Sequence[str]) -> tuple[SweepConfig, RunConfig, list[Cell]]:
    """Read the grid, the configuration that its cells have in common, and the cells.

    Raises:
        ConfigError: see `sweep`.
    """
    settings, base = load_config(SweepConfig, grid_file), load_config(RunConfig, config_file, overrides)
    if both := next((one for one in overrides if one.partition("=")[0] in ("seed", *settings.grid)), None):
        raise ConfigError(f"{both}: {grid_file} sets this key in every run; change it there")
    tree = read_tree(SweepConfig, grid_file).value
    cells: dict[str, Cell] = {}
    for chosen in combinations({key: values.value for key, values in tree["grid"].value.items()}):
        values = {key: node.plain() for key, node in chosen.items()}
        try:
            cell = Cell(values, make_runs(config_file, overrides, base, chosen, settings.seeds))
            check(cell.runs[0])
        except ConfigError as error:
            raise ConfigError(f"{grid_file}: with {words_of(values)}: {error}") from None
        first = cell.runs[0]
        nameless = config_hash(replace(first, name="-", data=replace(first.data, corpus="-")))
        if nameless in cells:
            same = words_of(cells[nameless].values)
            raise ConfigError(f"{grid_file}: {same} and {words_of(values)} are the same configuration; take one out")
        cells[nameless] = cell
    for run in (run for cell in cells.values() for run in cell.runs):
        check_resume(RunPaths.of(run).root, run, run.track.resume)
    for metric in tree["metrics"].value if "metrics" in tree else ():
        _check_metric(metric, [cell.runs[0].data.task for cell in cells.values()])
    return settings, base, list(cells.values())


def _check_metric(metric: Node, tasks: Sequence[str]) -> None:
    for task in tasks:
        known = [found.name for found in metrics_of(task) if found.higher_is_better is not None]
        if metric.value not in known:
            raise ConfigError(
                f"{metric.place}: metrics: {shown(metric.value)}: no metric that compares {task} runs; "
                f"{suggestion(metric.value, known)}known: {', '.join(known)}"
            )


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Find every choice of one value per key; the last key changes fastest."""
    return (dict(zip(grid, chosen, strict=True)) for chosen in product(*grid.values()))


def make_runs(
    config_file: Path, overrides: Sequence[str], base: RunConfig, chosen: Mapping[str, Node], seeds: Sequence[int]
) -> list[RunConfig]:
    """Make the runs of a cell, named by a hash of its values, so that a grid can grow without renaming trained runs.

    A cell that changes how documents are prepared, or with an encoder of another tokenizer, gets a separate corpus.
    """
    mark = config_hash({key: node.plain() for key, node in chosen.items()})[:8]
    outer_first = dict(sorted(chosen.items(), key=lambda item: item[0].count(".")))  # a section replaces its keys
    names = [[*overrides, f"seed={seed}", f"name={base.name}-{mark}-s{seed}"] for seed in seeds]
    runs = [load_config(RunConfig, config_file, own, outer_first) for own in names]
    words = [one.data.tokenizer or one.model.encoder.tokenizer_name for one in (base, runs[0])]
    if words[0] == words[1] and not any(key.startswith("data.") for key in chosen):
        return runs
    corpus = f"{base.data.corpus.rstrip('/')}-{mark}"
    return [replace(run, data=replace(run.data, corpus=corpus)) for run in runs]


def train_all(runs: Sequence[RunConfig], base: RunConfig, train: Train) -> dict[str, str]:
    """Train runs: side by side on the cluster that `base` joins, as many as it holds; otherwise one after the other.

    Returns:
        Name of each run that failed → why.
    """
    attempt = functools.partial(_attempt, train)
    outcomes = _side_by_side(attempt, runs, base) if base.distributed.joins_cluster else map(attempt, runs)
    failures = {}
    for name, why in outcomes:
        print_line(f"sweep: {name} {f'failed: {why}' if why else 'done'}")
        if why:
            failures[name] = why
    return failures


def _attempt(train: Train, run: RunConfig) -> tuple[str, str | None]:
    """Train a run. Return its name, and why it failed; also a full memory or disk must not stop the other runs."""
    print_line(f"sweep: {run.name} begins")
    try:
        train(run)
    except (XmtcError, MemoryError, OSError, RuntimeError) as error:
        if not isinstance(error, XmtcError):
            traceback.print_exc()
        return run.name, f"{type(error).__name__}: {error}"
    return run.name, None


def _side_by_side(
    attempt: Callable[[RunConfig], tuple[str, str | None]], runs: Sequence[RunConfig], base: RunConfig
) -> Iterator[tuple[str, str | None]]:
    """Run each run as a Ray task; Ray repeats the task of a lost machine, and the run continues from its checkpoint."""
    from xmtc.cluster.connection import join
    from xmtc.cluster.tasks import TaskResources, map_tasks

    join(base.distributed.address)
    for run in {run.data.corpus: run for run in runs}.values():
        with suppress(XmtcError):  # its runs meet it again, and are named
            prepare_stage(run)
    each = [(max(1, run.distributed.max_workers), run.distributed) for run in runs]  # the grid may change them
    needs = TaskResources(
        cpus=max(workers * one.cpus_per_worker for workers, one in each),
        gpus=max(workers * one.gpus_per_worker for workers, one in each),
        reserved=all(one.max_workers == 0 for _, one in each),
    )
    return map_tasks(
        attempt, runs, needs, lost=lambda run, error: (run.name, f"its process died: {error}".splitlines()[0])
    )


def words_of(values: Mapping[str, Any]) -> str:
    """Describe the values of a cell."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


def summarise(cell: Cell, wanted: Sequence[str], failures: Mapping[str, str]) -> CellResult:
    """Compute means and costs of the finished runs of a cell.

    Args:
        cell: its runs have been tried.
        wanted: metrics; one that a finished run does not have is left out.
        failures: name of each run that failed → why.
    """
    runs = [RunPaths.of(run) for run in cell.runs if run.name not in failures]
    found = [_metrics(paths) for paths in runs]
    means, intervals = {}, {}
    for key in wanted:
        numbers = [metrics[key] for metrics in found if metrics.get(key) is not None]
        if not numbers or len(numbers) < len(found):
            continue
        means[key] = statistics.mean(numbers)
        of_documents = found[0].get("ci95", {}).get(key) if len(cell.runs) == 1 else None
        intervals[key] = student_interval(numbers) or of_documents or []
    seconds = [s for s in map(train_seconds, runs) if s is not None]
    return CellResult(
        values=cell.values,
        runs=[str(paths.root) for paths in runs],
        metrics=means,
        ci95=intervals,
        train_s=statistics.mean(seconds) if seconds else None,
        failed={run.seed: failures[run.name] for run in cell.runs if run.name in failures},
    )


def student_interval(numbers: Sequence[float]) -> list[float] | None:
    """Compute the 95 % interval of the mean by Student's t; None for fewer than two numbers."""
    if len(numbers) < 2:
        return None
    half = stats.t.ppf(0.975, len(numbers) - 1) * stats.sem(numbers)
    return [float(statistics.mean(numbers) + sign * half) for sign in (-1, 1)]


def write_comparison(output: Path, rows: Sequence[CellResult], settings: SweepConfig) -> None:
    """Write the table as JSON and Markdown, best cell first, and a report of the best cells' first runs."""
    first = settings.metrics[0]
    sign = -1 if next(metric.higher_is_better for metric in all_metrics() if metric.name == first) else 1
    rows = sorted(rows, key=lambda row: sign * row.metrics[first] if first in row.metrics else math.inf)
    output.mkdir(parents=True, exist_ok=True)
    content = {"seeds": settings.seeds, "metrics": settings.metrics, "cells": [asdict(row) for row in rows]}
    write_json(output / "sweep.json", content, indent=2)
    write_text(output / "sweep.md", _markdown(rows, settings))
    best = [Path(row.runs[0]) for row in rows if row.runs][:MAX_RUNS]
    if best:
        report_runs(best, output / layout.REPORT, "dev")


def _markdown(rows: Sequence[CellResult], settings: SweepConfig) -> str:
    heads = [*settings.grid, *settings.metrics, "training, s", "runs", "first run"]
    table = markdown_table(heads, [_cells(row, settings.metrics) for row in rows])
    seeds = "over seeds (Student's t)" if len(settings.seeds) > 1 else "over documents (bootstrap), of one seed"
    lines = [table, f"Metrics of dev in percent, means with 95 % intervals {seeds}."]
    for row in rows:
        lines += [f"Failed: {words_of(row.values)}, seed {seed}: {why}" for seed, why in row.failed.items()]
    return "\n".join(lines) + "\n"


def _cells(row: CellResult, metrics: Sequence[str]) -> list[str]:
    shown = [json.dumps(value) for value in row.values.values()]
    shown += [percent(row.metrics.get(key), row.ci95.get(key) or None) for key in metrics]
    shown.append("–" if row.train_s is None else f"{row.train_s:,.0f}")
    first = Path(row.runs[0]).name if row.runs else "–"  # as the report calls the cell
    return [*shown, f"{len(row.runs)} of {len(row.runs) + len(row.failed)}", first]


def _metrics(paths: RunPaths) -> dict[str, Any]:
    """Read the metrics of dev: test must stay unseen when a cell is chosen."""
    with reading(paths.metrics("dev"), fix="evaluate the run again"):
        return read_json(paths.metrics("dev"))


def train_seconds(paths: RunPaths) -> float | None:
    """Return the seconds of fine-tuning, see `seconds_of`; None before it is done, or without a head."""
    return seconds_of(Stage.FINETUNE, read_run(paths.root), read_metrics(paths.metrics_log))
