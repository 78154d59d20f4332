"""Stochastic rounding to bf16."""

import torch

from xmtc.distributed.rounding import rounding_noise, split_sum, stochastic_round_


def rounded(values):
    noise = rounding_noise(values.shape, values.device, torch.Generator().manual_seed(0))
    found = stochastic_round_(values.clone(), noise)
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


def test_a_split_sum_holds_sixteen_bits_of_mantissa():
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    rounded_V, rest_V = split_sum(values)
    assert rounded_V.dtype == rest_V.dtype == torch.bfloat16
    assert ((rounded_V.float() + rest_V.float() - values).abs() <= 2.0**-17 * values.abs()).all()
    assert torch.equal(rounded_V, values.bfloat16())
