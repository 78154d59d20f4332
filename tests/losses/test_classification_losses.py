"""Classification losses against the plain dense formulas, in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from xmtc.config.members import FAMILIES
from xmtc.losses import binary
from xmtc.losses.base import Targets
from xmtc.losses.config import (
    AsymmetricFocalConfig,
    BinaryCrossEntropyConfig,
    CrossEntropyConfig,
    kinds_for,
)


def case(documents=4, labels=37, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(
        documents, labels, generator=generator, dtype=torch.float64
    )
    positive = torch.rand(documents, labels, generator=generator) < 0.1
    positive[-1] = False  # a document without labels
    rows, columns = positive.nonzero(as_tuple=True)
    order = torch.randperm(
        len(rows), generator=generator
    )  # pairs come in no particular order
    weight = torch.ones(documents)
    weight[1] = 0
    return logits, Targets(rows[order], columns[order], weight)


def multi_hot(
    targets: Targets, columns: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Multi-hot (B, columns)."""
    found = torch.zeros(len(targets.weight_B), columns, dtype=dtype)
    found[targets.rows_P, targets.columns_P] = 1
    return found


def plain_asymmetric_focal(logits, targets, gamma_positive, gamma_negative, margin):
    y = multi_hot(targets, logits.shape[1], logits.dtype)
    p = torch.sigmoid(logits)
    p_m = (p - margin).clamp(min=0)
    loss_positive = -((1 - p) ** gamma_positive) * p.log()
    loss_negative = -(p_m**gamma_negative) * (1 - p_m).log()
    return y * loss_positive + (1 - y) * loss_negative


SETTINGS = [
    (0.0, 4.0, 0.05),
    (1.0, 4.0, 0.0),
    (0.5, 1.5, 0.2),
    (0.0, 0.0, 0.0),
    (0.0, 0.0, 0.1),
]


@pytest.fixture(params=[1 << 20, 8], ids=["one_block", "many_blocks"])
def block(request, monkeypatch):
    monkeypatch.setitem(binary._BLOCK, "cpu", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(("gamma_positive", "gamma_negative", "margin"), SETTINGS)
def test_asymmetric_focal_equals_the_plain_formula_and_its_gradient(
    gamma_positive, gamma_negative, margin
):
    logits, targets = case()
    loss = AsymmetricFocalConfig(
        gamma_positive=gamma_positive, gamma_negative=gamma_negative, margin=margin
    ).build()
    plain_logits = logits.clone().requires_grad_()
    plain = plain_asymmetric_focal(
        plain_logits, targets, gamma_positive, gamma_negative, margin
    )
    plain = (plain.sum(1) * targets.weight_B).sum()
    plain.backward()
    logits.requires_grad_()
    output = loss(logits, targets)
    output.sum.backward()
    torch.testing.assert_close(output.sum, plain)
    torch.testing.assert_close(logits.grad, plain_logits.grad)
    assert output.count == 3
    assert torch.autograd.gradcheck(
        lambda x: loss(x, targets).sum, logits.detach().requires_grad_()
    )


@pytest.mark.usefixtures("block")
def test_binary_cross_entropy_equals_torch():
    logits, targets = case(scale=10.0)
    logits.requires_grad_()
    output = BinaryCrossEntropyConfig(positive_weight=3.0).build()(logits, targets)
    dense = multi_hot(targets, logits.shape[1], logits.dtype)
    plain = F.binary_cross_entropy_with_logits(
        logits,
        dense,
        targets.weight_B.double().unsqueeze(1),
        pos_weight=torch.tensor(3.0),
        reduction="sum",
    )
    torch.testing.assert_close(output.sum, plain)
    torch.testing.assert_close(
        torch.autograd.grad(output.sum, logits), torch.autograd.grad(plain, logits)
    )


def test_focal_without_focus_is_binary_cross_entropy():
    logits, targets = case()
    focal = AsymmetricFocalConfig(gamma_negative=0.0, margin=0.0).build()(
        logits, targets
    )
    torch.testing.assert_close(
        focal.sum, BinaryCrossEntropyConfig().build()(logits, targets).sum
    )


@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 4.0])
def test_extreme_logits_stay_finite(margin, gamma):
    logits = torch.tensor(
        [[-1e4, -200.0, -50.0, 0.0, 50.0, 200.0, 1e4]], requires_grad=True
    )
    loss = AsymmetricFocalConfig(
        gamma_negative=gamma, gamma_positive=gamma, margin=margin
    ).build()
    for positives in ([], range(7)):
        rows = torch.zeros(len(positives), dtype=torch.int64)
        output = loss(
            logits,
            Targets(
                rows, torch.tensor(list(positives), dtype=torch.int64), torch.ones(1)
            ),
        )
        (gradient,) = torch.autograd.grad(output.sum, logits)
        assert output.sum.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "config", [AsymmetricFocalConfig(), BinaryCrossEntropyConfig()]
)
def test_half_precision_logits_are_computed_in_fp32(config):
    logits, targets = case()
    low = logits.bfloat16().requires_grad_()
    output = config.build()(low, targets)
    output.sum.backward()
    assert output.sum.dtype == torch.float32
    assert low.grad is not None
    assert low.grad.dtype == torch.bfloat16
    torch.testing.assert_close(
        output.sum, config.build()(low.detach().float(), targets).sum
    )


