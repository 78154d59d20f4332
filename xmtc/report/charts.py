"""Charts as inline SVG. Colours are classes, so that the page's style sheet gives them for light, dark and print.

Runs differ by colour, dashes and marker, so that no one needs to tell colours apart. Python computes where things are;
the templates in `assets/charts` draw them.
"""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 270
_LEFT = 50
_RIGHT = 12
_TOP = 12
_BOTTOM = 44
_WIDEST_BAR = 46.0
_TICKS = 5
"""About how many ticks an axis has."""
_STEPS = (1, 2, 2.5, 5, 10)
"""Steps between ticks that people read easily, times a power of ten."""
_CODE = re.compile("`([^`]+)`")
_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


@functools.cache
def environment() -> Environment:
    """Make the environment of the templates in `assets`: it escapes values, and a missing one is an error."""
    made = Environment(
        loader=PackageLoader("xmtc.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["with_code"] = with_code
    return made


def with_code(text: str) -> Markup:
    """Escape a text, and set what stands between backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


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
        shown = [
            value
            for value in values
            if math.isfinite(value) and (value > 0 or not axis.log)
        ]
        if not shown:
            shown = [1.0] if axis.log else [0.0]
        low = min(shown) if axis.low is None else axis.low
        high = max(shown) if axis.high is None else axis.high
        if high <= low:
            high = low + (abs(low) or 1.0)
        self.axis = axis
        self._start = start
        self._span = end - start
        self._low = math.log10(low) if axis.log else low
        self._high = math.log10(high) if axis.log else high

    def __call__(self, value: float) -> float:
        """Map a value to its pixel, rounded to a tenth; values beyond the ends fall on them."""
        place = math.log10(max(value, 1e-300)) if self.axis.log else value
        share = (place - self._low) / (self._high - self._low)
        return round(self._start + self._span * min(max(share, 0.0), 1.0), 1)

    def ticks(self) -> list[float]:
        """Round values across the axis."""
        if self.axis.log:
            lowest_power = math.ceil(self._low - 1e-9)
            highest_power = math.floor(self._high + 1e-9)
            powers_apart = max(1, (highest_power - lowest_power) // _TICKS)
            return [
                10.0**power
                for power in range(lowest_power, highest_power + 1, powers_apart)
            ]
        step = _step(self._high - self._low)
        first = math.ceil(self._low / step - 1e-9)
        last = math.floor(self._high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]

    def label(self, value: float) -> str:
        """Format a tick."""
        return number(100 * value) if self.axis.percent else number(value)


def _step(span: float) -> float:
    """Return the distance of ticks on an axis of this length."""
    least_step = span / _TICKS
    power = 10.0 ** math.floor(math.log10(least_step))
    return next(factor * power for factor in _STEPS if factor * power >= least_step)


def number(value: float) -> str:
    """Shorten a number: 1200 as 1.2k, 0.00001 as 1e-05."""
    for limit, suffix in _SUFFIXES:
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: for the legend and tooltips.
        x: positions.
        y: values.
        run: index of the run, which sets the look.
        marked: draw a marker at every point.
        faint: a backdrop, such as the diagonal.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    run: int = 0
    marked: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Bars:
    """One run's bars.

    Attributes:
        name: for the legend and tooltips.
        values: one a group; None leaves its place empty.
        run: index of the run.
        intervals: [low, high] a group.
    """

    name: str
    values: Sequence[float | None]
    run: int = 0
    intervals: Sequence[Sequence[float] | None] = field(default_factory=tuple)


def line_chart(series: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Draw lines over a common x.

    Args:
        series: at least one, with at least one point in all.
        x: x axis.
        y: y axis.
        label: what the chart shows, for those who cannot see it.
    """
    across = Scale(
        x, [value for line in series for value in line.x], _LEFT, WIDTH - _RIGHT
    )
    up = Scale(
        y, [value for line in series for value in line.y], HEIGHT - _BOTTOM, _TOP
    )
    lines = [_line(line, across, up) for line in series]
    return _draw("lines", label, across, up, lines=lines, x_ticks=_ticks(across))


def _line(series: Series, across: Scale, up: Scale) -> dict[str, Any]:
    """Place a line: its look, and the pixels and tooltip of each point."""
    points = []
    for x, y in zip(series.x, series.y, strict=True):
        if math.isfinite(y):
            points.append(
                (across(x), up(y), f"{series.name}: {across.label(x)} → {up.label(y)}")
            )
    return {
        "run": series.run,
        "marked": series.marked,
        "faint": series.faint,
        "points": points,
    }


def bar_chart(
    groups: Sequence[str], bars: Sequence[Bars], x_title: str, y: Axis, label: str
) -> Markup:
    """Draw bars next to each other in each group, with whiskers for intervals.

    Args:
        groups: names of the groups.
        bars: each run's.
        x_title: what the groups are.
        y: y axis; it begins at 0.
        label: what the chart shows, for those who cannot see it.
    """
    axis = replace(y, low=y.low or 0, high=y.high or _round_top(_tops(bars)))
    up = Scale(axis, [], HEIGHT - _BOTTOM, _TOP)
    slot = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    width = min(0.8 * slot / max(len(bars), 1), _WIDEST_BAR)
    middles = [_LEFT + slot * (group + 0.5) for group in range(len(groups))]
    drawn = []
    for group, middle in enumerate(middles):
        for place, bars_of_run in enumerate(bars):
            if bars_of_run.values[group] is not None:
                left = middle + (place - len(bars) / 2) * width
                drawn.append(_bar(bars_of_run, group, groups[group], left, up))
    across = Scale(Axis(x_title), [0, 1], _LEFT, WIDTH - _RIGHT)
    names = list(zip(middles, groups, strict=True))
    return _draw("bars", label, across, up, bars=drawn, width=width, groups=names)


def _tops(bars: Sequence[Bars]) -> list[float]:
    """List the values and the upper ends of the intervals, all of which must fit into the chart."""
    tops = []
    for bars_of_run in bars:
        tops += [value for value in bars_of_run.values if value is not None]
        tops += [
            interval[1] for interval in bars_of_run.intervals if interval is not None
        ]
    return tops


def _round_top(tops: Sequence[float]) -> float | None:
    """Return the first tick that nothing rises above, where the axis ends; None if no bar has a height."""
    highest = max(tops, default=0.0)
    if highest <= 0:
        return None
    step = _step(highest)
    return step * math.ceil(highest / step - 1e-9)


def _bar(bars: Bars, group: int, name: str, left: float, up: Scale) -> dict[str, Any]:
    """Place a bar: its look, pixels and tooltip, and the ends of its interval."""
    value = bars.values[group] or 0.0
    tip = f"{bars.name}, {name}: {up.label(value)}"
    interval = bars.intervals[group] if group < len(bars.intervals) else None
    whisker = None
    if interval is not None:
        tip += f" [{up.label(interval[0])}, {up.label(interval[1])}]"
        whisker = [up(end) for end in interval]
    return {
        "run": bars.run,
        "tip": tip,
        "left": left,
        "top": up(value),
        "whisker": whisker,
    }


def swatch(run: int) -> Markup:
    """Draw a run's line and marker, for legends."""
    return Markup(environment().get_template("charts/swatch.html").render(run=run))


def _draw(kind: str, label: str, across: Scale, up: Scale, **drawn: Any) -> Markup:
    """Draw a chart by the template of its kind."""
    frame = {"width": WIDTH, "height": HEIGHT, "left": _LEFT, "right": WIDTH - _RIGHT}
    frame |= {"top": _TOP, "bottom": HEIGHT - _BOTTOM}
    titles = {"label": label, "x_title": across.axis.title, "y_title": up.axis.title}
    template = environment().get_template(f"charts/{kind}.html")
    return Markup(template.render(frame=frame, y_ticks=_ticks(up), **titles, **drawn))


def _ticks(scale: Scale) -> list[tuple[float, str]]:
    """Return the pixel and text of each tick."""
    return [(scale(tick), scale.label(tick)) for tick in scale.ticks()]
