"""The names of a run's stages, as in `run.json` and `metrics.jsonl`."""

from enum import StrEnum


class Stage(StrEnum):
    """The stages of a run, in the order in which they run."""

    PREPARE = "prepare"
    MIG = "mig"
    SCORERS = "scorers"
    PLANT = "plant"
    FINETUNE = "finetune"
    EVALUATE = "evaluate"
    REPORT = "report"
