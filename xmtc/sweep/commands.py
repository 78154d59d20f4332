"""`xmtc sweep`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.family import command
from xmtc.commands.options import ConfigFile, Overrides


@command(panel="Train")
def sweep(
    config: ConfigFile,
    grid: Annotated[
        Path,
        typer.Argument(
            metavar="GRID", help="YAML file with grid, draws, seeds and metrics."
        ),
    ],
    overrides: Overrides = None,
) -> None:
    """Train a grid of configurations and seeds, and compare them. Skips finished runs."""
    from xmtc.pipeline import train_run
    from xmtc.sweep.sweep import sweep as sweep_grid

    failed = sweep_grid(config, grid, overrides or [], train_run)
    raise typer.Exit(1 if failed else 0)
