"""One process, no exchange."""

from typing import Literal

import torch

from xmtc.config.base import config
from xmtc.distributed.strategies.base import Precision
from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategy import Strategy


@config
class SingleConfig:
    """One process trains alone."""

    kind: Literal["single"] = "single"

    def build(self, precision: Precision, device: torch.device) -> Strategy:
        """The strategy of this process."""
        return SingleStrategy(precision, device)


class SingleStrategy(ReplicatedStrategy):
    """A process on its own."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self.rank, self.world_size = 0, 1
