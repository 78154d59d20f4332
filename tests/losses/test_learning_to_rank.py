import math

import pytest
import torch

from xmtc.losses.config import LambdaRankConfig, ListNetConfig


def lambdarank_by_hand(scores: list[float], grades: list[int], cutoff: int) -> float:
    """The formula of METHOD §3, pair by pair."""
    gains = [2**g - 1 for g in grades]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    rank = {item: position + 1 for position, item in enumerate(order)}
    discount = [
        1 / math.log2(1 + rank[i]) if rank[i] <= cutoff else 0.0
        for i in range(len(scores))
    ]
    ideal = sum(
        g / math.log2(2 + p) for p, g in enumerate(sorted(gains, reverse=True)[:cutoff])
    )
    total = 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if grades[i] > grades[j]:
                weight = (
                    abs(gains[i] - gains[j]) * abs(discount[i] - discount[j]) / ideal
                )
                total += weight * math.log1p(math.exp(scores[j] - scores[i]))
    return total


@pytest.mark.parametrize("cutoff", [2, 5, 50])
def test_lambdarank_equals_the_formula(cutoff: int) -> None:
    torch.manual_seed(0)
    scores = torch.randn(20, 9)
    grades = torch.randint(0, 4, (20, 9))
    grades[:, 0] = 3
    mask = torch.ones(20, 9, dtype=torch.bool)
    loss = LambdaRankConfig(cutoff=cutoff, graded_items=9).build()(scores, grades, mask)
    expected = [
        lambdarank_by_hand(s.tolist(), g.tolist(), cutoff)
        for s, g in zip(scores, grades, strict=True)
    ]
    torch.testing.assert_close(loss, torch.tensor(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", [LambdaRankConfig(), ListNetConfig()])
def test_padding_and_ungraded_lists_count_nothing(
    config: LambdaRankConfig | ListNetConfig,
) -> None:
    loss = config.build()
    scores, grades = torch.tensor([[1.0, 0.5, -1.0]]), torch.tensor([[0, 2, 1]])
    whole = torch.ones(1, 3, dtype=torch.bool)
    padded_scores = torch.cat([scores, torch.tensor([[9.0, 8.0]])], 1)
    padded_grades = torch.cat([grades, torch.tensor([[3, 0]])], 1)
    padded_mask = torch.tensor([[True, True, True, False, False]])
    torch.testing.assert_close(
        loss(padded_scores, padded_grades, padded_mask), loss(scores, grades, whole)
    )
    assert loss(scores, torch.zeros_like(grades), whole).item() == 0


def test_listnet_is_cross_entropy_with_normalised_gains() -> None:
    scores, grades = torch.tensor([[0.3, -0.2, 1.0]]), torch.tensor([[2, 0, 1]])
    target = torch.tensor([[3 / 4, 0.0, 1 / 4]])
    expected = torch.nn.functional.cross_entropy(scores, target)
    torch.testing.assert_close(
        ListNetConfig().build()(scores, grades, torch.ones(1, 3).bool())[0], expected
    )


@pytest.mark.parametrize("config", [LambdaRankConfig(), ListNetConfig()])
def test_descent_puts_graded_items_first(
    config: LambdaRankConfig | ListNetConfig,
) -> None:
    torch.manual_seed(1)
    scores = torch.randn(4, 12, requires_grad=True)
    grades = torch.randint(0, 3, (4, 12))
    grades[:, :2] = 2
    loss = config.build()
    for _ in range(300):
        (gradient,) = torch.autograd.grad(
            loss(scores, grades, torch.ones(4, 12).bool()).sum(), scores
        )
        scores = (scores - 0.5 * gradient).detach().requires_grad_()
    for score, grade in zip(scores, grades, strict=True):
        top = score.topk(int((grade == 2).sum())).indices
        assert (grade[top] == 2).all()
