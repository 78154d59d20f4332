"""From data to pixels along an axis, with round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: what and in which unit.
        percent: values are fractions, shown in percent.
        log: logarithmic.
        low: lowest value shown; by default the data's.
        high: highest value shown; by default the data's.
    """

    title: str
    percent: bool = False
    log: bool = False
    low: float | None = None
    high: float | None = None


class Scale:
    """Data to pixels.

    Args:
        axis: what is shown.
        values: the data.
        start: pixel of the lowest value.
        end: pixel of the highest value.
    """

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float):
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)] or [0.0 if not axis.log else 1.0]
        low = min(finite) if axis.low is None else axis.low
        high = max(finite) if axis.high is None else axis.high
        if high <= low:
            high = low + (abs(low) or 1.0)
        self.axis, self._start, self._span = axis, start, end - start
        self._low, self._high = (math.log10(low), math.log10(high)) if axis.log else (low, high)

    def __call__(self, value: float) -> float:
        """Map a value to its pixel, rounded to a tenth; values beyond the ends fall on them."""
        place = math.log10(max(value, 1e-300)) if self.axis.log else value
        share = (place - self._low) / (self._high - self._low)
        return round(self._start + self._span * min(max(share, 0.0), 1.0), 1)

    def ticks(self) -> list[float]:
        """Round values across the axis."""
        if self.axis.log:
            low, high = math.ceil(self._low - 1e-9), math.floor(self._high + 1e-9)
            step = max(1, (high - low) // 5)
            return [10.0**power for power in range(low, high + 1, step)]
        raw = (self._high - self._low) / 5
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
        first = math.ceil(self._low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self._high / step + 1e-9) + 1)]

    def label(self, value: float) -> str:
        """Format a tick."""
        return number(100 * value) if self.axis.percent else number(value)


def number(value: float) -> str:
    """Shorten a number: 1200 as 1.2k, 0.00001 as 1e-05."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"
