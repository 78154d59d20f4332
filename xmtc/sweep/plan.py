"""Which runs a grid file becomes. Everything is checked here, before the first run is trained."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from xmtc.config.load import load_config, read_tree
from xmtc.config.plain import config_hash
from xmtc.config.problems import shown, suggestion
from xmtc.config.yaml_tree import Node
from xmtc.errors import ConfigError
from xmtc.evaluate.metrics import metrics_of
from xmtc.preflight.configuration import check
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.run.state import check_resume
from xmtc.sweep.config import SweepConfig

Values = Mapping[str, Node]
"""Values of configuration keys, with the place of each in the grid file."""


@dataclass(frozen=True)
class Cell:
    """One combination of values, with a run for each seed."""

    values: Mapping[str, Any]
    runs: Sequence[RunConfig]


@dataclass(frozen=True)
class Plan:
    """What a sweep trains.

    Attributes:
        settings: what the grid file says.
        base: the configuration that all runs have in common.
        cells: in the order of the grid.
    """

    settings: SweepConfig
    base: RunConfig
    cells: Sequence[Cell]

    @property
    def runs(self) -> list[RunConfig]:
        """The runs of all cells."""
        return [run for cell in self.cells for run in cell.runs]


def plan(config_file: Path, grid_file: Path, overrides: Sequence[str]) -> Plan:
    """Read the grid and the configuration that its cells have in common, and make the cells.

    Raises:
        ConfigError: grid or configuration, of any cell, is wrong, two cells of a grid are the same configuration, or
            a run that is there has another configuration.
    """
    settings = load_config(SweepConfig, grid_file)
    base = load_config(RunConfig, config_file, overrides)
    for override in overrides:
        if override.partition("=")[0] in ("seed", *settings.keys):
            raise ConfigError(
                f"{override}: {grid_file} sets this key in every run; change it there"
            )
    tree = read_tree(SweepConfig, grid_file).value
    cells_by_hash: dict[str, Cell] = {}
    for nodes in combinations(settings, tree):
        values = {key: node.plain() for key, node in nodes.items()}
        cell = _make_cell(
            config_file, grid_file, overrides, base, nodes, settings.seeds
        )
        same_cell = cells_by_hash.setdefault(_hash_without_name(cell.runs[0]), cell)
        if same_cell is not cell and not settings.draw:
            raise ConfigError(
                f"{grid_file}: {words_of(same_cell.values)} and {words_of(values)} are the same configuration; "
                "take one out"
            )
    cells = list(cells_by_hash.values())
    sweep_plan = Plan(settings, base, cells)
    for run in sweep_plan.runs:
        check_resume(RunPaths.of(run).root, run, run.track.resume)
    if "metrics" in tree:
        tasks = [cell.runs[0].data.task for cell in cells]
        for metric in tree["metrics"].value:
            _check_metric(metric, tasks)
    return sweep_plan


def combinations(
    settings: SweepConfig, tree: Mapping[str, Node]
) -> Iterator[dict[str, Node]]:
    """Find every choice of one value per key of the grid, each with every draw; the last key changes fastest.

    Args:
        settings: what the grid file says.
        tree: the same as a tree, whose nodes know their places.
    """
    grid = {key: tree["grid"].value[key].value for key in settings.grid}
    draws = range(settings.draws) if settings.draw else [0]
    for chosen in product(*grid.values()):
        for index in draws:
            drawn = {
                key: _drawn(settings, tree["draw"].value[key], key, index)
                for key in settings.draw
            }
            yield {**dict(zip(grid, chosen, strict=True)), **drawn}


def _drawn(settings: SweepConfig, node: Node, key: str, index: int) -> Node:
    """Draw a value of a key; values of a choice keep their place in the file."""
    draw = settings.draw[key]
    place = draw.place(key, index)
    if draw.choice is None:
        return Node(draw.number(place), node.place)
    choices = node.value["choice"].value
    return choices[int(place * len(choices))]


def _make_cell(
    config_file: Path,
    grid_file: Path,
    overrides: Sequence[str],
    base: RunConfig,
    nodes: Values,
    seeds: Sequence[int],
) -> Cell:
    """Make a cell, and check the first of its runs: the others differ by their seeds only."""
    values = {key: node.plain() for key, node in nodes.items()}
    try:
        runs = make_runs(config_file, overrides, base, nodes, seeds)
        check(runs[0])
    except ConfigError as error:
        raise ConfigError(f"{grid_file}: with {words_of(values)}: {error}") from None
    return Cell(values, runs)


def _hash_without_name(run: RunConfig) -> str:
    """Identify a run's settings, without the name and the corpus that a sweep gives it."""
    return config_hash(replace(run, name="-", data=replace(run.data, corpus="-")))


def _check_metric(metric: Node, tasks: Sequence[str]) -> None:
    """Refuse a metric that runs of one of the tasks do not have, or that does not say which run is better."""
    for task in tasks:
        names = [
            candidate.name
            for candidate in metrics_of(task)
            if candidate.higher_is_better is not None
        ]
        if metric.value not in names:
            raise ConfigError(
                f"{metric.place}: metrics: {shown(metric.value)}: no metric that compares {task} runs; "
                f"{suggestion(metric.value, names)}known: {', '.join(names)}"
            )


def make_runs(
    config_file: Path,
    overrides: Sequence[str],
    base: RunConfig,
    nodes: Values,
    seeds: Sequence[int],
) -> list[RunConfig]:
    """Make the runs of a cell, named by a hash of its values, so that a grid can grow without renaming trained runs.

    A cell that changes how documents are prepared, or with an encoder of another tokenizer, gets a separate corpus.

    Args:
        config_file: what the cells have in common.
        overrides: overrides of it, for all cells.
        base: the configuration of both.
        nodes: the values of the cell.
        seeds: one run for each.
    """
    mark = config_hash({key: node.plain() for key, node in nodes.items()})[:8]
    # A section replaces the keys in it, so that it is applied before them.
    outer_first = dict(sorted(nodes.items(), key=lambda item: item[0].count(".")))
    runs = []
    for seed in seeds:
        own_overrides = [*overrides, f"seed={seed}", f"name={base.name}-{mark}-s{seed}"]
        runs.append(load_config(RunConfig, config_file, own_overrides, outer_first))
    prepares_differently = any(key.startswith("data.") for key in nodes)
    if not prepares_differently and _tokenizer(runs[0]) == _tokenizer(base):
        return runs
    corpus = f"{base.data.corpus.rstrip('/')}-{mark}"
    return [replace(run, data=replace(run.data, corpus=corpus)) for run in runs]


def _tokenizer(run: RunConfig) -> object:
    """Identify the tokenizer of a run."""
    return run.data.tokenizer or run.model.encoder.tokenizer_name


def words_of(values: Mapping[str, Any]) -> str:
    """Describe the values of a cell."""
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
