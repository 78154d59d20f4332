"""Row-wise optimizers: against torch's own, and that untouched rows stay untouched."""

import pytest
import torch

from xmtc.distributed.rowwise_config import (
    AdamWConfig,
    LazyAdamConfig,
    RowwiseAdagradConfig,
    SGDConfig,
)
from xmtc.distributed.rowwise_optim import (
    coalesce,
    rounding_noise,
    stochastic_round_,
    touched_rows,
)
from xmtc.models.heads.config import LabelAttentionConfig

CONFIGS = [
    RowwiseAdagradConfig(weight_decay=0.1),
    LazyAdamConfig(weight_decay=0.1),
]


def sparse(rows, values, labels):
    return torch.sparse_coo_tensor(
        torch.tensor([rows]), values, (labels, *values.shape[1:]), check_invariants=True
    )


def test_touched_rows_sums_duplicates():
    values = torch.arange(6.0).view(3, 2)
    rows, sums = touched_rows(sparse([4, 1, 4], values, 6))
    assert rows.tolist() == [1, 4]
    torch.testing.assert_close(sums, torch.stack([values[1], values[0] + values[2]]))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_untouched_rows_and_their_state_do_not_change(config, dtype):
    torch.manual_seed(0)
    table = torch.nn.Parameter(torch.randn(6, 3).to(dtype))
    before = table.detach().clone()
    optimizer = config.build([table])
    for _ in range(3):
        table.grad = sparse([4, 1, 4], torch.randn(3, 3).to(dtype), 6)
        optimizer.step()
    untouched = torch.tensor([0, 2, 3, 5])
    assert torch.equal(table[untouched], before[untouched])
    assert (table[[1, 4]] != before[[1, 4]]).any(1).all()
    assert all(
        (state[untouched] == 0).all() for state in optimizer.state[table].values()
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_sparse_equals_dense_on_the_touched_rows(config):
    tables = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    optimizers = [config.build([table]) for table in tables]
    for step in range(4):
        torch.manual_seed(step)
        values = torch.randn(3, 2)
        tables[0].grad, tables[1].grad = sparse([0, 1, 2], values, 3), values
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(*tables)


def test_lazy_adam_is_adam_when_every_row_is_touched():
    tables = [torch.nn.Parameter(torch.ones(4, 2)) for _ in range(2)]
    ours = LazyAdamConfig(weight_decay=0.1).build([tables[0]])
    torchs = torch.optim.AdamW([tables[1]], lr=1e-3, weight_decay=0.1)
    for step in range(5):
        torch.manual_seed(step)
        tables[0].grad = tables[1].grad = torch.randn(4, 2)
        ours.step()
        torchs.step()
    torch.testing.assert_close(*tables)


def test_lazy_adam_moves_a_row_that_few_steps_touch_as_far_as_adam_on_all_rows_does():
    tables = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(2)]
    ours, adam = (
        LazyAdamConfig().build([tables[0]]),
        torch.optim.Adam([tables[1]], lr=1e-3),
    )
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 301):
        rows = [0, 1] if step % 30 == 0 else [0]
        tables[0].grad = sparse(
            rows, torch.rand(len(rows), 3, generator=generator) + 0.5, 2
        )
        tables[1].grad = tables[0].grad.to_dense()
        ours.step()
        adam.step()
    torch.testing.assert_close(
        ours.state[tables[0]]["square"], adam.state[tables[1]]["exp_avg_sq"]
    )
    ratio_L = tables[0].detach().mean(1) / tables[1].detach().mean(1)
    assert float(ratio_L[0]) == pytest.approx(1, abs=1e-3)
    assert 0.8 < ratio_L[1] < 1.3, (
        "0.2 where its mean square counts the row's own steps"
    )


def test_rowwise_adagrad_moves_by_the_learning_rate_first_and_takes_biases():
    bias = torch.nn.Parameter(torch.zeros(4))
    bias.grad = sparse([2], torch.tensor([5.0]), 4)
    RowwiseAdagradConfig(learning_rate=0.1).build([bias]).step()
    torch.testing.assert_close(bias.detach(), torch.tensor([0, 0, -0.1, 0]))


def test_small_updates_reach_bfloat16_rows_on_average():
    table = torch.nn.Parameter(torch.ones(2000, 1, dtype=torch.bfloat16))
    optimizer = LazyAdamConfig(learning_rate=1e-4).build([table])
    for _ in range(20):
        table.grad = torch.ones_like(table)
        optimizer.step()
    assert abs(table.float().mean().item() - (1 - 20e-4)) < 3e-4


