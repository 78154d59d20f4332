from types import SimpleNamespace

import pytest
import torch

from xmtc.losses.base import Targets
from xmtc.losses.config import AsymmetricFocalConfig
from xmtc.training.label_sampling import LabelSample, UniformSampler, draw_labels
from xmtc.training.label_shard import GatheredDocuments


def draw(
    labels_P: torch.Tensor,
    labels: int,
    uniform: int,
    seed: int = 0,
    mined: tuple[int, ...] = (),
) -> LabelSample:
    certain = torch.cat([labels_P, torch.tensor(mined, dtype=torch.int64)]).unique()
    return draw_labels(
        labels_P, certain, labels, uniform, torch.Generator().manual_seed(seed)
    )


def test_certain_labels_are_all_there_and_columns_point_at_positives() -> None:
    labels_P = torch.tensor([7, 3, 7, 90])
    drawn = draw(labels_P, 100, 20, mined=(0, 99))
    assert len(drawn.labels_S) == 3 + 2 + 20
    assert (drawn.labels_S[1:] > drawn.labels_S[:-1]).all()
    assert drawn.labels_S[drawn.columns_P].equal(labels_P)
    assert set(drawn.labels_S[drawn.importance_S == 1].tolist()) == {0, 3, 7, 90, 99}
    assert drawn.importance_S.sum().item() == pytest.approx(100)


def test_more_certain_labels_than_others_are_all_kept() -> None:
    drawn = draw(torch.arange(30), 40, 80)
    assert drawn.labels_S.equal(torch.arange(40))
    assert (drawn.importance_S == 1).all()


def test_the_warning_of_too_few_labels_counts_those_of_the_worker(caplog) -> None:
    """Of three workers with four labels each, one draws one or two of sampled_labels=4."""
    shard = SimpleNamespace(rows=4, share=lambda count: count // 3)
    targets = Targets(
        torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]), torch.ones(1)
    )
    UniformSampler(4, shard)(
        GatheredDocuments((), torch.ones(1, 1), targets), torch.Generator()
    )
    assert (
        "sampled_labels: 4, of which this worker draws 1, not more than its 2 labels"
        in caplog.text
    )


@pytest.mark.parametrize("uniform", [2, 6])  # by redrawing, and by a permutation
def test_other_labels_are_drawn_equally_often(uniform: int) -> None:
    counts = torch.zeros(12)
    for seed in range(3000):
        drawn = draw(torch.tensor([0, 5]), 12, uniform, seed)
        counts[drawn.labels_S] += 1
    assert counts[[0, 5]].tolist() == [3000, 3000]
    share = uniform / 10
    error = (3000 * share * (1 - share)) ** 0.5
    others = counts[[i for i in range(12) if i not in (0, 5)]]
    assert (others - 3000 * share).abs().max() < 4 * error


@pytest.mark.parametrize("mined", [(), (2, 30, 31, 150)])
def test_the_mean_over_draws_is_the_full_loss(mined: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    logits_BL = torch.randn(4, 200)
    logits_BL[:, list(mined)] += 2
    rows_P, labels_P = torch.tensor([0, 1, 1, 3]), torch.tensor([5, 5, 17, 120])
    loss = AsymmetricFocalConfig(gamma_negative=1.0).build()
    full = loss(logits_BL, Targets(rows_P, labels_P, torch.ones(4))).sum
    estimates = []
    for seed in range(800):
        drawn = draw(labels_P, 200, 20, seed, mined)
        targets = Targets(rows_P, drawn.columns_P, torch.ones(4))
        logits_BS = logits_BL[:, drawn.labels_S]
        estimates.append(
            loss(
                logits_BS,
                targets,
                importance_BC=drawn.importance_S.expand_as(logits_BS),
            ).sum
        )
    mean, error = torch.stack(estimates).mean(), torch.stack(estimates).std() / 800**0.5
    assert abs(mean - full) < 4 * error
    assert error < 0.02 * full
