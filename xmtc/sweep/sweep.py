"""The whole sweep: plan, train, compare."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xmtc.run.copies import RunCopies
from xmtc.sweep.comparison import summarise, write_comparison
from xmtc.sweep.plan import plan
from xmtc.sweep.train import Train, train_all


def sweep(
    config_file: Path, grid_file: Path, overrides: Sequence[str], train: Train
) -> int:
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
    sweep_plan = plan(config_file, grid_file, overrides)
    base = sweep_plan.base
    failures = train_all(sweep_plan.runs, base, train)
    for run in sweep_plan.runs:
        RunCopies(run).fetch_run()  # at a URI, another machine may have trained it
    metric_names = sweep_plan.settings.metrics
    results = [summarise(cell, metric_names, failures) for cell in sweep_plan.cells]
    comparison = RunCopies(replace(base, name=f"{base.name}-sweep"))
    write_comparison(comparison.paths.root, results, sweep_plan.settings)
    comparison.publish_run()
    table = comparison.paths.root / "sweep.md"
    print(table.read_text(encoding="utf-8"))
    print(f"comparison: {table}")
    return sum(len(result.failed) for result in results)
