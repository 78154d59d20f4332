"""Losses, one a file; each returns a sum and what it sums over."""

from typing import Annotated

from pydantic import Discriminator

from xmtc.losses.asymmetric_focal import AsymmetricFocalConfig
from xmtc.losses.base import LossOutput, Targets
from xmtc.losses.binary_cross_entropy import BinaryCrossEntropyConfig
from xmtc.losses.cross_entropy import CrossEntropyConfig

__all__ = ["LossConfig", "LossOutput", "Targets"]

LossConfig = Annotated[AsymmetricFocalConfig | BinaryCrossEntropyConfig | CrossEntropyConfig, Discriminator("kind")]
