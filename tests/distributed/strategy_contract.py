"""One tiny training run, for any strategy: a frozen base with low-rank adapters and a head, two phases."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.losses.base import LossOutput

DOCUMENTS, WIDTH, LABELS, RANK = 12, 16, 23, 3
MICRO_BATCHES = 2
STEPS = 4


@dataclass(frozen=True)
class Documents:
    """Inputs and outputs are dataclasses, as in training."""

    hidden_BD: Tensor
    target_BL: Tensor
    weight_B: Tensor


class Adapted(nn.Module):
    """A frozen projection with a trainable low-rank term, as LoRA has it."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.down = nn.Parameter(torch.randn(RANK, WIDTH) * 0.1)
        self.up = nn.Parameter(torch.randn(WIDTH, RANK) * 0.1)

    def forward(self, hidden_BD: Tensor) -> Tensor:
        base_BD = self.base(hidden_BD.to(self.base.weight.dtype))
        return torch.tanh(base_BD + hidden_BD @ self.down.T @ self.up.T)


class Head(nn.Module):
    """Called by a method, not through `forward`, as stage 1 calls the attention's scores."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LABELS, WIDTH) * 0.2)
        self.bias = nn.Parameter(torch.zeros(LABELS))

    def logits(self, hidden_BD: Tensor) -> Tensor:
        return hidden_BD @ self.weight.T + self.bias


class Tiny(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Adapted(dtype) for _ in range(2))
        self.head = Head()

    def forward(self, batch: Documents) -> LossOutput:
        loss_BL = nn.functional.binary_cross_entropy_with_logits(
            self.logits(batch.hidden_BD), batch.target_BL, reduction="none"
        )
        return LossOutput(
            (loss_BL.sum(dim=1) * batch.weight_B).sum(), batch.weight_B.sum()
        )

    def logits(self, hidden_BD: Tensor) -> Tensor:
        for layer in self.layers:
            hidden_BD = layer(hidden_BD)
        return self.head.logits(hidden_BD)

    def groups(self, phase: int) -> list[ParameterGroup]:
        """Phase 0 trains head and upper adapter, phase 1 the lower adapter too."""
        head = ParameterGroup("head", list(self.head.parameters()), 0.05, 0.01)
        adapters = [
            p for layer in self.layers[1 - phase :] for p in (layer.down, layer.up)
        ]
        return [head, ParameterGroup("adapters", adapters, 0.02, 0.0)]


def make_model(dtype: torch.dtype = torch.float32) -> Tiny:
    torch.manual_seed(7)
    return Tiny(dtype)


def micro_batches(step: int, rank: int, world_size: int) -> list[Documents]:
    """This rank's documents: 11 a step and a filler, the same at any world size."""
    generator = torch.Generator().manual_seed(step)
    hidden_BD = torch.randn(DOCUMENTS, WIDTH, generator=generator)
    target_BL = (torch.rand(DOCUMENTS, LABELS, generator=generator) < 0.2).float()
    weight_B = torch.ones(DOCUMENTS)
    weight_B[-1] = 0
    mine = slice(rank, None, world_size)
    columns = (hidden_BD[mine], target_BL[mine], weight_B[mine])
    return [
        Documents(*parts)
        for parts in zip(*(c.chunk(MICRO_BATCHES) for c in columns), strict=True)
    ]


def train_step(
    strategy: Strategy, module: nn.Module, step: int, factor: float = 1.0
) -> tuple[float, float]:
    """(this rank's share of the loss, gradient norm); the loss of this rank is multiplied by `factor`."""
    strategy.set_learning_rates([0.05 / (1 + step), 0.02 / (1 + step)])
    share = 0.0
    batches = micro_batches(step, strategy.rank, strategy.world_size)
    for i, batch in enumerate(batches):
        with strategy.micro_batch(last=i == len(batches) - 1):
            with strategy.autocast():
                output: LossOutput = module(batch)
                loss = output.sum / (DOCUMENTS - 1)
            strategy.backward(loss * factor)
        share += loss.item()
    return share, strategy.step(max_grad_norm=0.5)


@dataclass
class Record:
    """What a run did: this rank's shares of the losses, norms, trained parameters at the end, evaluation each phase."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    final: dict[str, Tensor] = field(default_factory=dict)
    evaluated: list[float] = field(default_factory=list)


def train(
    strategy: Strategy,
    *,
    first: int = 0,
    resume: Path | None = None,
    after_step: Callable[[int], None] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Record:
    """Two phases of STEPS steps; from step `first`, with the state in `resume`, of phase 0 or 1."""
    model = make_model(dtype)
    record = Record()
    for phase in range(first // STEPS, 2):
        module = strategy.prepare(model, model.groups(phase))
        if resume is not None and phase == first // STEPS:
            strategy.load(resume)
        for step in range(max(first, phase * STEPS), (phase + 1) * STEPS):
            loss, norm = train_step(strategy, module, step)
            record.losses.append(loss)
            record.norms.append(norm)
            if step % STEPS == 1:  # in the middle of a phase: training goes on after it
                with strategy.whole(), torch.no_grad(), strategy.autocast():
                    logits_BL = model.logits(
                        torch.linspace(-1, 1, 4 * WIDTH).reshape(4, WIDTH)
                    )
                    record.evaluated.append(float(logits_BL.float().abs().sum()))
            if after_step is not None:
                after_step(step)
    record.final = strategy.gather_trainable()
    strategy.close()
    return record
