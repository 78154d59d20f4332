"""The flat head's chunked training step against autograd and torch's SGD."""

import pytest
import torch
import torch.nn.functional as F

from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.row_shards import RowShard
from xmtc.distributed.rowwise_config import SGDConfig
from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.losses.base import Targets
from xmtc.losses.config import (
    AsymmetricFocalConfig,
    BinaryCrossEntropyConfig,
    LossConfig,
)
from xmtc.training.flat_step import FlatStep
from xmtc.training.label_shard import GatheredDocuments

B, P, L = 4, 6, 23


def targets_of(rows: list[int], columns: list[int]) -> Targets:
    return Targets(
        torch.tensor(rows), torch.tensor(columns), torch.tensor([1.0, 1.0, 0.0, 1.0])
    )


MICRO_BATCHES = [
    targets_of([0, 0, 1, 2, 3, 3], [22, 3, 0, 7, 7, 8]),
    targets_of([0, 3], [8, 5]),
]


class Rows(torch.nn.Module):
    """Rows, biases and, in front of them, a layer that the strategy trains."""

    def __init__(self, loss: LossConfig, chunk: int, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(P, P)
        self.weights, self.bias = (
            RowShard.of(torch.randn(L, P).to(dtype)),
            RowShard.of(torch.randn(L)),
        )
        self.weights.requires_grad_(True)
        self.bias.requires_grad_(True)
        self.step = FlatStep(loss.build(), self.weights, self.bias)  # pyright: ignore[reportArgumentType]
        self.step.chunk = chunk

    def forward(self, x_BP: torch.Tensor, targets: Targets) -> torch.Tensor:
        documents = GatheredDocuments(
            (self.layer(x_BP),), torch.ones(len(x_BP), 1, dtype=torch.bool), targets
        )
        return self.step(documents).sum


def prepared(
    model: Rows, rate: float, momentum: float
) -> tuple[Strategy, torch.nn.Module]:
    strategy = DistributedConfig().build_strategy(torch.device("cpu"))
    rows = ParameterGroup(
        "rows", [model.weights, model.bias], rate, 0.0, SGDConfig(momentum=momentum)
    )
    return strategy, strategy.prepare(
        model, [ParameterGroup("layer", [*model.layer.parameters()], 1e-3, 0.0), rows]
    )


def take_step(
    strategy: Strategy, module: torch.nn.Module, scale: float = 1 / 3
) -> float:
    total = 0.0
    for i, targets in enumerate(MICRO_BATCHES):
        x_BP = torch.randn(B, P, generator=torch.Generator().manual_seed(i))
        loss = module(x_BP, targets)
        strategy.backward(loss * scale)
        total += float(loss.detach())
    strategy.step(1e9)
    return total


@pytest.mark.parametrize("chunk", [5, 100])
@pytest.mark.parametrize("momentum", [0.9, 0.0])
@pytest.mark.parametrize(
    "loss", [BinaryCrossEntropyConfig(positive_weight=2.0), AsymmetricFocalConfig()]
)
def test_steps_equal_autograd_and_sgd(chunk, momentum, loss):
    model = Rows(loss, chunk, torch.float32)
    strategy, module = prepared(model, 0.1, momentum)
    twin = Rows(loss, chunk, torch.float32)
    weights, bias, plain = (
        twin.weights.detach().requires_grad_(),
        twin.bias.detach().requires_grad_(),
        loss.build(),
    )
    sgd = torch.optim.SGD([weights, bias], lr=0.1, momentum=momentum)
    adamw = torch.optim.AdamW(twin.layer.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(2):
        total = 0.0
        for i, targets in enumerate(MICRO_BATCHES):
            x_BP = torch.randn(B, P, generator=torch.Generator().manual_seed(i))
            output = plain(F.linear(twin.layer(x_BP), weights, bias), targets).sum
            (output / 3).backward()
            total += float(output.detach())
        for optimizer in (sgd, adamw):
            optimizer.step()
            optimizer.zero_grad()
        assert take_step(strategy, module) == pytest.approx(total, rel=1e-5)
        torch.testing.assert_close(model.weights.detach(), weights.detach())
        torch.testing.assert_close(model.bias.detach(), bias.detach())
        torch.testing.assert_close(model.layer.weight, twin.layer.weight)


def test_bfloat16_rows_learn():
    strategy, module = prepared(
        Rows(BinaryCrossEntropyConfig(), 7, torch.bfloat16), 0.3, 0.9
    )
    losses = [take_step(strategy, module) for _ in range(100)]
    assert losses[-1] < 0.2 * losses[0]


def test_rounded_rows_follow_fp32():
    """200 steps, most of them below half a unit in the last place."""
    exact, found = (
        Rows(BinaryCrossEntropyConfig(), 7, dtype)
        for dtype in (torch.float32, torch.bfloat16)
    )
    exact.weights.data.copy_(found.weights.data)
    start = exact.weights.detach().clone()
    for model in (exact, found):
        strategy, module = prepared(model, 1e-3, 0.0)
        for _ in range(200):
            take_step(strategy, module, scale=1.0)
        strategy.close()
    moved = (exact.weights - start).norm()
    assert (
        found.weights.float() - exact.weights
    ).norm() < 0.2 * moved + 0.004 * start.norm()


def test_document_vectors_that_are_not_finite_stop_the_step():
    model = Rows(BinaryCrossEntropyConfig(), 7, torch.float32)
    strategy, module = prepared(model, 0.1, 0.9)
    before = model.weights.detach().clone()
    strategy.backward(module(torch.full((B, P), torch.inf), MICRO_BATCHES[0]))
    assert not torch.tensor(strategy.step(1.0)).isfinite()
    assert torch.equal(model.weights, before)
    assert take_step(strategy, module) > 0
    assert model.weights.isfinite().all()
