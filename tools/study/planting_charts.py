"""Charts of the planting study as SVG files, light and dark."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from planting_settings import BINS, SEEDS

Lines = Mapping[tuple[str, int], dict[str, Any]]
"""Figures by arm and seed."""
FEW_SHOT = {250: "g250", 500: "g500", 2000: "b"}
"""Settings that differ in the number of training documents alone."""
BY_BINS = "g250"
"""The setting that is shown by the number of training documents of a label."""
SHOWN = {
    "random_long": "random start, as many epochs",
    "planted_attention": "planted attention",
    "prototypes": "rows at prototypes",
    "planted": "both parts of planting",
    "prototypes_long": "rows at prototypes, as many epochs",
    "shuffled": "another label's tokens",
}
_LOOKS = (("o", "-"), ("s", "--"), ("D", ":"), ("^", "-."), ("P", (0, (5, 1))), ("v", (0, (1, 2))))
_PALETTES = {
    "light": ("#ffffff", "#1b1f24", "#d5dae0", ("#0072b2", "#d55e00", "#008a65", "#b0568c", "#5b3fb0", "#a87900")),
    "dark": ("#14181d", "#e8ebee", "#39424c", ("#56b4e9", "#ff9345", "#2fd3a2", "#e79bc8", "#b3a1f5", "#f0c54a")),
}


def write_charts(settings: Mapping[str, Lines], folder: Path) -> None:
    """Write every chart that there are lines for.

    Args:
        settings: lines by setting.
        folder: gets `<chart>-light.svg` and `<chart>-dark.svg`.
    """
    if len(_arms(settings.get(BY_BINS, {}))) > 2:
        _write(folder / f"{BY_BINS}-bins", _bins, settings[BY_BINS])
    sizes = {size: settings[setting] for size, setting in FEW_SHOT.items() if setting in settings}
    if len(sizes) > 1:
        _write(folder / "few-shot", _few_shot, sizes)


def _arms(lines: Lines) -> list[str]:
    """Find the arms to show that have all their seeds."""
    return [arm for arm in SHOWN if len(_of(lines, arm)) == SEEDS]


def _of(lines: Lines, arm: str) -> list[dict[str, Any]]:
    return [line for (found, _), line in lines.items() if found == arm]


def _bins(axes: Axes, lines: Lines) -> None:
    """Macro-F1 of the head alone by training documents of a label; bars and ranges over seeds."""
    arms = _arms(lines)
    names = [name for name in BINS if any(line["head"]["bins"][name] for line in lines.values())]
    for place, arm in enumerate(arms):
        values_SB = np.array([[line["head"]["bins"][name] for name in names] for line in _of(lines, arm)])
        mean_B = values_SB.mean(0)
        at_B = np.arange(len(names)) + 0.8 * ((place + 0.5) / len(arms) - 0.5)
        ranges = np.stack([mean_B - values_SB.min(0), values_SB.max(0) - mean_B])
        bars = {"color": _colour(arm), "ecolor": mpl.rcParams["text.color"], "label": SHOWN[arm]}
        axes.bar(at_B, mean_B, 0.8 / len(arms), yerr=ranges, error_kw={"elinewidth": 1}, **bars)
    axes.set_xticks(range(len(names)), [name.replace("-", "–") for name in names])
    axes.set(xlabel="training documents of the label", ylabel="macro-F1, %")


def _few_shot(axes: Axes, sizes: Mapping[int, Lines]) -> None:
    """Macro-F1 of labels with 1 to 5 training documents by training documents, mean and range over seeds."""
    for arm in ("random_long", "planted_attention", "prototypes", "planted"):
        _band(
            axes,
            _look_of(arm),
            list(sizes),
            [[line["head"]["bins"]["1-5"] for line in _of(of, arm)] for of in sizes.values()],
        )
    trees = [_of(lines, "parabel")[0]["head"]["bins"]["1-5"] for lines in sizes.values()]
    axes.plot(list(sizes), trees, color=mpl.rcParams["text.color"], linewidth=1, label="omikuji Parabel")
    axes.set_xscale("log")
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="training documents", ylabel="macro-F1, labels with 1–5 documents, %", ylim=(0, None))


def _band(axes: Axes, look: dict[str, Any], x: Sequence[int], values: Sequence[Sequence[float]]) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest.

    Args:
        axes: to draw on.
        look: of the line.
        x: places.
        values: of the seeds, for each place.
    """
    axes.plot(x, [np.mean(of_seeds) for of_seeds in values], **look)
    low, high = [min(of_seeds) for of_seeds in values], [max(of_seeds) for of_seeds in values]
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def _colour(arm: str) -> str:
    """Name the colour in matplotlib's cycle, so that an arm looks the same in all charts."""
    return f"C{list(SHOWN).index(arm)}"


def _look_of(arm: str) -> dict[str, Any]:
    return _look(list(SHOWN).index(arm), SHOWN[arm])


def _look(place: int, label: str) -> dict[str, Any]:
    marker, dashes = _LOOKS[place]
    return {"color": f"C{place}", "marker": marker, "linestyle": dashes, "label": label, "markersize": 5}


def _write(stem: Path, draw: Callable[[Axes, Any], None], data: Any) -> None:
    """Write a chart in both palettes; the same data give the same bytes."""
    for name, (paper, ink, grid, colours) in _PALETTES.items():
        style = {"figure.facecolor": paper, "axes.facecolor": paper, "savefig.facecolor": paper, "grid.color": grid}
        style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
        style |= {"axes.prop_cycle": cycler(color=colours), "axes.grid": True, "axes.grid.axis": "y"}
        style |= {"axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
        with mpl.rc_context(style | {"svg.fonttype": "none", "svg.hashsalt": stem.name, "legend.frameon": False}):
            figure = Figure(figsize=(6, 3.6), layout="constrained")
            axes = figure.add_subplot()
            draw(axes, data)
            figure.legend(loc="outside upper left", ncols=2, fontsize=8)
            figure.savefig(stem.with_name(f"{stem.name}-{name}.svg"), metadata={"Date": None})
