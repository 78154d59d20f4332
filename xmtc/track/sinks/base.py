"""What a sink is: another destination for the metrics of a run, in addition to metrics.jsonl."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from xmtc.errors import ConfigError


@dataclass(frozen=True)
class RunInfo:
    """What a sink may know of the run.

    Attributes:
        directory: the run directory.
        settings: the resolved configuration as plain data; empty if there is none.
    """

    directory: Path
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run's name: that of its directory."""
        return self.directory.name


class Sink(Protocol):
    """Receives the metrics of rank 0. Steps count from 1 in every stage, so a sink keeps the stages apart."""

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Begin a stage, or continue it after `resumed_step`."""

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Log the finite metrics of one step."""

    def close(self) -> None:
        """Write out what is buffered."""


def portable_name(metric: str) -> str:
    """Convert a metric's name to one that every sink accepts: `dev/p@5` to `dev/p_at_5`."""
    return metric.replace("@", "_at_")


def require(module: str, kind: str) -> ModuleType:
    """Import an optional package when a sink asks for it, and only then.

    Raises:
        ConfigError: it is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"track.sinks: {kind}: needs the package {module}, which is not installed; "
            f"run pip install 'xmtc[track]', or take the sink out"
        ) from error
