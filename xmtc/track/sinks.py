"""Sinks: further places that the metrics of a run are written to, in addition to metrics.jsonl.

Their packages are imported when a sink is opened, and only then.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator

from xmtc.config.base import config
from xmtc.config.plain import flattened
from xmtc.files import write_text

_FLUSH_SECONDS = 30
"""How long TensorBoard's writer keeps events in memory."""
_RUN_ID_FILE = "mlflow_run_id"
_PROJECT = "xmtc"
"""Name of the experiment of MLflow, and by default of the project of Weights & Biases."""


@dataclass(frozen=True)
class RunInfo:
    """What a sink may know of the run.

    Attributes:
        directory: the run directory.
        settings: the resolved configuration as plain data; empty if there is none.
    """

    directory: Path
    settings: Mapping[str, Any]


def portable_name(metric: str) -> str:
    """Convert a metric's name to one that every sink accepts: `dev/p@5` to `dev/p_at_5`."""
    return metric.replace("@", "_at_")


class TensorBoardSink:
    """One writer a stage; a resumed stage hides the events beyond the resumed step."""

    def __init__(self, run: RunInfo):
        self._directory = run.directory / "tensorboard"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._module = import_module("tensorboardX")
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
            self._writers[stage].add_scalar(
                portable_name(name), value, global_step=step
            )

    def close(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()


class WandbSink:
    """Metrics are named `<stage>/<metric>`, each stage with its own step axis."""

    def __init__(self, settings: "WandbConfig", run: RunInfo):
        self._run: Any = import_module("wandb").init(
            project=settings.project,
            mode=settings.mode,
            dir=str(run.directory),
            name=run.directory.name,
            id=run.directory.name,
            resume="allow",
            config=dict(run.settings),
        )

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Give the stage a separate step axis."""
        self._run.define_metric(f"{stage}/step")
        self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step."""
        values = {f"{stage}/{name}": value for name, value in metrics.items()}
        self._run.log({f"{stage}/step": step, **values})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class MlflowSink:
    """Metrics are named `<stage>/<metric>`; made portable."""

    def __init__(self, settings: "MlflowConfig", run: RunInfo):
        mlflow: Any = import_module("mlflow")
        self._client = mlflow.MlflowClient(tracking_uri=settings.tracking_uri)
        self._run_id = self._resume_or_create(run)

    def _resume_or_create(self, run: RunInfo) -> str:
        file = run.directory / _RUN_ID_FILE
        if file.exists():
            run_id = file.read_text().strip()
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        experiment = self._client.get_experiment_by_name(_PROJECT)
        experiment_id = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(_PROJECT)
        )
        run_id = self._client.create_run(
            experiment_id, run_name=run.directory.name
        ).info.run_id
        for key, value in flattened(run.settings):
            self._client.log_param(run_id, key, str(value))
        write_text(file, run_id + "\n")
        return run_id

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Do nothing: MLflow keeps a step with every value."""

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step, in one request: training waits for it."""
        metric_class = import_module("mlflow.entities").Metric
        now_ms = int(time.time() * 1000)
        values: list[Any] = []
        for name, value in metrics.items():
            values.append(
                metric_class(portable_name(f"{stage}/{name}"), value, now_ms, step)
            )
        self._client.log_batch(self._run_id, metrics=values)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run_id)


@config
class TensorBoardConfig:
    """Event files for TensorBoard, one folder per stage, below `<run>/tensorboard`."""

    kind: Literal["tensorboard"] = "tensorboard"
    """Selects TensorBoard."""

    def open(self, run: RunInfo) -> "TensorBoardSink":
        """Build the sink of a run."""
        return TensorBoardSink(run)


@config
class WandbConfig:
    """A Weights & Biases run; needs `pip install 'xmtc[track]'` and, online, a login made beforehand."""

    kind: Literal["wandb"] = "wandb"
    """Selects Weights & Biases."""

    project: str = _PROJECT
    """The project that the run belongs to."""

    mode: Literal["online", "offline"] = "online"
    """Offline writes below `<run>/wandb`, for `wandb sync` later."""

    def open(self, run: RunInfo) -> "WandbSink":
        """Build the sink of a run."""
        return WandbSink(self, run)


@config
class MlflowConfig:
    """An MLflow run; needs `pip install 'xmtc[track]'`."""

    kind: Literal["mlflow"] = "mlflow"
    """Selects MLflow."""

    tracking_uri: str
    """The server or store, such as `http://mlflow.example:5000` or `sqlite:///mlflow.db`."""

    def open(self, run: RunInfo) -> "MlflowSink":
        """Build the sink of a run."""
        return MlflowSink(self, run)


SinkConfig = Annotated[
    TensorBoardConfig | WandbConfig | MlflowConfig, Discriminator("kind")
]
Sink = TensorBoardSink | WandbSink | MlflowSink
"""Receives the metrics of rank 0. Steps count from 1 in every stage, so a sink keeps the stages apart."""
