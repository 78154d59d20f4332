"""The `plant` section of a configuration. Importing it imports no numerical library."""

from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config, keys_beyond_defaults
from xmtc.losses.config import LambdaRankConfig, RankingLossConfig
from xmtc.models.heads.config import PlantedPart
from xmtc.training.config import TrainingConfig


@config
class PlantConfig(TrainingConfig):
    """What the head starts from (docs/explanation/method.md). A head says which of its parts can be planted: label
    attention all of them, a flat head its rows. The encoder is frozen. Only with `method: ranking` do `epochs`,
    `batch_size`, `optimizer`, `label_optimizer`, `patience`, `callbacks`, `loss` and `sampled_labels` apply.
    """

    method: Literal["closed_form", "ranking"] = "closed_form"
    """How the attention is planted: `closed_form` by least squares in one pass, `ranking` by the paper's stage 1."""
    parts: tuple[PlantedPart, ...] | None = None
    """What is planted. `attention`: queries and keys that find a label's tokens. `values`: the directions that predict
    labels best. `rows`: discriminant analysis of the labels' documents; leave it out where most labels have one
    document (docs/benchmarks/shortlist.md). Default: all that the head has; over random weights, nothing but rows
    in closed form (docs/benchmarks/planting.md)."""
    choose_documents: Annotated[int, Field(ge=0)] = 5_000
    """With `closed_form`, attention, values, both or neither are planted besides rows, whichever has the best macro-F1
    on dev before training; trials read so many training documents. 0: all `parts` are planted."""
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of passes of stage 1, only with `method: ranking`. Default: 10."""
    patience: Annotated[int, Field(ge=0)] = 2
    """Stop after this many epochs without a better dev nDCG@10; long training overfits corpus statistics. 0: never."""
    loss: RankingLossConfig = LambdaRankConfig()
    """Learning-to-rank loss."""
    sampled_labels: Annotated[int, Field(ge=1)] = 128
    """Number of labels whose attention trains in a micro-batch: its positives and uniform ones."""

    def __post_init__(self) -> None:
        """Refuse settings of epochs without epochs."""
        super().__post_init__()
        found = ", ".join(
            keys_beyond_defaults(self, ("epochs", "callbacks", "label_optimizer"))
        )
        if found and self.method == "closed_form":
            raise ValueError(
                f"{found}: no effect with method: closed_form; set method: ranking, or leave out {found}"
            )
