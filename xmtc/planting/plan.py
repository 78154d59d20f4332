"""Which parts of a head are planted, who chooses among them, and how many documents that reads."""

from dataclasses import dataclass

from xmtc.models.config import ModelConfig
from xmtc.models.heads.config import PlantedPart
from xmtc.planting.config import PlantConfig
from xmtc.training.config import FinetuneConfig

_DEFAULT_RANKING_EPOCHS = 10  # those of the PLANT paper


@dataclass(frozen=True)
class PlantingPlan:
    """What is planted in a run, resolved once from its configuration with `planting_plan`.

    Attributes:
        parts: the parts of the head that are planted before stage 2; empty if nothing is.
        projections: those of them, other than rows, that are planted in closed form.
        ranking_epochs: most epochs of stage 1, which trains the attention instead; 0 if it is not trained.
        trial_documents: number of training documents from which rows are planted for each trial, in which dev chooses
            among `projections`; 0 if all of them are planted without a choice.
        keeps_shared: whether the tensors that all labels share stay as they are, because training continues from a
            model. Only queries and rows of new labels are then planted.
    """

    parts: frozenset[PlantedPart]
    projections: frozenset[PlantedPart]
    ranking_epochs: int
    trial_documents: int
    keeps_shared: bool

    @property
    def ranks_tokens(self) -> bool:
        """Whether planting reads the ranking of each label's tokens."""
        return "attention" in self.parts

    @property
    def plants_rows(self) -> bool:
        """Whether classifier rows are planted."""
        return "rows" in self.parts

    def documents(self, train: int) -> int:
        """Count the documents that planting reads, besides those of the epochs of stage 1.

        Args:
            train: number of training documents.
        """
        read = 0
        if self.projections:
            read += train
        if self.plants_rows:
            read += train
        if self.trial_documents:
            trials = 2 ** len(self.projections)  # every subset
            read += trials * min(train, self.trial_documents)
        return read


def planting_plan(model: ModelConfig, plant: PlantConfig) -> PlantingPlan:
    """Resolve what is planted from the sections `model` and `plant`."""
    continues = model.init_from is not None
    solved: frozenset[PlantedPart] = frozenset({"attention", "values"})
    ranking_epochs = _ranking_epochs(plant)
    if ranking_epochs:
        solved = frozenset({"values"})
    parts = _parts(model, plant, solved)
    projections = parts & solved
    if continues:
        projections -= {"values"}
    chooses = (
        plant.method == "closed_form"
        and not continues
        and bool(projections)
        and "rows" in parts
    )
    return PlantingPlan(
        parts=parts,
        projections=projections,
        ranking_epochs=ranking_epochs,
        trial_documents=plant.choose_documents if chooses else 0,
        keeps_shared=continues,
    )


def check_planting(
    model: ModelConfig, plant: PlantConfig, finetune: FinetuneConfig
) -> None:
    """Refuse a stage 1 that cannot train.

    Raises:
        ValueError: the head has no attention by label, or stage 1 has a row-wise optimizer where the loss of stage 2
            needs the label tables whole on every worker.
    """
    if _ranking_epochs(plant) and "attention" not in model.head.plantable:
        raise ValueError(
            "plant.method: ranking needs a head with attention by label, and model.head.kind is "
            f"{model.head.kind}; leave plant.method out"
        )
    refusal = finetune.loss.refuses_label_shards
    if plant.label_optimizer and refusal:
        raise ValueError(f"plant.label_optimizer: {refusal}; leave it out")


def _parts(
    model: ModelConfig, plant: PlantConfig, solved: frozenset[PlantedPart]
) -> frozenset[PlantedPart]:
    """Select the parts that the settings ask for, of those that the head has and nothing else initialises."""
    plantable = model.head.plantable
    if plant.parts is not None:
        parts = plantable.intersection(plant.parts)
    elif model.encoder.pretrained or model.init_from:
        parts = plantable
    else:  # what is solved for random states does not fit those that the encoder learns
        parts = plantable - solved
    if model.label_text and not model.head.attends_by_label:
        parts -= {"rows"}  # they start from the labels' names
    return parts


def _ranking_epochs(plant: PlantConfig) -> int:
    if plant.method != "ranking":
        return 0
    if plant.parts is not None and "attention" not in plant.parts:
        return 0
    return plant.epochs or _DEFAULT_RANKING_EPOCHS