@pytest.mark.parametrize(
    "config", [AsymmetricFocalConfig(), BinaryCrossEntropyConfig()]
)
def test_importance_weighs_negatives_only(config):
    logits, targets = case()
    importance = torch.rand(logits.shape, dtype=torch.float64) * 5
    logits.requires_grad_()
    output = config.build()(logits, targets, importance)
    nothing = torch.empty(0, dtype=torch.int64)
    separate = torch.zeros((), dtype=torch.float64)
    positive = multi_hot(targets, logits.shape[1]).bool()
    for row, column in [(r, c) for r in range(4) for c in range(37)]:
        on = Targets(
            torch.tensor([0]), torch.tensor([0]), targets.weight_B[row : row + 1]
        )
        off = Targets(nothing, nothing, targets.weight_B[row : row + 1])
        one = config.build()(
            logits[row : row + 1, column : column + 1],
            on if positive[row, column] else off,
        ).sum
        separate = separate + one * (
            1 if positive[row, column] else importance[row, column]
        )
    torch.testing.assert_close(output.sum, separate)
    torch.testing.assert_close(
        torch.autograd.grad(output.sum, logits), torch.autograd.grad(separate, logits)
    )


def test_hard_negatives_estimate_loss_and_gradient_without_bias():
    logits, targets = case(documents=3, labels=200)
    logits.requires_grad_()
    plain = AsymmetricFocalConfig().build()(logits, targets)
    (plain_gradient,) = torch.autograd.grad(plain.sum, logits)
    augmented = AsymmetricFocalConfig(hard_negatives=10, sampled_negatives=30).build()
    generator = torch.Generator().manual_seed(1)
    losses, mean_gradient = [], torch.zeros_like(logits)
    for _ in range(3000):
        output = augmented(logits, targets, generator=generator)
        losses.append(output.sum.item())
        mean_gradient += torch.autograd.grad(output.sum, logits)[0] / 3000
    sums = torch.tensor(losses)
    standard_error = sums.std() / math.sqrt(len(sums))
    assert output.count == plain.count
    assert sums.std() > 0
    assert abs(sums.mean() - plain.sum) < 4 * standard_error
    torch.testing.assert_close(mean_gradient, plain_gradient, atol=0.03, rtol=0.1)


def test_hardest_negatives_count_once_and_positives_are_no_negatives():
    logits, targets = case(documents=3, labels=200)
    augmented = AsymmetricFocalConfig(hard_negatives=10, sampled_negatives=1).build()
    dense = multi_hot(targets, 200).bool()
    logits.requires_grad_()
    plain = AsymmetricFocalConfig().build()(logits, targets).sum
    (expected,) = torch.autograd.grad(plain, logits)
    (gradient,) = torch.autograd.grad(
        augmented(logits, targets, generator=torch.Generator().manual_seed(0)).sum,
        logits,
    )
    for row in (0, 2):
        hardest = (
            logits[row].detach().masked_fill(dense[row], -math.inf).topk(10).indices
        )
        torch.testing.assert_close(gradient[row, hardest], expected[row, hardest])
        torch.testing.assert_close(gradient[row][dense[row]], expected[row][dense[row]])
        assert (gradient[row] != 0).sum() <= 11 + dense[row].sum()
    assert (gradient[1] == 0).all()


