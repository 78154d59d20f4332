"""Tables of the planting study from its raw lines, with paired-bootstrap intervals.

    PYTHONPATH=tools/plugins python tools/study/planting_tables.py docs/benchmarks/planting

Prints Markdown for every setting whose predictions are there. Those of the closed form are in this repository; older
ones come from `planting.py --settings b,a1,d,g250,g500 --out build/planting`. Fewer than five seeds are marked.

Suffixes: S seeds, R resamples.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planting_outcomes import Gold, Predicted
from planting_settings import BINS, SEEDS, SETTINGS, SIGNALS, STAGE_1
from xmtc.data.bins import bin_mask
from xmtc.evaluate.bootstrap import bootstrap
from xmtc.evaluate.classification import label_scores

KEYS = ("1-5/macro_f1", "macro_f1", "ndcg@5", "micro_f1")
TITLES = ("macro-F1, 1–5 documents", "macro-F1", "nDCG@5", "micro-F1")
Name = tuple[str, str]
"""An arm and what is measured: `head` or `fused`."""


class Contrast(NamedTuple):
    """A weighted sum of arms.

    Attributes:
        title: what it is, and the hypothesis that it speaks to.
        weights: by arm.
        system: `head` or `fused`.
        holds: whether the hypothesis holds, given mean, low and high of the first metric; None: it says nothing of one.
    """

    title: str
    weights: dict[str, float]
    system: str = "head"
    holds: Callable[[float, float, float], bool] | None = None


def _above(_mean: float, low: float, _high: float) -> bool:
    return low > 0


CONTRASTS = (
    Contrast(
        "H1: planted_attention − random_long",
        {"planted_attention": 1, "random_long": -1},
        holds=_above,
    ),
    Contrast(
        "H2: planted_attention − shuffled",
        {"planted_attention": 1, "shuffled": -1},
        holds=_above,
    ),
    Contrast(
        "H3: prototypes − random, less half of planted − random",
        {"prototypes": 1, "planted": -0.5, "random": -0.5},
        holds=lambda mean, _low, _high: mean < 0,
    ),
    Contrast(
        "H6: planted − random_long, fused",
        {"planted": 1, "random_long": -1},
        "fused",
        holds=lambda _mean, low, high: low <= 0 <= high,
    ),
    Contrast(
        "exploratory: planted_attention − random_long, fused",
        {"planted_attention": 1, "random_long": -1},
        "fused",
    ),
    Contrast("H5: planted − random_long", {"planted": 1, "random_long": -1}),
    Contrast("exploratory: prototypes − random", {"prototypes": 1, "random": -1}),
    Contrast(
        "exploratory: prototypes − random_long", {"prototypes": 1, "random_long": -1}
    ),
    Contrast(
        "exploratory: prototypes − random_long, fused",
        {"prototypes": 1, "random_long": -1},
        "fused",
    ),
    Contrast("exploratory: planted − random", {"planted": 1, "random": -1}),
    Contrast("closed − prototypes", {"closed": 1, "prototypes": -1}, holds=_above),
    Contrast("closed − prototypes, fused", {"closed": 1, "prototypes": -1}, "fused"),
    Contrast("closed − planted", {"closed": 1, "planted": -1}),
    Contrast("closed − planted, fused", {"closed": 1, "planted": -1}, "fused"),
    Contrast("chosen − prototypes", {"chosen": 1, "prototypes": -1}, holds=_above),
    Contrast("chosen − prototypes, fused", {"chosen": 1, "prototypes": -1}, "fused"),
    Contrast(
        "closed_attention − prototypes", {"closed_attention": 1, "prototypes": -1}
    ),
    Contrast("closed_values − prototypes", {"closed_values": 1, "prototypes": -1}),
    Contrast(
        "closed_half − prototypes",
        {"closed_half": 1, "prototypes": -1},
        holds=lambda mean, _low, _high: mean >= 0,
    ),
    Contrast("closed − closed_shuffled", {"closed": 1, "closed_shuffled": -1}),
    Contrast("exploratory: planted − prototypes", {"planted": 1, "prototypes": -1}),
    Contrast(
        "exploratory: planted − prototypes, fused",
        {"planted": 1, "prototypes": -1},
        "fused",
    ),
    Contrast(
        "exploratory: planted − prototypes_long", {"planted": 1, "prototypes_long": -1}
    ),
    Contrast(
        "exploratory: planted − prototypes_long, fused",
        {"planted": 1, "prototypes_long": -1},
        "fused",
    ),
    Contrast(
        "exploratory: prototypes_long − prototypes",
        {"prototypes_long": 1, "prototypes": -1},
    ),
    Contrast(
        "exploratory: published − published_random",
        {"published": 1, "published_random": -1},
    ),
    Contrast(
        "exploratory: published − published_random, fused",
        {"published": 1, "published_random": -1},
        "fused",
    ),
    Contrast(
        "exploratory: published − prototypes_long",
        {"published": 1, "prototypes_long": -1},
    ),
    Contrast(
        "exploratory: published − prototypes_long, fused",
        {"published": 1, "prototypes_long": -1},
        "fused",
    ),
    *(
        Contrast(f"exploratory: {arm} − random", {arm: 1, "random": -1})
        for arm in ("common_only", *STAGE_1)
    ),
    *(
        Contrast(
            f"exploratory: planted_attention − {arm}", {"planted_attention": 1, arm: -1}
        )
        for arm in ("random", *SIGNALS, "common_only", *STAGE_1)
    ),
)


@dataclass
class Results:
    """All lines of a setting.

    Attributes:
        setting: its name.
        lines: figures by arm and seed.
        gold: of the measured documents.
        predicted: by arm, seed and system.
        resamples: draws of the bootstrap.
    """

    setting: str
    lines: dict[tuple[str, int], dict[str, Any]]
    gold: Gold
    predicted: dict[tuple[str, int], dict[str, Any]]
    resamples: int
    _replicates: dict[tuple[str, int, str], dict[str, NDArray[np.floating]]] = field(
        default_factory=dict
    )

    @classmethod
    def read(cls, folder: Path, setting: str, resamples: int) -> "Results":
        """From the files that `planting.py` wrote."""
        shown = ("parabel", "scorers", *SETTINGS[setting].arms)
        lines = {
            (line["arm"], line["seed"]): line
            for line in rows(folder / f"{setting}.jsonl")
        }
        lines = {name: line for name, line in lines.items() if name[0] in shown}
        gold, *outcomes = rows(folder / f"{setting}.outcomes.jsonl")
        predicted = {(line["arm"], line["seed"]): line for line in outcomes}
        return cls(setting, lines, Gold.from_json(gold), predicted, resamples)

    def arms(self) -> list[str]:
        """Reference systems, then the arms in the order of the protocol, that have lines."""
        found = {arm for arm, _ in self.lines}
        return [
            arm
            for arm in ("parabel", "scorers", *SETTINGS[self.setting].arms)
            if arm in found
        ]

    def seeds(self, *arms: str) -> list[int]:
        """Seeds that all of these arms have."""
        found = [{seed for arm, seed in self.lines if arm == wanted} for wanted in arms]
        return sorted(set.intersection(*found)) if found else []

    def means(self, arm: str, system: str) -> dict[str, float]:
        """Means over seeds, by metric."""
        found = [self.lines[arm, seed][system] for seed in self.seeds(arm)]
        means = {
            key: float(np.mean([one[key] for one in found]))
            for key in ("p@1", "ndcg@5", "micro_f1", "macro_f1")
        }
        return means | {
            name: float(np.mean([one["bins"][name] for one in found])) for name in BINS
        }

    def replicates(
        self, arm: str, seed: int, system: str
    ) -> dict[str, NDArray[np.floating]]:
        """The metrics of a run on every resample of the documents, centred on its own value; in percent."""
        name = (arm, seed, system)
        if name not in self._replicates:
            predicted = Predicted.from_json(
                self.predicted[arm, seed][system], self.gold
            )
            groups = {"": np.ones(len(self.gold.counts_L), np.bool_)}
            groups["1-5/"] = bin_mask("1-5", self.gold.counts_L)
            ratios, outcome = predicted.ratios(self.gold), predicted.outcome(self.gold)
            drawn = bootstrap(ratios, outcome, groups, self.resamples, seed=0)
            scores = label_scores(outcome.label_sums(np.array(list(groups.values()))))
            values = {key: one.value for key, one in ratios.items()}
            values |= {
                prefix + key: float(scores[key][g, 0])
                for g, prefix in enumerate(groups)
                for key in scores
            }
            self._replicates[name] = {
                key: 100 * (drawn[key] + values[key] - drawn[key].mean())
                for key in KEYS
            }
        return self._replicates[name]

    def contrast(self, contrast: Contrast, key: str) -> tuple[float, float, float]:
        """A contrast of a metric with its 95 % interval over seeds and documents."""
        seeds = self.seeds(*contrast.weights)
        drawn_RS = np.random.default_rng(1).integers(
            len(seeds), size=(self.resamples, len(seeds))
        )
        values_SR = np.array(
            [
                sum(
                    w * self.replicates(arm, seed, contrast.system)[key]
                    for arm, w in contrast.weights.items()
                )
                for seed in seeds
            ]
        )
        values_R = np.take_along_axis(values_SR.T, drawn_RS, axis=1).mean(axis=1)
        low, high = np.percentile(values_R, [2.5, 97.5])
        return float(values_SR.mean()), float(low), float(high)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """JSON lines."""
    yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def figures(results: Results) -> Iterator[str]:
    """The table of means over seeds, head alone and fused."""
    columns = (
        "P@1",
        "nDCG@5",
        "micro-F1",
        "macro-F1",
        *(name.replace("-", "–") for name in BINS),
    )
    yield (
        "| arm | seeds | measured | "
        + " | ".join(columns)
        + " | stage 1: nDCG@10 | on high-MIG tokens |"
    )
    yield "|---" * (len(columns) + 5) + "|"
    for arm in results.arms():
        seeds = results.seeds(arm)
        lines = [results.lines[arm, seed] for seed in seeds]
        for system in ("head", "fused"):
            if system in lines[0]:
                shown = " | ".join(
                    f"{value:.1f}" for value in results.means(arm, system).values()
                )
                share = [
                    line["mig_share"]
                    for line in lines
                    if "mig_share" in line and system == "head"
                ]
                looked = f"{100 * np.mean(share):.0f} %" if share else ""
                planted = [
                    _stage_1(line)
                    for line in lines
                    if system == "head" and _stage_1(line)
                ]
                ranked = f"{100 * np.mean(planted):.1f}" if planted else ""
                measured = (
                    ""
                    if arm in ("parabel", "scorers")
                    else "head alone"
                    if system == "head"
                    else "fused"
                )
                yield f"| {arm} | {len(seeds)} | {measured} | {shown} | {ranked} | {looked} |"


def _stage_1(line: dict[str, Any]) -> float:
    """How well the planted attention ranks tokens on dev: nDCG@10; 0 if none was planted."""
    if "planted_ndcg@10" in line:
        return line["planted_ndcg@10"]
    return max(
        (epoch["ndcg@10"] for epoch in line.get("curves", {}).get("plant", ())),
        default=0.0,
    )


def comparisons(results: Results) -> Iterator[str]:
    """The table of contrasts, in points."""
    found = [one for one in CONTRASTS if results.seeds(*one.weights)]
    if not found:
        return
    yield "| difference, points | seeds | " + " | ".join(TITLES) + " | hypothesis |"
    yield "|---" * (len(TITLES) + 3) + "|"
    for contrast in found:
        seeds = len(results.seeds(*contrast.weights))
        values = [results.contrast(contrast, key) for key in KEYS]
        cells = [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" for mean, low, high in values]
        count = str(seeds) if seeds == SEEDS else f"{seeds} of {SEEDS}: not finished"
        decided = contrast.holds if seeds == SEEDS else None
        verdict = (
            ""
            if decided is None
            else "holds"
            if decided(*values[0])
            else "does not hold"
        )
        yield f"| {contrast.title} | {count} | " + " | ".join(cells) + f" | {verdict} |"


def page(found: Sequence[Results]) -> str:
    """All tables."""
    parts = ["# Tables of the planting study\n"]
    for one in found:
        documents = next(iter(one.lines.values()))["train_documents"]
        measured = len(one.gold.labels_NL.indptr) - 1
        parts.append(
            f"## Setting {one.setting}: {documents:,} training documents, {measured:,} measured\n"
        )
        parts += [*figures(one), "", *comparisons(one), ""]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, help="where planting.py wrote its lines"
    )
    parser.add_argument("--resamples", type=int, default=10_000)
    arguments = parser.parse_args()
    names = [
        name
        for name in SETTINGS
        if (arguments.directory / f"{name}.outcomes.jsonl").exists()
    ]
    found = [
        Results.read(arguments.directory, name, arguments.resamples) for name in names
    ]
    print(page(found))


if __name__ == "__main__":
    main()
