"""The flat head's in-place step against autograd and torch's SGD."""

import pytest
import torch
import torch.nn.functional as F

from xmtc.losses.base import Targets
from xmtc.training.flat_step import RowUpdate, flat_step

B, P, L = 4, 6, 23


def problem(dtype=torch.float32):
    torch.manual_seed(0)
    pooled, weights, bias = torch.randn(B, P), torch.randn(L, P).to(dtype), torch.randn(L)
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0])
    rows, columns = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([22, 3, 0, 7, 7, 8])
    return pooled, weights, bias, Targets(rows, columns, weight)


@pytest.mark.parametrize("chunk", [5, 100])
@pytest.mark.parametrize("momentum", [False, True])
def test_two_steps_equal_autograd_and_sgd(chunk, momentum):
    pooled, weights, bias, targets = problem()
    twins = [x.clone().requires_grad_() for x in (pooled, weights, bias)]
    sgd = [torch.optim.SGD([twins[1]], lr=0.1, momentum=0.9 * momentum), torch.optim.SGD([twins[2]], lr=0.1)]
    buffer = torch.zeros_like(weights) if momentum else None
    update = RowUpdate(learning_rate=0.1, scale=1 / 3, momentum_LP=buffer, chunk=chunk)
    for _ in range(2):
        logits = F.linear(*twins)
        positive = torch.zeros(len(logits), L)
        positive[targets.rows_P, targets.columns_P] = 1
        losses = F.binary_cross_entropy_with_logits(logits, positive, reduction="none").sum(1)
        twins[0].grad = None
        (losses @ targets.weight_B / 3).backward()
        step = flat_step(pooled, weights, bias, targets, update)
        torch.testing.assert_close(step.loss, losses.detach() @ targets.weight_B)
        torch.testing.assert_close(step.gradient_BP, twins[0].grad)
        for optimizer in sgd:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(weights, twins[1].detach())
        torch.testing.assert_close(bias, twins[2].detach())


def test_the_loss_can_be_skipped():
    skipped, full = problem(), problem()
    step = flat_step(*skipped, RowUpdate(learning_rate=0.1), with_loss=False)
    flat_step(*full, RowUpdate(learning_rate=0.1))
    assert step.loss == 0
    torch.testing.assert_close(skipped[1], full[1])


def test_bfloat16_rows_learn():
    pooled, weights, bias, targets = problem(torch.bfloat16)
    update = RowUpdate(learning_rate=0.3, scale=1 / 3, weight_decay=1e-4, chunk=7)
    losses = [flat_step(pooled, weights, bias, targets, update).loss.item() for _ in range(200)]
    assert losses[-1] < 0.1 * losses[0]


def test_small_updates_reach_bfloat16_rows_on_average():
    weights, bias = torch.ones(4000, 1, dtype=torch.bfloat16), torch.full((4000,), 50.0)  # sigmoid is 1
    targets = Targets(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.ones(1))
    for _ in range(20):
        flat_step(torch.ones(1, 1), weights, bias, targets, RowUpdate(learning_rate=1e-4, chunk=1000))
    assert abs(weights.float().mean().item() - (1 - 20e-4)) < 5e-4


def test_compensated_bfloat16_rows_follow_fp32():
    """200 steps, most of them below half a unit in the last place."""
    exact, found = problem(), problem(torch.bfloat16)
    exact[1].copy_(found[1])
    start, lacking = exact[1].clone(), torch.zeros_like(found[1])
    for _ in range(200):
        flat_step(*exact, RowUpdate(learning_rate=1e-3, chunk=7))
        flat_step(*found, RowUpdate(learning_rate=1e-3, chunk=7, lacking_LP=lacking))
    moved = (exact[1] - start).norm()
    assert (found[1].float() + lacking.float() - exact[1]).norm() < 0.02 * moved
