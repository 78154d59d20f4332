"""Weights & Biases, online or into a local folder."""

from collections.abc import Mapping
from typing import Any

from xmtc.track.sinks.base import RunInfo, require
from xmtc.track.sinks.config import WandbConfig


class WandbSink:
    """Metrics are named `<stage>/<metric>`, each stage with its own step axis."""

    def __init__(self, settings: WandbConfig, run: RunInfo):
        self._run: Any = require("wandb", settings.kind).init(
            project=settings.project,
            mode=settings.mode,
            dir=str(run.directory),
            name=run.name,
            id=run.name,
            resume="allow",
            config=dict(run.settings),
        )

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Give the stage a separate step axis."""
        self._run.define_metric(f"{stage}/step")
        self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step."""
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in metrics.items()}})

    def close(self) -> None:
        """End the run."""
        self._run.finish()
