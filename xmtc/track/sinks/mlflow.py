"""MLflow, on a tracking server or in a local store."""

from collections.abc import Mapping
from typing import Any, Literal

from xmtc.config.base import config
from xmtc.track.sinks.base import RunInfo, portable_name, require

_RUN_ID_FILE = "mlflow_run_id"


@config
class MlflowConfig:
    """An MLflow run; needs `pip install 'xmtc[track]'`."""

    kind: Literal["mlflow"] = "mlflow"
    """Selects MLflow."""

    tracking_uri: str
    """The server or store, such as `http://mlflow.example:5000` or `sqlite:///mlflow.db`."""

    experiment: str = "xmtc"
    """The experiment that the run belongs to; made when it does not exist."""

    def open(self, run: RunInfo) -> "MlflowSink":
        """The sink of a run."""
        return MlflowSink(self, run)


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
        for key, value in _flat(run.settings):
            self._client.log_param(run_id, key, value)
        file.write_text(run_id + "\n")
        return run_id

    def start_stage(self, stage: str, resumed_step: int) -> None:
        """Nothing to do: MLflow keeps a step with every value."""

    def log(self, stage: str, step: int, metrics: Mapping[str, float]) -> None:
        """Sends one step."""
        for name, value in metrics.items():
            self._client.log_metric(self._run_id, portable_name(f"{stage}/{name}"), value, step=step)

    def close(self) -> None:
        """Marks the run as finished."""
        self._client.set_terminated(self._run_id)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as `section.key` pairs."""
    pairs = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", str(value)))
    return pairs
