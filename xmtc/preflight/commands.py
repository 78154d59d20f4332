"""`xmtc doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.arguments import load_run
from xmtc.commands.family import command
from xmtc.commands.options import Overrides
from xmtc.errors import ConfigError


@command(panel="Train")
def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Check what this configuration needs."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Check this machine: print what works, and what a configuration needs that is missing."""
    from xmtc.preflight.doctor import run_doctor

    if overrides and not config:
        raise ConfigError(
            f"{overrides[0]}: this changes a configuration; name its file with --config"
        )
    run = None if config is None else load_run(config, overrides, print_config=False)
    raise typer.Exit(run_doctor(run))
