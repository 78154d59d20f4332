"""One process, no exchange."""

import torch

from xmtc.distributed.strategies.replicated import ReplicatedStrategy
from xmtc.distributed.strategies.settings import Precision


class SingleStrategy(ReplicatedStrategy):
    """A process on its own."""

    def __init__(self, precision: Precision, device: torch.device) -> None:
        super().__init__(precision, device)
        self.rank, self.world_size = 0, 1
