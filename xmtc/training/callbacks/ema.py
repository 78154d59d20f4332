"""An exponential moving average of the trained weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from typing_extensions import override

from xmtc.distributed.row_shards import RowShard, own_rows
from xmtc.distributed.state_files import FIX, save_tensors
from xmtc.errors import CheckpointError
from xmtc.files import reading
from xmtc.training.callbacks.base import Callback, StageContext
from xmtc.training.callbacks.config import EmaConfig
from xmtc.training.objective import Position

_FILE = "ema.safetensors"
_UPDATES = "updates"


class Ema(Callback):
    """Averages the weights of the steps (Polyak & Juditsky 1992, with exponential weights).

    Formula, for update t = 0, 1, …, with d_t = min(decay, (1 + t)/(10 + t)):

        average ← d_t · average + (1 − d_t) · weights

    A parameter's average starts at its value when a phase first trains it. Skipped steps do not update it. The average
    is float32 and takes 4 bytes per trained number; the evaluation takes another copy of the trained weights. Every
    rank averages what it holds: all parameters, or its rows of split label tables.

    Args:
        config: see `EmaConfig`.
        context: see `StageContext`.
    """

    def __init__(self, config: EmaConfig, context: StageContext) -> None:
        self._decay, self._context = config.decay, context
        self._parameters: dict[str, nn.Parameter] = {}
        self._averages: dict[str, Tensor] = {}
        self._updates = 0

    @override
    def begin_phase(self, trained: Mapping[str, nn.Parameter]) -> None:
        self._parameters |= trained
        for name, parameter in trained.items():
            if name not in self._averages:
                self._averages[name] = parameter.detach().to(torch.float32, copy=True)

    @override
    def after_step(self, position: Position) -> None:
        if position.skipped:
            return
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        weights = [self._parameters[name].detach().float() for name in self._averages]
        get_ema_multi_avg_fn(decay)(list(self._averages.values()), weights, self._updates)
        self._updates += 1

    @contextmanager
    @override
    def evaluating(self) -> Iterator[None]:
        """Inside the context, the parameters hold their averages."""
        kept = {name: self._parameters[name].detach().clone() for name in self._averages}
        self._fill(self._averages)
        try:
            yield
        finally:
            self._fill(kept)

    @torch.no_grad()
    def _fill(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._parameters[name].copy_(value)

    @override
    def save(self, directory: Path) -> None:
        """The first rank writes whole tensors, so that any number of ranks can read them."""
        whole = {name: _whole(self._parameters[name], average) for name, average in self._averages.items()}
        if self._context.rank != 0:
            return
        save_tensors(whole, directory / _FILE, {_UPDATES: str(self._updates)})

    @override
    def load(self, directory: Path) -> None:
        path = directory / _FILE
        if not path.exists():
            raise CheckpointError(
                f"{directory} was saved without {self._context.stage}.callbacks: ema; leave ema out, or start under "
                "another name"
            )
        with reading(path, CheckpointError, FIX), safe_open(path, framework="pt") as file:
            names = list(file.keys())
            saved = {name: file.get_tensor(name) for name in names}
            self._updates = int(file.metadata()[_UPDATES])
        if saved.keys() != self._averages.keys():
            raise CheckpointError(f"{path} averages other parameters than this run trains; start under another name")
        for name, average in self._averages.items():
            average.copy_(own_rows(self._parameters[name], saved[name]))


def _whole(parameter: nn.Parameter, average: Tensor) -> Tensor:
    """Return the average of the whole parameter, on the CPU. Collective if the parameter's rows are split."""
    return parameter.whole(average) if isinstance(parameter, RowShard) else average.cpu()
