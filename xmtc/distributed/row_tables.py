"""Label tables in training: their row-wise optimizers, and both as a file beside the other trained parameters.

`label_tables.safetensors` holds `parameter/<name>` and the optimizer's state, `<kind>/<name>`, of every table.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.errors import CheckpointError

FILE = "label_tables.safetensors"


class RowTables:
    """Tables with one row a label, and what updates them.

    Args:
        tables: name → parameter, float32 or bfloat16.
        groups: what each optimizer updates, with its settings, in the order of learning rates.
    """

    def __init__(
        self,
        tables: Mapping[str, nn.Parameter],
        groups: Sequence[tuple[Sequence[nn.Parameter], RowwiseOptimizerConfig]],
    ) -> None:
        self.tables = dict(tables)
        self._optimizers = [config.build(parameters) for parameters, config in groups]
        self._optimizer_of = {
            id(parameter): optimizer
            for (parameters, _), optimizer in zip(groups, self._optimizers, strict=True)
            for parameter in parameters
        }
        for parameter in self.tables.values():
            parameter.requires_grad_(True)

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        """One rate a group."""
        for optimizer, rate in zip(self._optimizers, rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate

    def step(self) -> None:
        """Update the rows that have a gradient."""
        for optimizer in self._optimizers:
            optimizer.step()

    def bytes(self) -> int:
        """Of tables and state."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors().values())

    def save(self, directory: Path) -> None:
        """Write tables and state.

        Raises:
            OSError: no space, no permission.
        """
        try:
            save_file(self._tensors(), directory / FILE)
        except SafetensorError as error:
            raise OSError(f"{FILE}: {error}") from error

    def load(self, directory: Path) -> None:
        """Read what `save` wrote.

        Raises:
            CheckpointError: missing or damaged, or of other tables or another optimizer.
        """
        try:
            found = load_file(directory / FILE)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{directory / FILE}: {error}") from error
        self._check(found, directory)
        with torch.no_grad():
            for name, parameter in self.tables.items():
                parameter.copy_(found.pop(f"parameter/{name}"))
        for key, tensor in found.items():
            kind, name = key.split("/", 1)
            parameter = self.tables[name]
            self._optimizer_of[id(parameter)].state[parameter][kind] = tensor.to(parameter.device)

    def _check(self, found: Mapping[str, Tensor], directory: Path) -> None:
        for parameter in self.tables.values():
            self._optimizer_of[id(parameter)].make_state(parameter)
        expected = {key: tensor.shape for key, tensor in self._tensors().items()}
        if {key: tensor.shape for key, tensor in found.items()} != expected:
            odd = sorted(found.keys() ^ expected.keys()) or sorted(expected)
            raise CheckpointError(
                f"{directory / FILE}: other label tables, or of another optimizer, than this run's ({odd[0]} differs); "
                "resume with the configuration that the checkpoint was made with"
            )

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for name, parameter in self.tables.items():
            tensors[f"parameter/{name}"] = parameter.detach()
            for kind, tensor in self._optimizer_of[id(parameter)].state[parameter].items():
                tensors[f"{kind}/{name}"] = tensor
        return {key: tensor.cpu().contiguous() for key, tensor in tensors.items()}
