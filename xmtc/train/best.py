"""The weights of the best epoch."""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from xmtc.distributed.collectives import barrier
from xmtc.distributed.row_shards import own_rows
from xmtc.distributed.strategy import Strategy
from xmtc.errors import CheckpointError
from xmtc.storage import Mirror


class BestWeights:
    """Keeps, in one file, every parameter that the stage trains in any of its phases.

    Parameters that a later phase will train are kept too: when the best epoch is an early one, restoring it must undo
    what later phases changed.

    Args:
        path: a `.safetensors` file on storage that all ranks share, or in `mirror`.
        module: what is trained, unpartitioned, as it is when the stage begins.
        trained: all parameters that the stage will train.
        mirror: brings the file that rank 0 wrote to other nodes; it travels with the epoch's checkpoint.
    """

    def __init__(
        self, path: Path, module: nn.Module, trained: Iterable[nn.Parameter], mirror: Mirror | None = None
    ) -> None:
        self.path, self.module, self._mirror = path, module, mirror
        wanted = {id(p) for p in trained}
        self.start = {n: p.detach().to("cpu", copy=True) for n, p in module.named_parameters() if id(p) in wanted}

    def save(self, strategy: Strategy) -> None:
        """Keep the weights as they are now. Collective."""
        tensors = self.start | strategy.gather_trainable()
        if strategy.rank == 0:
            partial = self.path.with_name(f"{self.path.name}.tmp")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            save_file({name: t.contiguous() for name, t in tensors.items()}, partial)
            partial.rename(self.path)
        barrier()

    def restore(self) -> None:
        """Put the kept weights back into the module.

        Raises:
            CheckpointError: the file is of another model.
        """
        if self._mirror is not None:
            name = self.path.relative_to(self._mirror.local).as_posix()
            self._mirror.pull(self.path.parent.relative_to(self._mirror.local).as_posix(), lambda n: n == name)
        tensors = load_file(self.path)
        parameters = dict(self.module.named_parameters())
        if tensors.keys() != self.start.keys():
            raise CheckpointError(f"{self.path} holds other parameters than this run trains; delete the run directory")
        with torch.no_grad():
            for name, tensor in tensors.items():
                parameters[name].copy_(own_rows(parameters[name], tensor))
