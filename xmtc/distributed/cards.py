"""Known GPUs: their memory, and the rate at which they multiply matrices in bfloat16."""

from dataclasses import dataclass
from pathlib import Path

import torch

from xmtc.files import read_json


@dataclass(frozen=True)
class Card:
    """A GPU.

    Attributes:
        gib: memory in GiB.
        bf16_tflop_per_s: the rate of dense products in bfloat16 that its maker publishes; None for cards without
            instructions for them.
    """

    gib: float
    bf16_tflop_per_s: float | None


CARDS = {
    name: Card(**facts)
    for name, facts in read_json(Path(__file__).with_name("cards.json")).items()
}
"""By name, as in Ray's `accelerator_type`. A name that contains another comes first."""


def card_named(name: str) -> Card | None:
    """Find a card by a name such as `A100` or `NVIDIA A100-SXM4-40GB`; None if it is unknown."""
    for card_name, card in CARDS.items():
        if card_name.lower() in name.lower():
            return card
    return None


def rate_of_device(device: torch.device) -> float | None:
    """Return the published rate of a device in TFLOP/s; None for a CPU and for an unknown card."""
    if device.type != "cuda":
        return None
    card = card_named(torch.cuda.get_device_name(device))
    return None if card is None else card.bf16_tflop_per_s
