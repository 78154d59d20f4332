"""Charts as inline SVG. Colours are classes, so that the page's style sheet gives them for light, dark and print.

Runs differ by colour, dashes and marker, so that no one needs to tell colours apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

WIDTH, HEIGHT = 440, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 12, 44
_MARKERS = ("circle", "square", "triangle", "diamond")


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


class _Scale:
    """Data to pixels."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float):
        finite = [v for v in values if math.isfinite(v) and (v > 0 or not axis.log)] or [0.0 if not axis.log else 1.0]
        low = min(finite) if axis.low is None else axis.low
        high = max(finite) if axis.high is None else axis.high
        if high <= low:
            high = low + (abs(low) or 1.0)
        self.axis, self._start, self._span = axis, start, end - start
        self._low, self._high = (math.log10(low), math.log10(high)) if axis.log else (low, high)

    def __call__(self, value: float) -> float:
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
        """A tick's text."""
        return number(100 * value) if self.axis.percent else number(value)


def number(value: float) -> str:
    """A short form: 1200 as 1.2k, 0.00001 as 1e-05."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def line_chart(series: Sequence[Series], x: Axis, y: Axis, label: str) -> Markup:
    """Lines over a common x.

    Args:
        series: at least one, with at least one point in all.
        x: x axis.
        y: y axis.
        label: what the chart shows, for those who cannot see it.
    """
    across = _Scale(x, [v for s in series for v in s.x], _LEFT, WIDTH - _RIGHT)
    up = _Scale(y, [v for s in series for v in s.y], HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(across, up), _x_ticks(across)]
    for line in series:
        points = [(a, b) for a, b in zip(line.x, line.y, strict=True) if math.isfinite(b)]
        placed = [(across(a), up(b)) for a, b in points]
        look = "faint" if line.faint else f"run run-{line.run}"
        path = " ".join(f"{px},{py}" for px, py in placed)
        parts.append(f'<g class="{look}"><polyline points="{path}"/>')
        if line.marked:
            for (px, py), (a, b) in zip(placed, points, strict=True):
                tip = escape(f"{line.name}: {across.label(a)} → {up.label(b)}")
                parts.append(_marker(line.run, px, py, str(tip)))
        parts.append("</g>")
    return _svg(parts, label)


def bar_chart(groups: Sequence[str], bars: Sequence[Bars], x_title: str, y: Axis, label: str) -> Markup:
    """Bars side by side in each group, with whiskers for intervals.

    Args:
        groups: names of the groups.
        bars: each run's.
        x_title: what the groups are.
        y: y axis; it begins at 0.
        label: what the chart shows, for those who cannot see it.
    """
    tops = [v for b in bars for v in b.values if v is not None]
    tops += [i[1] for b in bars for i in b.intervals if i is not None]
    up = _Scale(Axis(y.title, y.percent, y.log, 0 if y.low is None else y.low, y.high), tops, HEIGHT - _BOTTOM, _TOP)
    slot = (WIDTH - _LEFT - _RIGHT) / max(len(groups), 1)
    width = min(0.8 * slot / max(len(bars), 1), 46.0)
    parts = [_frame(_Scale(Axis(x_title), [0, 1], _LEFT, WIDTH - _RIGHT), up)]
    for g, group in enumerate(groups):
        middle = _LEFT + slot * (g + 0.5)
        parts.append(f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - _BOTTOM + 16}">{escape(group)}</text>')
        for b, bar in enumerate(bars):
            left = middle + (b - len(bars) / 2) * width
            parts.append(_bar(bar, g, group, (left, width), up))
    return _svg(parts, label)


def _bar(bar: Bars, group: int, name: str, place: tuple[float, float], up: _Scale) -> str:
    value = bar.values[group]
    if value is None:
        return ""
    (left, width), top, bottom = place, up(value), HEIGHT - _BOTTOM
    interval = bar.intervals[group] if group < len(bar.intervals) else None
    tip = f"{bar.name}, {name}: {up.label(value)}"
    whisker = ""
    if interval is not None:
        tip += f" [{up.label(interval[0])}, {up.label(interval[1])}]"
        middle = left + width / 2
        low, high = up(interval[0]), up(interval[1])
        whisker = (
            f'<path class="whisker" d="M{middle:.1f} {low}V{high}M{middle - 4:.1f} {low}h8M{middle - 4:.1f} {high}h8"/>'
        )
    shape = f'<rect x="{left:.1f}" y="{top}" width="{max(width - 2, 1):.1f}" height="{max(bottom - top, 0):.1f}"/>'
    return f'<g class="run run-{bar.run} bar"><title>{escape(tip)}</title>{shape}{whisker}</g>'


def _frame(across: _Scale, up: _Scale) -> str:
    """Axes' titles, horizontal grid and y ticks."""
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
    for tick in up.ticks():
        height = up(tick)
        parts.append(f'<path class="grid" d="M{_LEFT} {height}H{right}"/>')
        parts.append(f'<text class="tick y" x="{_LEFT - 6}" y="{height + 4}">{escape(up.label(tick))}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text class="title" x="{middle}" y="{HEIGHT - 6}">{escape(across.axis.title)}</text>')
    y_middle = (_TOP + bottom) / 2
    turn = f'transform="translate(12 {y_middle}) rotate(-90)"'
    parts.append(f'<text class="title" {turn}>{escape(up.axis.title)}</text>')
    return "".join(parts)


def _x_ticks(across: _Scale) -> str:
    bottom = HEIGHT - _BOTTOM
    return "".join(
        f'<path class="axis" d="M{across(t)} {bottom}v4"/>'
        f'<text class="tick" x="{across(t)}" y="{bottom + 16}">{escape(across.label(t))}</text>'
        for t in across.ticks()
    )


def _marker(run: int, x: float, y: float, tip: str) -> str:
    shapes = {
        "circle": f'<circle cx="{x}" cy="{y}" r="3.5">',
        "square": f'<path d="M{x - 3} {y - 3}h6v6h-6z">',
        "triangle": f'<path d="M{x} {y - 4}l4 7h-8z">',
        "diamond": f'<path d="M{x} {y - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z">',
    }
    shape = shapes[_MARKERS[run % len(_MARKERS)]]
    return f"{shape}<title>{tip}</title></{shape[1:].split()[0]}>"


def swatch(run: int) -> Markup:
    """A run's line and marker, for legends."""
    body = f'<g class="run run-{run}"><polyline points="0,7 26,7"/>{_marker(run, 13, 7, "")}</g>'
    return Markup(f'<svg class="swatch" viewBox="0 0 26 14" aria-hidden="true">{body}</svg>')


def _svg(parts: Sequence[str], label: str) -> Markup:
    # every text put into the parts has gone through escape()
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
    return Markup(head + "".join(parts) + "</svg>")
