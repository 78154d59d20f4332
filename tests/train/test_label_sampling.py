import pytest
import torch

from xmtc.losses.asymmetric_focal import AsymmetricFocalConfig
from xmtc.losses.base import Targets
from xmtc.train.label_sampling import draw_labels


def test_positives_are_all_there_and_columns_point_at_them() -> None:
    labels_P = torch.tensor([7, 3, 7, 90])
    drawn = draw_labels(labels_P, 100, 20, torch.Generator().manual_seed(0))
    assert len(drawn.labels_S) == 20
    assert (drawn.labels_S[1:] > drawn.labels_S[:-1]).all()
    assert drawn.labels_S[drawn.columns_P].equal(labels_P)
    assert drawn.importance_S.sum().item() == pytest.approx(100)


def test_more_positives_than_room_are_all_kept() -> None:
    drawn = draw_labels(torch.arange(30), 40, 8, torch.Generator().manual_seed(0))
    assert drawn.labels_S.equal(torch.arange(30))


def test_the_mean_over_draws_is_the_full_loss() -> None:
    torch.manual_seed(0)
    logits_BL = torch.randn(4, 200)
    rows_P, labels_P = torch.tensor([0, 1, 1, 3]), torch.tensor([5, 5, 17, 120])
    loss = AsymmetricFocalConfig(gamma_negative=1.0).build()
    full = loss(logits_BL, Targets(rows_P, labels_P, torch.ones(4))).sum
    estimates = []
    for seed in range(800):
        drawn = draw_labels(labels_P, 200, 23, torch.Generator().manual_seed(seed))
        targets = Targets(rows_P, drawn.columns_P, torch.ones(4))
        logits_BS = logits_BL[:, drawn.labels_S]
        estimates.append(loss(logits_BS, targets, importance_BC=drawn.importance_S.expand_as(logits_BS)).sum)
    mean, error = torch.stack(estimates).mean(), torch.stack(estimates).std() / 800**0.5
    assert abs(mean - full) < 4 * error
    assert error < 0.02 * full
