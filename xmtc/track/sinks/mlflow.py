"""MLflow, on a tracking server or in a local store."""

from collections.abc import Mapping
from typing import Any

from xmtc.config.plain import flattened
from xmtc.files import write_text
from xmtc.track.sinks.base import RunInfo, portable_name, require
from xmtc.track.sinks.config import MlflowConfig

_RUN_ID_FILE = "mlflow_run_id"


class MlflowSink:
    """Metrics are named `<stage>/<metric>`; made portable."""

    def __init__(self, settings: MlflowConfig, run: RunInfo):
        mlflow: Any = require("mlflow", settings.kind)
        self._client = mlflow.MlflowClient(tracking_uri=settings.tracking_uri)
        self._run_id = self._resume_or_create(settings, run)

    def _resume_or_create(self, settings: MlflowConfig, run: RunInfo) -> str:
        file = run.directory / _RUN_ID_FILE
        if file.exists():
            run_id = file.read_text().strip()
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        experiment = self._client.get_experiment_by_name(settings.experiment)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(settings.experiment)
        run_id = self._client.create_run(experiment_id, run_name=run.name).info.run_id
        for key, value in flattened(run.settings):
            self._client.log_param(run_id, key, str(value))
        write_text(file, run_id + "\n")
        return run_id

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Do nothing: MLflow keeps a step with every value."""

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Send one step."""
        for name, value in metrics.items():
            self._client.log_metric(self._run_id, portable_name(f"{stage}/{name}"), value, step=step)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run_id)
