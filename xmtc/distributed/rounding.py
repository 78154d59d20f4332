"""Rounding that lets bf16 tables accumulate updates smaller than half a unit in the last place.

Stochastic rounding keeps them on average and needs no memory. Compensated (Kahan) sums keep 16 bits of mantissa: a
second bf16 table holds the rounding error (Zamirai et al. 2020, Revisiting BFloat16 Training).
"""

import torch
from torch import Tensor


def rounding_noise(shape: torch.Size, device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw random 16-bit integers, as int32, for `stochastic_round_`."""
    return torch.randint(0, 1 << 16, shape, dtype=torch.int32, device=device, generator=generator)


def stochastic_round_(values: Tensor, noise: Tensor) -> Tensor:
    """Round fp32 values in place to bf16 values, up or down with the probabilities that keep the expected value.

    The noise (from `rounding_noise`, in the shape of the values) is added to the bits that bf16 drops; then these bits
    are cut off. If values share noise, each rounding is unbiased, but the roundings depend on each other. Finite values
    only.
    """
    values.view(torch.int32).add_(noise).bitwise_and_(-(1 << 16))
    return values


def split_sum(values: Tensor) -> tuple[Tensor, Tensor]:
    """Split fp32 values into two bf16 terms: the nearest value, and the remainder (the compensation of a Kahan sum)."""
    rounded = values.to(torch.bfloat16)
    return rounded, (values - rounded.float()).to(torch.bfloat16)
