"""Estimate memory, disk and steps of a run before it begins, without a GPU."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xmtc.estimate.memory import meta_classifier, trained_parameters, worker_memory
from xmtc.estimate.size import Size, size_of
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage
from xmtc.run.encoder_use import encoder_use

_CHECKPOINT_BYTES = 12.0
"""Of a trained number: the number itself and the optimizer's two moments, in float32."""
_WEIGHT_BYTES = 4.0


@dataclass(frozen=True)
class Estimate:
    """The result.

    Attributes:
        memory: bytes of one worker by purpose; they add up to the peak.
        disk: bytes of the whole run by purpose.
        parameters, trained: number of parameters, and the largest number that trains at once.
        steps: optimizer steps by stage.
        workers: number of workers.
        size: size of the corpus that it was estimated for.
        width: D, width of the encoder.
    """

    memory: Mapping[str, float]
    disk: Mapping[str, float]
    parameters: int
    trained: int
    steps: Mapping[str, int]
    workers: int
    size: Size
    width: int

    @property
    def peak(self) -> float:
        """Bytes of one worker."""
        return sum(self.memory.values())


def estimate(
    config: RunConfig, size: Size | None = None, workers: int | None = None
) -> Estimate:
    """Estimate memory, disk and steps of a run.

    Args:
        config: configuration of the run.
        size: size of the corpus. Default: see `size_of`.
        workers: number of workers. Default: the smallest number in `distributed.workers`, with the most memory each.

    Raises:
        ConfigError: the shape of the backbone is neither known nor in files on this machine.
    """
    size = size or size_of(config)
    world = max(1, config.distributed.min_workers if workers is None else workers)
    classifier = meta_classifier(config, size)
    width = classifier.encoder.width
    trained = sum(
        parameter.numel() for parameter in trained_parameters(config, classifier)
    )
    return Estimate(
        memory=worker_memory(config, classifier, size, world),
        disk=_disk(config, size, width, trained),
        parameters=sum(parameter.numel() for parameter in classifier.parameters()),
        trained=trained,
        steps=_steps(config, size),
        workers=world,
        size=size,
        width=width,
    )


def _disk(config: RunConfig, size: Size, width: int, trained: int) -> dict[str, float]:
    """Estimate the bytes of a run on disk by purpose, with `trained` numbers that train."""
    documents = size.train + size.dev + size.test
    bytes_of_document = 4 * size.tokens + 8 * size.words + 4 * size.labels_per_document
    checkpoints = (
        config.track.keep_last + 1
    )  # the newest is written before the oldest is removed
    return {
        "corpus": bytes_of_document * documents,
        "hidden states": hidden_states_bytes(config, size, width),
        "checkpoints": _CHECKPOINT_BYTES * trained * checkpoints
        + _WEIGHT_BYTES * trained,
    }


def hidden_states_bytes(config: RunConfig, size: Size, width: int) -> float:
    """Estimate bytes of cached hidden states of train and dev, or of their poolings if nothing else is read.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the encoder.
    """
    use = encoder_use(config)
    reads_states = config.model.head.scores or use.scores_states
    if not use.caches_states or not reads_states:
        return 0.0
    vectors = size.tokens if use.reads_tokens else FixedPoolings.count
    bytes_of_number = 2 if config.distributed.precision == "bf16" else 4
    return (size.train + size.dev) * vectors * width * bytes_of_number


def _steps(config: RunConfig, size: Size) -> dict[str, int]:
    """Count the optimizer steps of each stage that has any."""
    if not config.model.head.scores:
        return {}
    steps = {}
    planting_epochs = planting_plan(config.model, config.plant).ranking_epochs
    if planting_epochs:
        steps[str(Stage.PLANT)] = planting_epochs * math.ceil(
            size.train / config.plant.batch_size
        )
    epochs = sum(phase.epochs for phase in config.finetune.phases)
    steps[str(Stage.FINETUNE)] = epochs * math.ceil(
        size.train / config.finetune.batch_size
    )
    return steps