def test_hard_negatives_of_all_columns_are_the_plain_loss():
    logits, targets = case()
    augmented = AsymmetricFocalConfig(hard_negatives=30, sampled_negatives=7).build()
    torch.testing.assert_close(
        augmented(logits, targets).sum,
        AsymmetricFocalConfig().build()(logits, targets).sum,
    )


def test_draws_follow_the_generator():
    logits, targets = case(labels=500)
    loss = AsymmetricFocalConfig(hard_negatives=5, sampled_negatives=5).build()
    first, second = (
        loss(logits, targets, generator=torch.Generator().manual_seed(3)).sum
        for _ in range(2)
    )
    assert first == second
    assert (
        first != loss(logits, targets, generator=torch.Generator().manual_seed(4)).sum
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_its_formula(smoothing):
    logits, _ = case()
    labels = torch.tensor([3, 0, 36, 5])
    order = torch.tensor([2, 0, 3, 1])
    weight = torch.tensor([1.0, 0.0, 1.0, 1.0])
    output = CrossEntropyConfig(label_smoothing=smoothing).build()(
        logits, Targets(order, labels[order], weight)
    )
    log_p = logits.log_softmax(1)
    loss = -(1 - smoothing) * log_p[torch.arange(4), labels] - smoothing * log_p.mean(1)
    torch.testing.assert_close(output.sum, (loss * weight).sum())
    assert output.count == 3


def test_cross_entropy_refuses_a_sample_of_labels():
    logits, _ = case()
    targets = Targets(torch.arange(4), torch.tensor([3, 0, 36, 5]), torch.ones(4))
    with pytest.raises(ValueError, match="the logits of all labels"):
        CrossEntropyConfig().build()(logits, targets, torch.ones_like(logits))


def test_hard_negatives_use_the_number_of_positives_that_the_host_knows():
    logits, targets = case(documents=3, labels=200)
    known = replace(targets, max_positives=int(targets.rows_P.bincount().max()))
    loss = AsymmetricFocalConfig(hard_negatives=10, sampled_negatives=30).build()
    sums = [
        loss(logits, each, generator=torch.Generator().manual_seed(1)).sum
        for each in (targets, known)
    ]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("kind", FAMILIES["xmtc.losses"].builtin)
def test_every_loss_has_one_signature_and_says_what_it_can_do(kind):
    """What docs/explanation/losses.md promises to a loss from another package."""
    logits, _ = case()
    targets = Targets(
        torch.arange(4), torch.tensor([3, 0, 36, 5]), torch.ones(4), max_positives=1
    )
    settings = FAMILIES["xmtc.losses"].builtin[kind]()
    assert kind in kinds_for(settings.task)
    importance = None if settings.refuses_sampled_labels else torch.ones_like(logits)
    output = settings.build()(logits, targets, importance, torch.Generator())
    assert output.sum > 0
    assert output.count == 4
    assert (settings.refuses_label_shards is None) == (kind != "cross_entropy")


def test_a_sum_over_labels_is_the_sum_of_its_shards():
    logits, targets = case()
    for settings in (AsymmetricFocalConfig(), BinaryCrossEntropyConfig()):
        assert settings.refuses_label_shards is None
        loss, total = settings.build(), torch.zeros((), dtype=logits.dtype)
        for part in (slice(0, 20), slice(20, 37)):
            own = (targets.columns_P >= part.start) & (targets.columns_P < part.stop)
            shard = Targets(
                targets.rows_P[own],
                targets.columns_P[own] - part.start,
                targets.weight_B,
            )
            total = total + loss(logits[:, part], shard).sum
        torch.testing.assert_close(total, loss(logits, targets).sum)
    assert not AsymmetricFocalConfig(hard_negatives=3).separable


def test_gradient_memory_is_one_matrix():
    """Nothing but the gradient is kept between forward and backward."""
    kept = []
    logits, targets = case(labels=64)
    logits.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.numel()) or t, lambda t: t
    ):
        AsymmetricFocalConfig().build()(logits, targets)
    assert kept == [logits.numel()]
