"""Charts of the planting study as SVG files, light and dark: bars by frequency, learning curves, few-shot curves."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

Lines = Mapping[tuple[str, int], dict[str, Any]]
"""Figures by arm and seed."""
BINS = ("1-5", "6-10", "11-50", ">50")
SEEDS = 5
SHOWN = {
    "random_long": "random start, as many epochs",
    "planted_attention": "planted attention",
    "prototypes": "rows at prototypes",
    "planted": "both parts of planting",
    "shuffled": "another label's tokens",
}
_LOOKS = (("o", "-"), ("s", "--"), ("D", ":"), ("^", "-."), ("v", (0, (1, 2))))
_PALETTES = {
    "light": ("#ffffff", "#1b1f24", "#d5dae0", ("#0072b2", "#d55e00", "#008a65", "#b0568c", "#a87900")),
    "dark": ("#14181d", "#e8ebee", "#39424c", ("#56b4e9", "#ff9345", "#2fd3a2", "#e79bc8", "#f0c54a")),
}


def write_charts(settings: Mapping[str, Lines], folder: Path) -> None:
    """Write every chart that there are lines for.

    Args:
        settings: lines by setting.
        folder: gets `<chart>-light.svg` and `<chart>-dark.svg`.
    """
    sizes: dict[int, Lines] = {}
    for setting, lines in settings.items():
        kind, size = setting[0], int(setting[1:]) if setting[1:].isdigit() else 0
        if kind in "fg" and size:
            if kind == "f" or all(len(_of(lines, arm)) == SEEDS for arm in _arms(lines)):
                sizes[size] = lines  # g comes after f, and has more arms
        elif len(_arms(lines)) > 1:
            _write(folder / f"{setting}-bins", _bins, lines)
            _write(folder / f"{setting}-epochs", _epochs, lines)
    if sizes:
        _write(folder / "few-shot", _few_shot, dict(sorted((sizes | {2000: settings.get("b", {})}).items())))


def _arms(lines: Lines) -> list[str]:
    found = {arm for arm, _ in lines}
    return [arm for arm in SHOWN if arm in found]


def _of(lines: Lines, arm: str) -> list[dict[str, Any]]:
    return [line for (found, _), line in lines.items() if found == arm]


def _bins(axes: Axes, lines: Lines) -> None:
    """Macro-F1 of the head alone by training documents of a label; bars and ranges over seeds."""
    arms = _arms(lines)
    for place, arm in enumerate(arms):
        values_SB = np.array([[line["head"]["bins"][name] for name in BINS] for line in _of(lines, arm)])
        mean_B = values_SB.mean(0)
        at_B = np.arange(len(BINS)) + 0.8 * ((place + 0.5) / len(arms) - 0.5)
        ranges = np.stack([mean_B - values_SB.min(0), values_SB.max(0) - mean_B])
        bars = {"color": _colour(arm), "ecolor": mpl.rcParams["text.color"], "label": SHOWN[arm]}
        axes.bar(at_B, mean_B, 0.8 / len(arms), yerr=ranges, error_kw={"elinewidth": 1}, **bars)
    axes.set_xticks(range(len(BINS)), [name.replace("-", "–") for name in BINS])
    axes.set(xlabel="training documents of the label", ylabel="macro-F1, %")


def _epochs(axes: Axes, lines: Lines) -> None:
    """Macro-F1 on the choosing half of dev after each epoch of stage 2, mean over seeds."""
    for arm in _arms(lines):
        curves = [[100 * epoch["macro_f1"] for epoch in line["curves"]["finetune"]] for line in _of(lines, arm)]
        mean = np.mean(curves, axis=0)
        axes.plot(range(1, len(mean) + 1), mean, **_look(arm))
    axes.set(xlabel="epoch of stage 2", ylabel="macro-F1, %", ylim=(0, None))


def _few_shot(axes: Axes, sizes: Mapping[int, Lines]) -> None:
    """Macro-F1 of labels with 1 to 5 training documents by training documents, mean and range over seeds."""
    for arm in ("random_long", "prototypes", "planted"):
        found = {size: [line["head"]["bins"]["1-5"] for line in _of(lines, arm)] for size, lines in sizes.items()}
        found = {size: values for size, values in found.items() if values}
        if len(found) > 1:
            x, bands = list(found), list(found.values())
            axes.plot(x, [np.mean(values) for values in bands], **_look(arm))
            low, high = [min(values) for values in bands], [max(values) for values in bands]
            axes.fill_between(x, low, high, color=_colour(arm), alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(list(sizes), [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="training documents", ylabel="macro-F1, labels with 1–5 documents, %", ylim=(0, None))


def _colour(arm: str) -> str:
    """Name the colour in matplotlib's cycle, so that an arm looks the same in all charts."""
    return f"C{list(SHOWN).index(arm)}"


def _look(arm: str) -> dict[str, Any]:
    marker, dashes = _LOOKS[list(SHOWN).index(arm)]
    return {"color": _colour(arm), "marker": marker, "linestyle": dashes, "label": SHOWN[arm], "markersize": 5}


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
            axes.legend(fontsize=8)
            figure.savefig(stem.with_name(f"{stem.name}-{name}.svg"), metadata={"Date": None})
