"""The settings of further places that the metrics of a run are written to."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator

from xmtc.config.base import config

if TYPE_CHECKING:
    from xmtc.track.sinks.base import RunInfo
    from xmtc.track.sinks.mlflow import MlflowSink
    from xmtc.track.sinks.tensorboard import TensorBoardSink
    from xmtc.track.sinks.wandb import WandbSink


@config
class TensorBoardConfig:
    """Event files for TensorBoard, one folder per stage, below `<run>/tensorboard`."""

    kind: Literal["tensorboard"] = "tensorboard"
    """Selects TensorBoard."""

    def open(self, run: "RunInfo") -> "TensorBoardSink":
        """Build the sink of a run."""
        from xmtc.track.sinks.tensorboard import TensorBoardSink

        return TensorBoardSink(run)


@config
class WandbConfig:
    """A Weights & Biases run; needs `pip install 'xmtc[track]'` and, online, a login made beforehand."""

    kind: Literal["wandb"] = "wandb"
    """Selects Weights & Biases."""

    project: str = "xmtc"
    """The project that the run belongs to."""

    mode: Literal["online", "offline"] = "online"
    """Offline writes below `<run>/wandb`, for `wandb sync` later."""

    def open(self, run: "RunInfo") -> "WandbSink":
        """Build the sink of a run."""
        from xmtc.track.sinks.wandb import WandbSink

        return WandbSink(self, run)


@config
class MlflowConfig:
    """An MLflow run; needs `pip install 'xmtc[track]'`."""

    kind: Literal["mlflow"] = "mlflow"
    """Selects MLflow."""

    tracking_uri: str
    """The server or store, such as `http://mlflow.example:5000` or `sqlite:///mlflow.db`."""

    experiment: str = "xmtc"
    """The experiment that the run belongs to; created if it does not exist."""

    def open(self, run: "RunInfo") -> "MlflowSink":
        """Build the sink of a run."""
        from xmtc.track.sinks.mlflow import MlflowSink

        return MlflowSink(self, run)


SinkConfig = Annotated[TensorBoardConfig | WandbConfig | MlflowConfig, Discriminator("kind")]
