"""Memory and speed of GPUs, for estimates of runs on other machines.

Rates are the vendors' figures for dense matrix products. Cards without BF16 (V100, T4) have their FP16 rate. If a card
has variants with different memory, the plain name means the smaller one.
"""

from dataclasses import dataclass, replace

import torch

from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.settings import Precision

_GIB = 2**30
_RESOURCE = "accelerator_type:"


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        name: name in Ray's `accelerator_type`, or part of PyTorch's name.
        gib: memory in GiB.
        bf16_tflops, fp32_tflops: peak rate of dense matrix products; PyTorch computes fp32 without TF32.
    """

    name: str
    gib: float
    bf16_tflops: float
    fp32_tflops: float

    def tflops(self, precision: Precision) -> float:
        """Return the peak rate at a precision."""
        return self.bf16_tflops if precision == "bf16" else self.fp32_tflops


CARDS = (
    Card("B200", 180, 2250, 75),
    Card("H200", 141, 989, 67),
    Card("H100 PCIe", 80, 756, 51),
    Card("H100", 80, 989, 67),
    Card("A100-80G", 80, 312, 19.5),
    Card("A100", 40, 312, 19.5),
    Card("L40S", 48, 362, 91.6),
    Card("A10G", 24, 70, 31.2),
    Card("A10", 24, 125, 31.2),
    Card("L4", 24, 121, 30.3),
    Card("RTX 4090", 24, 165, 82.6),
    Card("RTX 3090", 24, 71, 35.6),
    Card("V100", 16, 125, 15.7),
    Card("T4", 16, 65, 8.1),
)
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
        return None if card is None else replace(card, name=here.name, gib=here.total_memory / _GIB)
    return None


def find(name: str) -> Card | None:
    """Find the card with a name such as `A100` or `NVIDIA A100-SXM4-40GB`; None if the table does not have it."""
    words = name.lower()
    return next((card for card in CARDS if card.name.lower() in words), None)
