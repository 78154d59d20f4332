"""Cheap scorers and their fusion on whole corpora, next to linear trees on the same whole texts.

    python tools/quality.py ../shared/data
    python tools/quality.py ../shared/data --sets codiesp --peers none
    python tools/quality.py ../shared/data --sets eurlex57k --states runs/quality/eurlex57k

Scorers are fitted on all training documents. Their fusion and every threshold are fitted on one half of dev, and the
other half is measured; the test split is never read. IMDB, which has no dev split here, holds 5,000 training reviews
out. Peers' predictions are cached under `--cache`. Prints a JSON line for each system, then a table.
"""

import argparse
import functools
import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from quality_data import Case, load_case

from xmtc.data.config import WordsConfig
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import tune_threshold
from xmtc.scorers.base import BLOCK, Features, Scorer
from xmtc.scorers.candidates import Pairs
from xmtc.scorers.config import (
    FusionConfig,
    LabelTextConfig,
    LinearConfig,
    ScorerSettings,
    StateNeighboursConfig,
    TreeConfig,
    WordNeighboursConfig,
)
from xmtc.scorers.fusion import Fusion, fit_fusion

T = TypeVar("T")
KEYS = ("p@1", "ndcg@5", "r@10", "micro_f1", "macro_f1", "ece")
COLUMNS = ("P@1", "nDCG@5", "R@10", "micro-F1", "macro-F1", "ECE", "1-5", "6-10", "11-50", ">50")


@dataclass(frozen=True)
class Recipe:
    """What is fitted on one data set."""

    words: WordsConfig
    scorers: dict[str, ScorerSettings]


RECIPES = {
    "eurlex57k": Recipe(
        WordsConfig(),
        {
            "ridge 0.1": LinearConfig(most_terms=14_000, penalties=(0.1,), prune=0.2),
            "word neighbours": WordNeighboursConfig(),
            "label text": LabelTextConfig(),
        },
    ),
    "gnd_tib": Recipe(
        WordsConfig(),
        {
            "ridge 0.5": LinearConfig(most_terms=10_000, penalties=(0.5,), prune=0.3),
            "word neighbours": WordNeighboursConfig(),
            "label text": LabelTextConfig(),
        },
    ),
    "codiesp": Recipe(
        WordsConfig(),
        {
            "ridge 0.1": LinearConfig(penalties=(0.1,)),
            "ridge 0.5": LinearConfig(penalties=(0.5,)),
            "word neighbours": WordNeighboursConfig(),
            "label text": LabelTextConfig(),
        },
    ),
    "imdb": Recipe(
        WordsConfig(ngrams=2, most_terms=60_000),
        {
            "ridge 0.5": LinearConfig(most_terms=60_000, penalties=(0.5,)),
            "word neighbours": WordNeighboursConfig(),
        },
    ),
}


class Clock:
    """Seconds that steps took: by the wall, and of all cores of this process."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[float, float]] = {}

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        """Do some work and note what it took."""
        wall, cores = time.perf_counter(), _cpu()
        result = work()
        self.steps[name] = (round(time.perf_counter() - wall, 1), round(_cpu() - cores, 1))
        print(json.dumps({"step": name, "wall_s": self.steps[name][0], "cpu_s": self.steps[name][1]}), flush=True)
        return result


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    arguments = parse()
    lines = []
    for name in arguments.sets.split(","):
        for line in study(name, arguments):
            print(json.dumps(line), flush=True)
            lines.append(line)
    print_table(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with a folder for each data set")
    parser.add_argument("--sets", default=",".join(RECIPES))
    parser.add_argument("--peers", default="bonsai,parabel", help="`none` leaves them out")
    parser.add_argument("--cache", type=Path, default=Path("runs/quality"), help="predictions of the peers")
    parser.add_argument("--states", type=Path, help="states of the one data set, see quality_states.py")
    parser.add_argument("--trees", choices=("bonsai", "parabel"), help="add a linear tree to the scorers")
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap")
    return parser.parse_args()


def study(name: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One line for each system on one data set."""
    recipe, clock = RECIPES[name], Clock()
    case = clock("words", lambda: load_case(arguments.data / name, recipe.words))
    settings = dict(recipe.scorers)
    if arguments.states:
        case = with_states(case, arguments.states)
        settings["state neighbours"] = StateNeighboursConfig()
    if arguments.trees:
        settings["tree"] = TreeConfig(shape=arguments.trees)
    pairs = clock("candidates", lambda: candidates(fit_all(case, settings, clock), case.held_out))
    names = tuple(settings)
    everything = list(range(len(names)))
    chosen = {"fused": everything, **{one: [place] for place, one in enumerate(names)}}
    if len(names) > 2:
        chosen |= {f"without {one}": [i for i in everything if i != place] for place, one in enumerate(names)}
    for system, places in chosen.items():
        some = pairs.only(places)
        fit = functools.partial(fused, case, [names[place] for place in places], some)
        yield line(name, system, case, clock("fusion", fit) if system == "fused" else fit(), arguments.resamples)
    seconds = [sum(step[which] for step in clock.steps.values()) for which in (0, 1)]
    yield {"set": name, "system": "all cheap scorers", "wall_s": round(seconds[0], 1), "cpu_s": round(seconds[1], 1)}
    if arguments.peers == "none":
        return
    from quality_peers import peer_predictions  # omikuji comes with the extra `trees`

    for peer in arguments.peers.split(","):
        found, fit_s = peer_predictions(peer, case, arguments.cache / name)
        yield line(name, peer, case, found, arguments.resamples) | {"fit_s": round(fit_s, 1)}


