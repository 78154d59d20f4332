"""The whole configuration: one section per component, each defined next to the component."""

from typing import Annotated

from pydantic import Field

from xmtc.config.base import config
from xmtc.data.config import DataConfig
from xmtc.distributed.config import DistributedConfig
from xmtc.evaluate.config import EvaluateConfig
from xmtc.models.config import ModelConfig
from xmtc.planting.config import PlantConfig
from xmtc.planting.mig.config import MigConfig
from xmtc.planting.plan import check_planting
from xmtc.run.checks import (
    check_head,
    check_loss,
    check_metric,
    check_single_label,
    check_strategy,
    check_trained_weights,
)
from xmtc.storage.config import StorageConfig
from xmtc.track.config import TrackConfig
from xmtc.training.config import FinetuneConfig

RUN_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$"
"""A folder's name, on every file system."""
SEEDS = 2**32
"""Seeds are smaller than this number, as NumPy and PyTorch ask."""
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


@config
class RunConfig:
    """A training run."""

    name: Annotated[str, Field(min_length=1, pattern=RUN_NAME)]
    """The run's name; its directory is `<track.directory>/<name>`."""
    seed: Seed = 13
    """Fixes initialisation, the order of documents and every sampled choice."""
    data: DataConfig
    """Where documents come from and how they become a corpus."""
    mig: MigConfig = MigConfig()
    """How the tokens that mark each label are found and ranked."""
    model: ModelConfig = ModelConfig()
    """Encoder and head, the scorers beside them, and how all are fused."""
    plant: PlantConfig = PlantConfig()
    """What the head starts from, before it trains."""
    finetune: FinetuneConfig = FinetuneConfig()
    """How the head, and the encoder beneath it, train."""
    evaluate: EvaluateConfig = EvaluateConfig()
    """How the model is measured, and how it decides which labels a document gets."""
    distributed: DistributedConfig = DistributedConfig()
    """How many processes train, and how they share the work."""
    track: TrackConfig = TrackConfig()
    """Where the run is kept, what is logged, and when checkpoints are written."""
    storage: StorageConfig = StorageConfig()
    """Where local copies of what is at a URI are kept."""

    def __post_init__(self) -> None:
        """Refuse what no section can see alone."""
        check_planting(self.model, self.plant, self.finetune)
        check_metric(self.finetune, self.data)
        check_trained_weights(self.model, self.finetune)
        check_single_label(self.evaluate, self.data)
        check_loss(self.model, self.finetune, self.data)
        check_strategy(self.distributed, self.model)
        check_head(self.model, self.finetune)
