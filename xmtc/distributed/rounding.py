"""bf16 tables that still take updates smaller than half a unit in the last place.

Stochastic rounding takes them on average, and needs no memory. Compensated (Kahan) sums take them to 16 bits of
mantissa, and keep what was rounded away in a second bf16 table (Zamirai et al. 2020, Revisiting BFloat16 Training).
"""

import torch
from torch import Tensor


def rounding_noise(shape: torch.Size, device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Random 16-bit integers, as int32, of the given shape: what `stochastic_round` adds."""
    return torch.randint(0, 1 << 16, shape, dtype=torch.int32, device=device, generator=generator)


def stochastic_round_(values: Tensor, noise: Tensor) -> Tensor:
    """Rounds fp32 in place to values that bf16 holds, up or down with the probability that keeps the expected value.

    The noise (of `rounding_noise`, of the shape of the values) is added below the bits that bf16 keeps, and these are
    cut off. Values rounded by the same noise are rounded each without bias, but not independently. Finite values only.
    """
    values.view(torch.int32).add_(noise).bitwise_and_(-(1 << 16))
    return values


def split_sum(values: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 values as the sum of two in bf16: the nearest, and what it lacks (the compensation of a Kahan sum)."""
    rounded = values.to(torch.bfloat16)
    return rounded, (values - rounded.float()).to(torch.bfloat16)
