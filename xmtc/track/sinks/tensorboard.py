"""TensorBoard event files under `<run>/tensorboard/<stage>`."""

from collections.abc import Mapping
from typing import Any

from xmtc.track.sinks.base import RunInfo, portable_name, require

_FLUSH_SECONDS = 30


class TensorBoardSink:
    """One writer a stage; a resumed stage hides the events beyond the resumed step."""

    def __init__(self, run: RunInfo):
        self._directory = run.directory / "tensorboard"
        self._module = require("tensorboardX", "tensorboard")
        self._writers: dict[str, Any] = {}

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Open the stage's event file."""
        self._writers[stage] = self._module.SummaryWriter(
            logdir=str(self._directory / stage),
            purge_step=resumed_step + 1 if resumed_step else None,
            flush_secs=_FLUSH_SECONDS,
        )

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in metrics.items():
            self._writers[stage].add_scalar(portable_name(name), value, global_step=step)

    def close(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()
