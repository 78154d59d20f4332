"""What a grid file says."""

import math
import zlib
from dataclasses import field
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from xmtc.config.base import config
from xmtc.run.config import Seed

SET_BY_SWEEP = ("name", "seed", "track.directory", "data.corpus")
"""Keys that a sweep sets in each of its runs."""
_DIGITS = 3
"""Significant digits of drawn numbers: more would only make the table hard to read."""

Range = Annotated[list[float], Field(min_length=2, max_length=2)]


@config
class DrawConfig:
    """How values of a key are drawn; exactly one of the three is given."""

    choice: list[Any] | None = None
    """Each of these values is equally likely."""
    uniform: Range | None = None
    """Lowest and highest value; numbers between them are equally likely."""
    loguniform: Range | None = None
    """Lowest and highest value; numbers whose logarithms lie between theirs are equally likely."""

    def __post_init__(self) -> None:
        """Refuse none or several kinds of drawing, empty choices, and ranges without numbers."""
        kinds = [
            name
            for name in ("choice", "uniform", "loguniform")
            if getattr(self, name) is not None
        ]
        if len(kinds) != 1:
            raise ValueError("give exactly one of choice, uniform and loguniform")
        if self.choice == []:
            raise ValueError("choice: has no values; give at least one")
        limits = self.uniform or self.loguniform
        if limits is not None and not limits[0] < limits[1]:
            raise ValueError(
                f"{kinds[0]}: {limits}: the first number must be less than the second"
            )
        if self.loguniform is not None and self.loguniform[0] <= 0:
            raise ValueError(
                f"loguniform: {self.loguniform}: both numbers must be greater than 0"
            )

    def place(self, key: str, index: int) -> float:
        """Draw a number between 0 and 1 that depends on the key and the number of the draw only.

        More draws, or draws of other keys, therefore leave the earlier draws, and their trained runs, as they are.
        """
        return float(np.random.default_rng([zlib.crc32(key.encode()), index]).random())

    def number(self, place: float) -> float:
        """Return the number of the range at a place between 0 and 1, rounded to three significant digits."""
        if self.uniform is not None:
            low, high = self.uniform
            value = low + place * (high - low)
        else:
            assert self.loguniform is not None, "values of a choice are not computed"
            low, high = self.loguniform
            value = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        return float(f"{value:.{_DIGITS}g}")


@config
class SweepConfig:
    """What a grid file says."""

    grid: dict[str, list[Any]] = field(default_factory=dict)
    """Configuration keys, such as `finetune.optimizer.learning_rate`, each with the values to try: every combination is
    a cell."""
    draw: dict[str, DrawConfig] = field(default_factory=dict)
    """Configuration keys whose values are drawn, such as `finetune.batch_size: {choice: [16, 32]}`. Every combination
    of the grid is tried with each draw."""
    draws: Annotated[int, Field(ge=1)] = 8
    """How many times values are drawn, if there are keys to draw."""
    seeds: Annotated[list[Seed], Field(min_length=1)] = field(
        default_factory=lambda: [1]
    )
    """Each cell is trained once with each."""
    metrics: Annotated[list[str], Field(min_length=1)] = field(
        default_factory=lambda: ["micro_f1", "macro_f1"]
    )
    """Of dev's `metrics.json`, compared; the first one orders the table."""

    @property
    def keys(self) -> list[str]:
        """The keys in which cells differ, those of the grid first."""
        return [*self.grid, *self.draw]

    def __post_init__(self) -> None:
        """Refuse what the sweep itself sets, keys without values, keys set twice, and seeds given twice."""
        if not self.keys:
            raise ValueError("give at least one key under grid or draw")
        for key in self.grid:
            _check_key("grid", key)
            if not self.grid[key]:
                raise ValueError(f"grid: {key} has no values; give at least one")
        for key in self.draw:
            _check_key("draw", key)
            if key in self.grid:
                raise ValueError(
                    f"draw: {key} is in the grid too; take it out of one of them"
                )
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: {self.seeds}: one is given twice; take it out")


def _check_key(section: str, key: str) -> None:
    """Refuse a key that the sweep sets, or a section that contains one."""
    for own_key in SET_BY_SWEEP:
        if own_key == key:
            raise ValueError(
                f"{section}: {key} is set by the sweep; take it out (seeds go under `seeds`)"
            )
        if own_key.startswith(f"{key}."):
            raise ValueError(
                f"{section}: {key} holds {own_key}, which the sweep sets; give its other keys one by one"
            )
