"""A single process, without exchange."""

import torch

from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategies.settings import Precision


class SingleStrategy(ReplicatedStrategy):
    """Trains in one process."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self.rank, self.world_size = 0, 1
