"""The `track` section: where a run writes, how it resumes, how often it saves and logs."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config
from xmtc.track.sinks import SinkConfig

METRICS_LOG = "metrics.jsonl"
"""The file in the run directory that training logs to."""
Positive = Annotated[int, Field(ge=1)]


@config
class TrackConfig:
    """Where a run writes, how it resumes, how often it saves and logs."""

    directory: str = "runs"
    """The folder of the run directories, or a URI such as `s3://bucket/runs`: the run then works in `storage.cache`."""

    resume: Literal["auto", "never", "must"] = "auto"
    """When the directory holds a run: `auto` continues, `never` refuses, `must` refuses if there is none."""

    checkpoint_every_steps: Positive | None = None
    """Optimizer steps between checkpoints; null: only by time and at the end of each epoch."""

    checkpoint_every_minutes: Annotated[float, Field(gt=0)] = 15.0
    """Minutes between checkpoints. The first one of a stage comes after a minute at most."""

    keep_last: Positive = 2
    """How many checkpoints of a stage to keep."""

    log_every_steps: Positive = 10
    """Optimizer steps between lines in `metrics.jsonl` and on the console."""

    sinks: tuple[SinkConfig, ...] = ()
    """Further places for the metrics: TensorBoard, Weights & Biases, MLflow."""
