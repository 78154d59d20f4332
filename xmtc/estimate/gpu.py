"""GPUs: memory and speed of cards, and the hours of a run on them. Computed, not measured.

Rates are the vendors' figures for dense matrix products in BF16; cards without BF16 (V100, T4) have their FP16 rate. If
a card has variants with different memory, the plain name means the smaller one.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from xmtc.distributed.config import DistributedConfig
from xmtc.estimate.size import Size
from xmtc.files import read_json
from xmtc.run.config import RunConfig

SHARE = 0.4
"""Share of its peak rate that a card reaches in training."""
_RESOURCE = "accelerator_type:"


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        name: name in Ray's `accelerator_type`, or part of PyTorch's name.
        gib: memory in GiB.
        tflops: peak rate of dense matrix products in BF16.
    """

    name: str
    gib: float
    tflops: float


CARDS = tuple(Card(**card) for card in read_json(Path(__file__).with_name("cards.json")))
"""All known cards. A name that contains another comes first."""


def card_of(distributed: DistributedConfig) -> Card | None:
    """Find the card of a run's workers; None if they have none, or it is unknown.

    A worker that asks Ray for `accelerator_type:A100` gets that card. Otherwise, a run on this machine uses this
    machine's card, with its actual memory.
    """
    if distributed.gpus_per_worker == 0:
        return None
    for resource in distributed.resources_per_worker:
        if resource.startswith(_RESOURCE):
            return find(resource.removeprefix(_RESOURCE))
    if distributed.address is None and torch.cuda.is_available():
        here = torch.cuda.get_device_properties(0)
        card = find(here.name)
        return None if card is None else replace(card, name=here.name, gib=here.total_memory / 2**30)
    return None


def find(name: str) -> Card | None:
    """Find the card with a name such as `A100` or `NVIDIA A100-SXM4-40GB`; None if the table does not have it."""
    return next((card for card in CARDS if card.name.lower() in name.lower()), None)


def training_flops(config: RunConfig, size: Size, weights: int, layers: int) -> float:
    """Count 2 FLOP per weight and token forward, and as many for each kind of gradient and for recomputation.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        weights: number of weights in the encoder's products.
        layers: number of the encoder's layers.
    """
    forward = 2.0 * weights * size.tokens * size.train
    if not config.model.head.scores:
        return config.scores_states * forward
    backbone, plant, finetune = config.model.encoder.backbone, config.plant, config.finetune
    backward = 2 if backbone is None else 1 + (backbone.lora is None) + backbone.gradient_checkpointing
    frozen: list[tuple[bool, int]] = [(plant.cache_hidden, plant.epochs + plant.prototypes)] if config.plants else []
    passes = 0.0
    for phase in finetune.phases:
        if phase.encoder_layers == 0:
            frozen.append((finetune.cache_hidden, phase.epochs))
        else:
            share = 1.0 if phase.encoder_layers < 0 else min(1.0, phase.encoder_layers / layers)
            passes += phase.epochs * (1 + share * backward)
    passes += sum(epochs for cached, epochs in frozen if not cached) + any(cached for cached, _ in frozen)
    return passes * forward
