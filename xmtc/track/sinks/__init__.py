"""Further places that the metrics of a run go to."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.track.sinks.mlflow import MlflowConfig
from xmtc.track.sinks.tensorboard import TensorBoardConfig
from xmtc.track.sinks.wandb import WandbConfig

SinkConfig = Annotated[TensorBoardConfig | WandbConfig | MlflowConfig, Discriminator("kind")]
