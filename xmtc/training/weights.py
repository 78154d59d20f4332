"""The weights of the best epoch, and files of weights that one stage leaves to the next."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from xmtc.distributed.row_shards import own_rows
from xmtc.distributed.strategy import Strategy
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing
from xmtc.storage.mirror import Mirror
from xmtc.training.checkpoint import together


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
        """Keep the weights as they are now. Collective.

        Raises:
            CheckpointError: the disk refuses.
        """
        write_weights(self.path, self.start | strategy.gather_trainable(), here=strategy.rank == 0)

    def restore(self) -> None:
        """Put the kept weights back into the module.

        Raises:
            CheckpointError: the file is missing, damaged or of another model.
        """
        if self._mirror is not None:
            name = self.path.relative_to(self._mirror.local).as_posix()
            self._mirror.pull(self.path.parent.relative_to(self._mirror.local).as_posix(), lambda n: n == name)
        tensors = read_weights(self.path)
        parameters = dict(self.module.named_parameters())
        if tensors.keys() != self.start.keys():
            raise CheckpointError(f"{self.path} holds other parameters than this run trains; delete the run directory")
        with torch.no_grad():
            for name, tensor in tensors.items():
                parameters[name].copy_(own_rows(parameters[name], tensor))


def write_weights(path: Path, tensors: Mapping[str, Tensor], *, here: bool) -> None:
    """Write a `.safetensors` file, whole or not at all, on the rank where `here` is True. Collective.

    Raises:
        CheckpointError: the disk refuses; on every rank. What was there before is as it was.
    """

    def write() -> None:
        try:
            with replacing(path) as partial:
                save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
        except SafetensorError as error:
            raise OSError(str(error)) from error

    def explain(failures: list[str]) -> CheckpointError:
        return CheckpointError(f"{path} could not be written ({'; '.join(failures)}): make room and resume")

    together(write, explain, here=here)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read what `write_weights` wrote.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with reading(path, CheckpointError, "copy it again, or train under another name", "missing or damaged"):
        return load_file(path)
