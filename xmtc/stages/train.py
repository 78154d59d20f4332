"""Run the training loop of a stage with this run's checkpoints, metrics and callbacks."""

from collections.abc import Sequence

import numpy as np

from xmtc.config.plain import to_plain
from xmtc.data.sampler import Sampler
from xmtc.run.directory import Stage
from xmtc.stages.worker import Worker
from xmtc.track.tracker import Tracker
from xmtc.training.callbacks.base import StageContext
from xmtc.training.checkpoint import CheckpointStore
from xmtc.training.config import TrainingConfig
from xmtc.training.loop import Loop, LoopServices
from xmtc.training.objective import Objective, Phase, StageSettings
from xmtc.training.weights import BestWeights


def train(
    worker: Worker,
    stage: Stage,
    objective: Objective,
    phases: Sequence[Phase],
    settings: TrainingConfig,
    metric: str,
) -> None:
    """Run the loop over `phases`, starting from the newest checkpoint if there is one.

    Args:
        worker: worker of this rank.
        stage: stage that trains.
        objective: computes loss and dev metrics.
        phases: phases, in order.
        settings: settings of the stage.
        metric: dev metric that picks the best epoch.
    """
    config, paths, strategy = worker.config, worker.paths, worker.strategy
    longest = (
        worker.encoder_use.trained_length
        if stage is Stage.FINETUNE
        else config.data.max_length
    )
    sampler = Sampler(
        np.minimum(worker.train.lengths, longest),
        batch_size=settings.batch_size,
        tokens_per_micro_batch=settings.tokens_per_micro_batch,
        seed=config.seed,
        rank=strategy.rank,
        world_size=strategy.world_size,
    )
    context = StageContext(stage.value, paths.root, strategy.rank, strategy.device)
    trained = [
        p for phase in phases for group in phase.groups() for p in group.parameters
    ]
    about = StageSettings(
        stage.value,
        settings.optimizer,
        metric,
        settings.patience,
        config.seed,
        worker.inputs(stage),
        config.track,
    )
    with Tracker(
        paths.root, config.track, strategy.rank, settings=to_plain(config)
    ) as tracker:
        services = LoopServices(
            strategy,
            CheckpointStore(
                paths.checkpoints_of(stage), config.track.keep_last, paths.mirror
            ),
            tracker,
            BestWeights(paths.best_of(stage), objective, trained),
            [callback.build(context) for callback in settings.callbacks],
        )
        Loop(objective, sampler, phases, about, services).run()
