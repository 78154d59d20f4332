"""The one table of stages: when each is needed, what its result depends on, what it does, and how long it takes.

`xmtc.pipeline` runs the stages in this order and skips those that are done. A stage with `work` needs the model, and
every worker runs it; the others are done by the process that starts the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xmtc.estimate.seconds import Speeds, StageSeconds
from xmtc.estimate.size import Size
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage
from xmtc.run.encoder_use import encoder_use
from xmtc.run.fingerprints import Fingerprints

if TYPE_CHECKING:
    from xmtc.stages.worker import Worker

Work = Callable[["Worker"], None]


@dataclass(frozen=True, kw_only=True)
class StageEntry:
    """A row of the table.

    Attributes:
        stage: the stage.
        is_needed: whether a run with this configuration has it.
        fingerprint: what its result depends on.
        seconds: its time on an idle machine; None for one that takes no time beside its neighbours.
        load_work: imports what a worker does, which needs PyTorch; None if no worker is needed.
        keeps_its_place: whether its workers stop when they are asked to, after what the next start needs is saved.
    """

    stage: Stage
    is_needed: Callable[[RunConfig], bool]
    fingerprint: Callable[[Fingerprints], str]
    seconds: Callable[[StageSeconds], float] | None
    load_work: Callable[[], Work] | None = None
    keeps_its_place: bool = False


def _always(_config: RunConfig) -> bool:
    return True


def _ranks_tokens(config: RunConfig) -> bool:
    return planting_plan(config.model, config.plant).ranks_tokens


def _has_scorers(config: RunConfig) -> bool:
    return bool(config.model.scorers)


def _plants(config: RunConfig) -> bool:
    return bool(planting_plan(config.model, config.plant).parts)


def _has_head(config: RunConfig) -> bool:
    return config.model.head.scores


def _refits_scorers(config: RunConfig) -> bool:
    return encoder_use(config).refits_scorers


def _load_scorers() -> Work:
    from xmtc.stages.scorers import scorers

    return scorers


def _load_plant() -> Work:
    from xmtc.stages.plant import plant

    return plant


def _load_finetune() -> Work:
    from xmtc.stages.finetune import finetune

    return finetune


def _load_refit() -> Work:
    from xmtc.stages.scorers import refit

    return refit


def _load_evaluate() -> Work:
    from xmtc.stages.evaluate import evaluate

    return evaluate


STAGES: Sequence[StageEntry] = (
    StageEntry(
        stage=Stage.PREPARE,
        is_needed=_always,
        fingerprint=Fingerprints.prepare,
        seconds=StageSeconds.prepare,
    ),
    StageEntry(
        stage=Stage.MIG,
        is_needed=_ranks_tokens,
        fingerprint=Fingerprints.mig,
        seconds=None,
    ),
    StageEntry(  # before the head, for a first result
        stage=Stage.SCORERS,
        is_needed=_has_scorers,
        fingerprint=Fingerprints.scorers,
        seconds=StageSeconds.scorers,
        load_work=_load_scorers,
    ),
    StageEntry(
        stage=Stage.PLANT,
        is_needed=_plants,
        fingerprint=Fingerprints.plant,
        seconds=StageSeconds.plant,
        load_work=_load_plant,
        keeps_its_place=True,
    ),
    StageEntry(
        stage=Stage.FINETUNE,
        is_needed=_has_head,
        fingerprint=Fingerprints.finetune,
        seconds=StageSeconds.finetune,
        load_work=_load_finetune,
        keeps_its_place=True,
    ),
    StageEntry(
        stage=Stage.REFIT,
        is_needed=_refits_scorers,
        fingerprint=Fingerprints.refit,
        seconds=StageSeconds.refit,
        load_work=_load_refit,
    ),
    StageEntry(
        stage=Stage.EVALUATE,
        is_needed=_always,
        fingerprint=Fingerprints.evaluate,
        seconds=StageSeconds.evaluate,
        load_work=_load_evaluate,
    ),
    StageEntry(
        stage=Stage.REPORT,
        is_needed=_always,
        fingerprint=Fingerprints.report,
        seconds=StageSeconds.report,
    ),
)


def needed_stages(config: RunConfig) -> list[StageEntry]:
    """List the stages of a run, in order."""
    return [entry for entry in STAGES if entry.is_needed(config)]


def entry_of(stage: Stage) -> StageEntry:
    """Find the row of a stage."""
    return next(entry for entry in STAGES if entry.stage == stage)


def stage_seconds(
    config: RunConfig, size: Size, speeds: Speeds, width: int
) -> dict[str, float]:
    """Estimate the seconds of each stage of a run on an idle machine.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        speeds: speeds of this machine.
        width: D, width of the encoder.
    """
    estimate = StageSeconds(config, size, speeds, width)
    return {
        str(entry.stage): entry.seconds(estimate)
        for entry in needed_stages(config)
        if entry.seconds is not None
    }
