"""Charts as inline SVG. Colours are classes, so that the page's style sheet gives them for light, dark and print.

Runs differ by colour, dashes and marker, so that no one needs to tell colours apart. Python computes where things are;
the templates in `assets/charts` draw them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from xmtc.report.scale import Axis, Scale
from xmtc.report.templates import environment

WIDTH, HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 12, 44
_WIDEST_BAR = 46.0


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


@dataclass(frozen=True)
class _Point:
    """A point of a line, in pixels, with its tooltip."""

    x: float
    y: float
    tip: str


@dataclass(frozen=True)
class _Line:
    """A line of a chart, in pixels."""

    run: int
    points: Sequence[_Point]
    marked: bool
    faint: bool


@dataclass(frozen=True)
class _Whisker:
    """The interval of a bar, in pixels."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class _Bar:
    """A bar of a chart, in pixels, with its tooltip."""

    run: int
    tip: str
    left: float
    width: float
    top: float
    whisker: _Whisker | None


def line_chart(series: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Draw lines over a common x.

    Args:
        series: at least one, with at least one point in all.
        x: x axis.
        y: y axis.
        label: what the chart shows, for those who cannot see it.
    """
    across = Scale(x, [v for s in series for v in s.x], _LEFT, WIDTH - _RIGHT)
    up = Scale(y, [v for s in series for v in s.y], HEIGHT - _BOTTOM, _TOP)
    lines = [_line(one, across, up) for one in series]
    return _draw("lines", label, across, up, lines=lines, x_ticks=_ticks(across))


def _line(series: Series, across: Scale, up: Scale) -> _Line:
    points = [
        _Point(across(a), up(b), f"{series.name}: {across.label(a)} → {up.label(b)}")
        for a, b in zip(series.x, series.y, strict=True)
        if math.isfinite(b)
    ]
    return _Line(series.run, points, series.marked, series.faint)


def bar_chart(groups: Sequence[str], bars: Sequence[Bars], x_title: str, y: Axis, label: str) -> Markup:
    """Draw bars next to each other in each group, with whiskers for intervals.

    Args:
        groups: names of the groups.
        bars: each run's.
        x_title: what the groups are.
        y: y axis; it begins at 0.
        label: what the chart shows, for those who cannot see it.
    """
    tops = [v for b in bars for v in b.values if v is not None]
    tops += [i[1] for b in bars for i in b.intervals if i is not None]
    up = Scale(Axis(y.title, y.percent, y.log, 0 if y.low is None else y.low, y.high), tops, HEIGHT - _BOTTOM, _TOP)
    slot = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    width = min(0.8 * slot / max(len(bars), 1), _WIDEST_BAR)
    drawn, middles = [], [_LEFT + slot * (g + 0.5) for g in range(len(groups))]
    for g, middle in enumerate(middles):
        for b, one in enumerate(bars):
            left = middle + (b - len(bars) / 2) * width
            drawn.append(_bar(one, g, groups[g], (left, width), up))
    across = Scale(Axis(x_title), [0, 1], _LEFT, WIDTH - _RIGHT)
    names = list(zip(middles, groups, strict=True))
    return _draw("bars", label, across, up, bars=[bar for bar in drawn if bar is not None], groups=names)


def _bar(bars: Bars, group: int, name: str, place: tuple[float, float], up: Scale) -> _Bar | None:
    value = bars.values[group]
    if value is None:
        return None
    left, width = place
    tip, whisker = f"{bars.name}, {name}: {up.label(value)}", None
    interval = bars.intervals[group] if group < len(bars.intervals) else None
    if interval is not None:
        tip += f" [{up.label(interval[0])}, {up.label(interval[1])}]"
        whisker = _Whisker(left + width / 2, up(interval[0]), up(interval[1]))
    return _Bar(bars.run, tip, left, width, up(value), whisker)


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
