"""Optimizer settings and the learning-rate schedule."""

import math
from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config


@config
class OptimizerConfig:
    """AdamW (Loshchilov & Hutter 2019) with warm-up and decay."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate of the head."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay; never applied to biases, norms and gains."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Decay from the peak to `final_share` of it over each phase."""
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Share of each phase's steps over which the learning rate rises linearly."""
    final_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Learning rate at the end of a phase, as a share of the peak."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients are scaled down to this global L2 norm."""

    def factor(self, step: int, total: int) -> float:
        """What to multiply the peak learning rate with.

        Args:
            step: done in the phase; every phase rises and decays by itself, because its optimizer starts afresh.
            total: planned in the phase.
        """
        rise = min(1.0, (step + 1) / max(1, round(self.warmup_share * total)))
        progress = min(1.0, step / max(1, total))
        shape = {
            "constant": 1.0,
            "linear": 1 - progress,
            "cosine": (1 + math.cos(math.pi * progress)) / 2,
        }[self.schedule]
        return rise * (self.final_share + (1 - self.final_share) * shape)