def fit_all(case: Case, settings: dict[str, ScorerSettings], clock: Clock) -> list[Scorer]:
    """Every scorer, fitted on all training documents."""
    return [clock(name, lambda one=one: one.fit(case.training)) for name, one in settings.items()]


def candidates(scorers: Sequence[Scorer], features: Features) -> Pairs:
    """The union of the scorers' candidates, a block of documents at a time."""
    k = FusionConfig().candidates
    blocks = [features.take(slice(start, start + BLOCK)) for start in range(0, len(features), BLOCK)]
    return Pairs.concatenate([Pairs.of([scorer.score(block) for scorer in scorers], k) for block in blocks])


def fused(case: Case, names: Sequence[str], pairs: Pairs) -> SparsePredictions:
    """Probabilities of all held-out documents by a fusion that is fitted on the tuning half."""
    rows = case.tuning
    fusion: Fusion = fit_fusion(names, pairs.take(rows), case.gold[rows], case.labels.train_counts, FusionConfig())
    found = fusion.fuse(pairs)
    return SparsePredictions(found.label_ids_NK, found.scores_NK)


def line(name: str, system: str, case: Case, predictions: SparsePredictions, resamples: int) -> dict[str, Any]:
    """Figures in percent of the reported half; the threshold is the tuning half's."""
    tuning, reported = (
        (SparsePredictions(predictions.label_ids_NK[rows], predictions.scores_NK[rows]), case.gold[rows])
        for rows in (case.tuning, case.reported)
    )
    thresholds = None if case.single_label else tune_threshold(*tuning)
    config = EvaluateConfig(resamples=resamples)
    found = evaluate(*reported, case.labels, len(case.training), config=config, thresholds=thresholds).metrics
    figures = {key: round(100 * found[key], 2) for key in KEYS}
    figures |= {one: round(100 * (part["macro_f1"] or 0), 2) for one, part in found["bins"].items() if one != "0"}
    unseen = found["bins"]["0"]
    if unseen["recall"] is not None:
        figures["unseen recall"] = round(100 * unseen["recall"], 2)
    intervals = {
        key: [round(100 * end, 2) for end in found["ci95"][key]] for key in KEYS if key in found.get("ci95", {})
    }
    return {"set": name, "system": system, **figures, "ci95": intervals, "docs": found["docs"]}


def with_states(case: Case, folder: Path) -> Case:
    """The case with the mean states that `quality_states.py` left in a folder."""
    parts = [next(iter(sorted(folder.glob(f"states-{split}-*")))) for split in ("train", "dev")]
    train, held_out = (np.concatenate([np.load(block) for block in sorted(part.glob("*.npy"))]) for part in parts)
    training = replace(case.training, features=Features(case.training.features.words_NV, train))
    return replace(case, training=training, held_out=Features(case.held_out.words_NV, held_out))


def print_table(lines: Sequence[dict[str, Any]]) -> None:
    """All systems as a Markdown table."""
    print("| set | system | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---|" * len(COLUMNS))
    for found in lines:
        if "ndcg@5" in found:
            keys = (*KEYS, *COLUMNS[len(KEYS) :])
            print(f"| {found['set']} | {found['system']} | " + " | ".join(f"{found[key]:.1f}" for key in keys) + " |")


if __name__ == "__main__":
    main()
