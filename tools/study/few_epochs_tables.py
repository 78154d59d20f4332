"""Verdicts, tables and picture of the study of few epochs, from its raw lines.

    PYTHONPATH=tools/plugins python tools/study/few_epochs_tables.py docs/benchmarks/planting/few_epochs

Prints Markdown; with `--picture FILE.svg` it also draws a picture, which needs matplotlib. Intervals are those of
planting_tables.py: paired bootstrap over seeds, documents and labels.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from few_epochs_settings import (
    CHOSEN,
    EPOCHS,
    FORMER_STARTS,
    SEEDS,
    SETTINGS,
    START_PARTS,
)
from planting_outcomes import Gold
from planting_tables import Contrast, Results, rows

METRICS = {
    "ndcg@5": "nDCG@5",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "1-5/macro_f1": "rare labels",
}
Interval = tuple[float, float, float]
"""Mean, low and high of a difference in points."""


@dataclass(frozen=True)
class Bar:
    """What a metric of a difference must reach.

    Attributes:
        metric: key of `METRICS`.
        mean: that the mean must reach at least.
        low: that the interval's lower end must exceed.
    """

    metric: str
    mean: float
    low: float = 0.0

    def is_reached(self, interval: Interval) -> bool:
        """Whether mean and lower end suffice."""
        mean, low, _ = interval
        return mean >= self.mean and low > self.low


@dataclass(frozen=True)
class Hypothesis:
    """A difference of two starts that must reach bars.

    Attributes:
        name: in the protocol.
        better: start and epochs that should lead.
        worse: start and epochs that they are compared with.
        system: `head` or `fused`.
        bars: that all must be reached.
        settings: in which it is asked.
    """

    name: str
    better: tuple[str, int]
    worse: tuple[str, int]
    system: str
    bars: Sequence[Bar]
    settings: Sequence[str]


ALL = tuple(SETTINGS)
HYPOTHESES = (
    Hypothesis(
        "P1",
        ("rows", 1),
        ("random", 1),
        "head",
        [Bar("macro_f1", 8), Bar("ndcg@5", 2)],
        ALL,
    ),
    Hypothesis(
        "P2",
        ("rows", 1),
        ("random", 2),
        "head",
        [Bar("ndcg@5", -1, low=-1), Bar("macro_f1", 0)],
        ALL,
    ),
    Hypothesis(
        "P3",
        ("rows", 1),
        ("random", 1),
        "fused",
        [Bar("macro_f1", 1)],
        ["decoder-docstrings"],
    ),
)
CONTRASTS = (
    *((("rows", epochs), ("random", epochs)) for epochs in EPOCHS),
    (("rows", 1), ("random", 2)),
    (("rows", 2), ("random", 4)),
    *((("everything", epochs), ("random", epochs)) for epochs in EPOCHS),
    (("everything", 1), ("random", 2)),
    *((("everything", epochs), ("rows", epochs)) for epochs in EPOCHS),
    *(((CHOSEN, epochs), ("rows", epochs)) for epochs in EPOCHS),
    *(((start, 1), ("random", 1)) for start in FORMER_STARTS),
    (("everything_diagonal", 1), ("random", 2)),
    (("rows", 1), ("diagonal", 1)),
    (("everything", 1), ("everything_diagonal", 1)),
    (("everything_diagonal", 1), ("rows", 1)),
)


def arm_of(start: str, epochs: int) -> str:
    """The name of a cell among the arms of `planting_tables.Results`."""
    return f"{start}, {epochs}"


def read_results(folder: Path, setting: str, resamples: int) -> Results:
    """Lines and predictions of a setting; those of the start that dev chose occur under its name, too."""
    chosen = {}
    choices = folder / f"{setting}.choices.jsonl"
    if choices.exists():
        chosen = {line["seed"]: line["start"] for line in rows(choices)}
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    predicted: dict[tuple[str, int], dict[str, Any]] = {}
    gold, *outcomes = rows(folder / f"{setting}.outcomes.jsonl")
    for target, source in (
        (lines, rows(folder / f"{setting}.jsonl")),
        (predicted, outcomes),
    ):
        for line in source:
            target[arm_of(line["start"], line["epochs"]), line["seed"]] = line
            if chosen.get(line["seed"]) == line["start"]:
                target[arm_of(CHOSEN, line["epochs"]), line["seed"]] = line
    return Results(setting, lines, Gold.from_json(gold), predicted, resamples)


def title_of(setting: str) -> str:
    """A setting in words."""
    backbone, corpus = SETTINGS[setting].backbone, SETTINGS[setting].corpus
    shown = {"minilm": "MiniLM", "mpnet": "mpnet", "decoder": "Gemma 270M with LoRA"}[
        backbone
    ]
    return f"{shown}, {SETTINGS[setting].documents:,} {corpus}"


def contrast_of(
    results: Results, better: tuple[str, int], worse: tuple[str, int], system: str
) -> Contrast | None:
    """The difference of two cells; None if they have no seed in common."""
    contrast = Contrast("", {arm_of(*better): 1, arm_of(*worse): -1}, system)
    return contrast if results.seeds(*contrast.weights) else None


def shown(interval: Interval) -> str:
    """A difference with its interval."""
    mean, low, high = interval
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def verdicts(all_results: dict[str, Results]) -> Iterator[str]:
    """The table of hypotheses by setting."""
    yield "| hypothesis | setting | seeds | difference, points | verdict |"
    yield "|---|---|---|---|---|"
    for hypothesis in HYPOTHESES:
        for setting in hypothesis.settings:
            results = all_results.get(setting)
            contrast = results and contrast_of(
                results, hypothesis.better, hypothesis.worse, hypothesis.system
            )
            if results is None or contrast is None:
                yield f"| {hypothesis.name} | {title_of(setting)} | 0 | | not run |"
                continue
            seeds = len(results.seeds(*contrast.weights))
            intervals = [
                results.contrast(contrast, bar.metric) for bar in hypothesis.bars
            ]
            reached = all(
                bar.is_reached(found)
                for bar, found in zip(hypothesis.bars, intervals, strict=True)
            )
            verdict = "holds" if reached else "does not hold"
            if seeds < len(SEEDS):
                verdict = f"not finished (so far it {verdict})"
            cells = [
                f"{METRICS[b.metric]} {shown(i)}"
                for b, i in zip(hypothesis.bars, intervals, strict=True)
            ]
            yield f"| {hypothesis.name} | {title_of(setting)} | {seeds} | {'; '.join(cells)} | {verdict} |"


def figures(results: Results) -> Iterator[str]:
    """Means over seeds of every cell that has runs."""
    yield "| start | epochs | seeds | measured | P@1 | nDCG@5 | micro-F1 | macro-F1 | rare labels | CPU minutes |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for start in (*START_PARTS, *FORMER_STARTS, CHOSEN):
        for epochs in EPOCHS:
            arm = arm_of(start, epochs)
            seeds = results.seeds(arm)
            if not seeds:
                continue
            seconds = [
                sum(results.lines[arm, seed]["cpu_s"].values()) for seed in seeds
            ]
            for system, title in (("head", "head alone"), ("fused", "fused")):
                means = results.means(arm, system)
                values = [
                    means[key]
                    for key in ("p@1", "ndcg@5", "micro_f1", "macro_f1", "1-5")
                ]
                cells = " | ".join(f"{value:.1f}" for value in values)
                minutes = f"{np.mean(seconds) / 60:.1f}" if system == "head" else ""
                yield f"| {start} | {epochs} | {len(seeds)} | {title} | {cells} | {minutes} |"


def comparisons(results: Results) -> Iterator[str]:
    """Differences of cells with their intervals, in points."""
    yield f"| difference, points | measured | seeds | {' | '.join(METRICS.values())} |"
    yield "|---|---|---" + "|---" * len(METRICS) + "|"
    for better, worse in CONTRASTS:
        for system, title in (("head", "head alone"), ("fused", "fused")):
            contrast = contrast_of(results, better, worse, system)
            if contrast is not None:
                cells = " | ".join(
                    shown(results.contrast(contrast, metric)) for metric in METRICS
                )
                seeds = len(results.seeds(*contrast.weights))
                yield f"| {arm_of(*better)} − {arm_of(*worse)} | {title} | {seeds} | {cells} |"


def draw(all_results: dict[str, Results], path: Path) -> None:
    """Draw nDCG@5 and macro-F1 of the head alone over epochs, a column for each setting, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update(
        {"svg.hashsalt": "few epochs", "svg.fonttype": "none", "font.size": 9}
    )
    styles = {
        "random": ("#777777", "o--"),
        "rows": ("#0a5", "s-"),
        "everything": ("#05a", "^-"),
    }
    figure = Figure(figsize=(3 * len(all_results) + 0.6, 4.8), layout="constrained")
    axes = figure.subplots(2, len(all_results), squeeze=False, sharex=True)
    for column, (setting, results) in enumerate(all_results.items()):
        for axis, key in zip(axes[:, column], ("ndcg@5", "macro_f1"), strict=True):
            for start, (colour, style) in styles.items():
                epochs = [
                    count for count in EPOCHS if results.seeds(arm_of(start, count))
                ]
                means = [
                    results.means(arm_of(start, count), "head")[key] for count in epochs
                ]
                if epochs:
                    axis.plot(epochs, means, style, color=colour, label=start)
            axis.set_ylabel(METRICS[key])
            axis.set_xscale("log", base=2)
            axis.set_xticks(EPOCHS, [str(count) for count in EPOCHS])
            axis.grid(alpha=0.3)
        axes[0, column].set_title(title_of(setting), fontsize=9)
        axes[1, column].set_xlabel("epochs of the complete schedule")
    axes[0, 0].legend(frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, help="where few_epochs.py wrote its lines"
    )
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--picture", type=Path, help="draw this SVG file, too")
    arguments = parser.parse_args()
    finished = [
        name for name in SETTINGS if (arguments.directory / f"{name}.jsonl").exists()
    ]
    all_results = {
        name: read_results(arguments.directory, name, arguments.resamples)
        for name in finished
    }
    print("\n".join(verdicts(all_results)))
    for setting, results in all_results.items():
        print(f"\n## {title_of(setting)}\n")
        print("\n".join(figures(results)) + "\n")
        print("\n".join(comparisons(results)))
    if arguments.picture:
        draw(all_results, arguments.picture)


if __name__ == "__main__":
    main()
