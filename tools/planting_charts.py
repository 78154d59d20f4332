"""Charts of the planting study as SVG files, light and dark: bars by frequency, learning curves, few-shot curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.report.scale import Axis
from xmtc.report.svg import HEIGHT, WIDTH, Bars, Series, bar_chart, line_chart

Lines = Mapping[tuple[str, int], dict[str, Any]]
"""Figures by arm and seed."""
BINS = ("1-5", "6-10", "11-50", ">50")
SHOWN = ("random_long", "planted_attention", "prototypes", "planted", "shuffled")
_LIGHT = ("#ffffff", "#1b1f24", "#5c6670", "#d5dae0", "#0072b2 #d55e00 #008a65 #b0568c #a87900")
_DARK = ("#14181d", "#e8ebee", "#a3adb8", "#39424c", "#56b4e9 #ff9345 #2fd3a2 #e79bc8 #f0c54a")
_DASHES = ("", "8 3", "3 3", "10 3 2 3", "1 3")
_LEGEND = 22


def write_charts(settings: Mapping[str, Lines], folder: Path) -> None:
    """Write every chart that there are lines for.

    Args:
        settings: lines by setting.
        folder: gets `<chart>-light.svg` and `<chart>-dark.svg`.
    """
    for setting, lines in settings.items():
        arms = [arm for arm in SHOWN if any(arm == found for found, _ in lines)]
        if len(arms) > 2:  # settings of two arms are points of the few-shot curve
            _write(folder / f"{setting}-bins", _bins(lines, arms), arms)
            _write(folder / f"{setting}-epochs", _epochs(lines, arms), arms)
    sizes = {int(name[1:]): lines for name, lines in settings.items() if name[1:].isdigit() and name[0] == "f"}
    if "b" in settings:
        sizes[2000] = settings["b"]
    if len(sizes) > 1:
        arms = ("random_long", "planted")
        _write(folder / "few-shot", _few_shot(dict(sorted(sizes.items())), arms), arms)


def _of(lines: Lines, arm: str) -> list[dict[str, Any]]:
    return [line for (found, _), line in lines.items() if found == arm]


def _bins(lines: Lines, arms: Sequence[str]) -> str:
    bars = []
    for arm in arms:
        values_SB = np.array([[line["head"]["bins"][name] for name in BINS] for line in _of(lines, arm)])
        ranges = list(zip(values_SB.min(0), values_SB.max(0), strict=True))
        bars.append(Bars(arm, values_SB.mean(0).tolist(), SHOWN.index(arm), [[float(a), float(b)] for a, b in ranges]))
    what = "Macro-F1 of the head alone by training documents of a label, mean and range over seeds"
    return bar_chart(BINS, bars, "training documents of the label", Axis("macro-F1, %"), what)


def _epochs(lines: Lines, arms: Sequence[str]) -> str:
    series = []
    for arm in arms:
        curves = [[100 * epoch["macro_f1"] for epoch in line["curves"]["finetune"]] for line in _of(lines, arm)]
        mean = np.mean(curves, axis=0)
        series.append(Series(arm, list(range(1, len(mean) + 1)), mean.tolist(), SHOWN.index(arm), marked=True))
    what = "Macro-F1 on the choosing half of dev after each epoch of stage 2, mean over seeds"
    return line_chart(series, Axis("epoch of stage 2"), Axis("macro-F1, %", low=0), what)


def _few_shot(sizes: Mapping[int, Lines], arms: Sequence[str]) -> str:
    series = []
    for arm in arms:
        run = SHOWN.index(arm)
        points = [(size, [line["head"]["bins"]["1-5"] for line in _of(lines, arm)]) for size, lines in sizes.items()]
        points = [(size, values) for size, values in points if values]
        x = [size for size, _ in points]
        series.append(Series(arm, x, [float(np.mean(values)) for _, values in points], run, marked=True))
        edges = {"lowest": min, "highest": max}  # a band, as two faint lines
        series += [Series(f"{arm}, {n}", x, [end(v) for _, v in points], run, faint=True) for n, end in edges.items()]
    axis = Axis("training documents", log=True)
    what = "Macro-F1 of labels with 1 to 5 training documents by training documents, mean and range over seeds"
    return line_chart(series, axis, Axis("macro-F1, 1–5 documents, %", low=0), what)


def _write(stem: Path, chart: str, arms: Sequence[str]) -> None:
    for name, palette in (("light", _LIGHT), ("dark", _DARK)):
        stem.with_name(f"{stem.name}-{name}.svg").write_text(_standalone(chart, arms, palette), encoding="utf-8")


def _standalone(chart: str, arms: Sequence[str], palette: Sequence[str]) -> str:
    """Write a chart of the report with its colours and a legend to a separate file."""
    paper, ink, soft, grid, colours = palette
    rules = [f".{name}{{stroke:{colour};fill:none}}" for name, colour in (("axis", soft), ("grid", grid))]
    rules += [f"text{{font:12px sans-serif;fill:{soft};text-anchor:middle}}text.y{{text-anchor:end}}"]
    rules += [f"text.title,text.name{{fill:{ink}}}text.name{{text-anchor:start}}polyline{{fill:none;stroke-width:2.2}}"]
    rules += [f".faint polyline{{stroke:{soft};stroke-width:0.8}}.whisker{{stroke:{ink};fill:none}}"]
    for run, (colour, dashes) in enumerate(zip(colours.split(), _DASHES, strict=True)):
        rules.append(f".run-{run} polyline{{stroke:{colour};stroke-dasharray:{dashes or 'none'}}}")
        rules.append(f".run-{run} circle,.run-{run} rect,.run-{run} path:not(.whisker){{fill:{colour}}}")
    x, legend = 10.0, []
    for arm in arms:
        run = SHOWN.index(arm)
        legend.append(f'<g class="run run-{run}"><rect x="{x:.0f}" y="6" width="10" height="10"/></g>')
        legend.append(f'<text class="name" style="font-size:9.5px" x="{x + 13:.0f}" y="15">{arm}</text>')
        x += 24 + 5.2 * len(arm)
    inner = chart[chart.index(">") + 1 : chart.rindex("</svg>")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + _LEGEND}" role="img">'
        f"<style>{''.join(rules)}</style>"
        f'<rect width="{WIDTH}" height="{HEIGHT + _LEGEND}" style="fill:{paper}"/>{"".join(legend)}'
        f'<g transform="translate(0 {_LEGEND})">{inner}</g></svg>\n'
    )
