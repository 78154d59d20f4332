"""Linear layers with a copy in bfloat16 compute what autocast computes, and the rest stays as it is."""

import copy

import torch
from torch import nn

from xmtc.models.half_linear import keep_bfloat16


def test_results_are_those_of_autocast_and_of_float32_without_it():
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Linear(12, 20),
        nn.GELU(),
        nn.Sequential(nn.Linear(20, 5, bias=False)),
        nn.LayerNorm(5),
    )
    kept, x = copy.deepcopy(plain), torch.randn(7, 12)
    keep_bfloat16(kept)
    for enabled in (True, False):
        with (
            torch.inference_mode(),
            torch.autocast("cpu", torch.bfloat16, enabled=enabled),
        ):
            assert torch.equal(kept(x), plain(x))
    assert kept.state_dict().keys() == plain.state_dict().keys()


def test_autocast_converts_no_weight():
    layer = nn.Linear(64, 64)
    keep_bfloat16(layer)
    x = torch.randn(1, 64).bfloat16()
    with (
        torch.inference_mode(),
        torch.autocast("cpu", torch.bfloat16),
        torch.profiler.profile() as profile,
    ):
        layer(x)
    assert "aten::_to_copy" not in {event.key for event in profile.key_averages()}