@pytest.mark.parametrize("kind", [LazyAdamConfig, RowwiseAdagradConfig])
def test_stochastic_rounding_tracks_fp32_where_plain_bf16_stands_still(
    kind, monkeypatch
):
    """1,000 steps of a noisy descent towards a target, each far below half a unit in the last place of bf16."""
    torch.manual_seed(0)
    start, target = torch.randn(200, 8) + 2, torch.randn(200, 8) + 2

    def train(dtype):
        generator = torch.Generator().manual_seed(1)
        table = torch.nn.Parameter(start.to(dtype, copy=True))
        optimizer = kind(learning_rate=5e-4 if kind is LazyAdamConfig else 0.02).build(
            [table]
        )
        for _ in range(1000):
            noise = 0.1 * torch.randn(start.shape, generator=generator)
            table.grad = (table.detach().float() - target + noise).to(dtype)
            optimizer.step()
        return table.detach().float()

    exact = train(torch.float32)
    moved = (exact - start).norm()
    behind = {"stochastic": float((train(torch.bfloat16) - exact).norm() / moved)}
    monkeypatch.setattr(
        "xmtc.distributed.rowwise_optim.stochastic_round_", lambda values, noise: values
    )
    behind["plain"] = float((train(torch.bfloat16) - exact).norm() / moved)
    print(kind.__name__, behind)
    assert behind["stochastic"] < 0.15
    assert behind["plain"] > 0.3


@pytest.mark.parametrize(
    "config",
    [AdamWConfig(weight_decay=0.1), SGDConfig(learning_rate=0.05, weight_decay=0.1)],
)
def test_dense_optimizers_are_torchs_and_move_rows_without_a_gradient(
    config, monkeypatch
):
    monkeypatch.setattr(
        "xmtc.distributed.rowwise_optim._CHUNK", 4
    )  # two rows at a time
    tables = [torch.nn.Parameter(torch.ones(5, 2)) for _ in range(2)]
    ours = config.build([tables[0]])
    if isinstance(config, AdamWConfig):
        torchs = torch.optim.AdamW([tables[1]], lr=1e-3, weight_decay=0.1)
    else:
        torchs = torch.optim.SGD([tables[1]], lr=0.05, momentum=0.9)
    for step in range(5):
        torch.manual_seed(step)
        tables[0].grad = sparse([4, 1, 4], torch.randn(3, 2), 5)
        tables[1].grad = tables[0].grad.to_dense()
        if isinstance(config, SGDConfig):  # decoupled
            tables[1].data.mul_(1 - 0.05 * 0.1)
        ours.step()
        torchs.step()
    torch.testing.assert_close(*tables)


def test_coalesced_gradients_can_be_scaled_in_place():
    table = torch.nn.Parameter(torch.zeros(5, 2))
    values = torch.randn(3, 2)
    table.grad = sparse([4, 1, 4], values, 5)
    wanted = table.grad.to_dense()
    part = coalesce(table)
    assert float(part.norm()) == pytest.approx(float(wanted.norm()))
    part.mul_(0.5)
    torch.testing.assert_close(table.grad.to_dense(), wanted / 2)
    assert coalesce(torch.nn.Parameter(torch.zeros(1))) is None


@pytest.mark.parametrize("row_dtype", ["float32", "bfloat16"])
def test_a_head_learns_from_shortlists(row_dtype):
    torch.manual_seed(0)
    config = LabelAttentionConfig(width=16, heads=2, dropout=0, row_dtype=row_dtype)
    head = config.build(12, 1000)
    head.sparse_gradients = True
    hidden, mask = torch.randn(4, 5, 12), torch.ones(4, 5, dtype=torch.bool)
    shortlist, gold = torch.randint(0, 1000, (4, 8)), torch.rand(4, 8) < 0.5
    tables = list(head.label_tables().values())
    optimizer = RowwiseAdagradConfig(learning_rate=0.1).build(tables)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            head(hidden, mask, shortlist), gold.float()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def rounded(values):
    torch.manual_seed(0)
    found = stochastic_round_(
        values.clone(), rounding_noise(values.shape, values.device)
    )
    assert torch.equal(found, found.bfloat16().float())
    return found


def test_keeps_the_mean_and_gives_neighbours_only():
    value = 1 + 2**-10  # an eighth of the way from 1 to its bf16 successor
    found = rounded(torch.full((100_000,), value))
    assert set(found.tolist()) == {1.0, 1 + 2**-7}
    assert abs(found.mean().item() - value) < 1e-4
    assert abs(rounded(torch.full((100_000,), -value)).mean().item() + value) < 1e-4


def test_what_bf16_can_hold_stays():
    exact = torch.tensor([0.0, -1.5, 2.0**-126, -(2.0**100)])
    torch.testing.assert_close(rounded(exact), exact, rtol=0, atol=0)
