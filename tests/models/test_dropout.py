import pytest
import torch

from xmtc.models.dropout import Dropout


@pytest.mark.parametrize("shape", [(250_001,), (3, 70_001), (64, 40, 100)], ids=str)
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.93])
def test_the_share_of_zeros_is_the_rate_and_the_mean_stays(shape, rate):
    torch.manual_seed(0)
    x = torch.ones(shape)
    dropped = Dropout(rate)(x)
    assert dropped.shape == x.shape
    deviation = (rate * (1 - rate) / x.numel()) ** 0.5
    assert (dropped == 0).double().mean().item() == pytest.approx(
        rate, abs=5 * deviation
    )
    assert dropped.unique().tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-3)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    kept = Dropout(0.5)(torch.ones(1_000_000)) > 0
    for lag in (1, 2, 3, 4, 8):
        assert (kept[lag:] & kept[:-lag]).double().mean().item() == pytest.approx(
            0.25, abs=3e-3
        )


def test_the_gradient_passes_where_the_value_did():
    x = torch.randn(10, 100, requires_grad=True)
    dropped = Dropout(0.3)(x)
    dropped.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, dropped)


def test_same_seed_same_mask_and_nothing_in_evaluation():
    dropout, x = Dropout(0.4), torch.randn(33, 7)
    masks = []
    for _ in range(2):
        torch.manual_seed(3)
        masks.append(dropout(x))
    assert masks[0].equal(masks[1])
    assert dropout(x).ne(masks[0]).any()
    assert dropout.eval()(x).equal(x)


def test_a_rate_of_almost_one_keeps_almost_nothing():
    assert Dropout(0.999_999)(torch.ones(1000)).isfinite().all()


def test_a_rate_of_nothing_draws_nothing():
    before = torch.get_rng_state()
    x = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert Dropout(0.0)(x).equal(x)
    assert torch.get_rng_state().equal(before)
