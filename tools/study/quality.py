"""Cheap scorers and their fusion on whole corpora, next to linear trees on the same whole texts.

    python tools/study/quality.py data
    python tools/study/quality.py data --sets codiesp --trees none
    python tools/study/quality.py data --sets eurlex57k --states runs/quality/eurlex57k

Scorers are fitted on all training documents. Their fusion and every threshold are fitted on one half of dev, and the
other half is measured; the test split is never read. IMDB, which has no dev split here, holds 5,000 training reviews
out. The trees' predictions are cached under `--cache`. Prints a JSON line for each system and for each difference to a
tree (paired bootstrap), then tables.
"""

import argparse
import functools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from quality_data import Case, load_case
from xmtc.data.config import WordsConfig
from xmtc.evaluate.bootstrap import paired_difference
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import Evaluation, evaluate
from xmtc.fusion.config import FusionConfig
from xmtc.fusion.fusion import fit_fusion
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.base import BLOCK, Features, Scorer, SparseScored
from xmtc.scorers.config import (
    LabelTextConfig,
    LinearConfig,
    ScorerSettings,
    StateNeighboursConfig,
    TreeConfig,
    WordNeighboursConfig,
)
from xmtc.scorers.predictions import SparsePredictions

T = TypeVar("T")
KEYS = ("p@1", "ndcg@5", "r@10", "micro_f1", "macro_f1", "ece")
COLUMNS = (
    "P@1",
    "nDCG@5",
    "R@10",
    "micro-F1",
    "macro-F1",
    "ECE",
    "1-5",
    "6-10",
    "11-50",
    ">50",
)
COMPARED = {
    "p@1": "P@1",
    "ndcg@5": "nDCG@5",
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
}
Json = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What is fitted on one data set."""

    words: WordsConfig
    scorers: dict[str, ScorerSettings]


RECIPES = {
    "eurlex57k": Recipe(
        WordsConfig(),
        {
            "ridge": LinearConfig(
                fields={"title": 1, "text": 2},
                most_terms=10_000,
                penalty=0.3,
                prune=0.1,
            ),
            "word neighbours": WordNeighboursConfig(),
            "title neighbours": WordNeighboursConfig(fields=("title",)),
        },
    ),
    "gnd_tib": Recipe(
        WordsConfig(),
        {
            "ridge": LinearConfig(
                fields={"title": 1, "text": 2},
                most_terms=10_000,
                penalty=0.5,
                prune=0.3,
            ),
            "word neighbours": WordNeighboursConfig(),
            "title neighbours": WordNeighboursConfig(fields=("title",)),
            "label text": LabelTextConfig(),
            "names in titles": LabelTextConfig(fields=("title",)),
        },
    ),
    "codiesp": Recipe(
        WordsConfig(),
        {
            "ridge 0.1": LinearConfig(penalty=0.1),
            "ridge 0.5": LinearConfig(penalty=0.5),
            "word neighbours": WordNeighboursConfig(),
            "label text": LabelTextConfig(),
        },
    ),
    "imdb": Recipe(
        WordsConfig(ngrams=3, min_documents=3, most_terms=600_000),
        {
            "ridge 0.5": LinearConfig(
                most_terms=600_000, weighting="log_odds", penalty=0.5, prune=0.01
            ),
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
        self.steps[name] = (
            round(time.perf_counter() - wall, 1),
            round(_cpu() - cores, 1),
        )
        print(
            json.dumps(
                {
                    "step": name,
                    "wall_s": self.steps[name][0],
                    "cpu_s": self.steps[name][1],
                }
            ),
            flush=True,
        )
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data", type=Path, help="folder with a folder for each data set"
    )
    parser.add_argument("--sets", default=",".join(RECIPES))
    parser.add_argument(
        "--one-text",
        action="store_true",
        help="title and text as one field, without title scorers",
    )
    parser.add_argument(
        "--trees", default="bonsai,parabel", help="`none` leaves them out"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("runs/quality"),
        help="predictions of the trees",
    )
    parser.add_argument(
        "--states", type=Path, help="states of the one data set, see quality_states.py"
    )
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap")
    return parser.parse_args()


class Measured:
    """What the systems of one data set reach on the reported half.

    Args:
        name: of the data set.
        case: its documents.
        resamples: of the bootstrap.
    """

    def __init__(self, name: str, case: Case, resamples: int) -> None:
        self._name, self._case, self._resamples = name, case, resamples
        self._found: dict[str, Evaluation] = {}

    def line(self, system: str, predictions: SparsePredictions) -> Json:
        """Measure a system, in percent; the threshold is the tuning half's."""
        case = self._case
        tuning, reported = (
            (predictions.take(rows), case.gold[rows])
            for rows in (case.tuning, case.reported)
        )
        decision = None if case.single_label else outcomes_of(*tuning).tuned("micro")
        config = EvaluateConfig(resamples=self._resamples)
        self._found[system] = evaluate(
            *reported, case.labels, len(case.training), config=config, decision=decision
        )
        found = self._found[system].metrics
        figures = {key: round(100 * found[key], 2) for key in KEYS}
        figures |= {
            one: round(100 * (part["macro_f1"] or 0), 2)
            for one, part in found["bins"].items()
            if one != "0"
        }
        unseen = {
            "recall": found["bins"]["0"]["micro_recall"],
            "r@10": found["bins"]["0"]["r@10"],
        }
        figures |= {
            f"unseen {key}": round(100 * value, 2)
            for key, value in unseen.items()
            if value is not None
        }
        intervals = {
            key: [round(100 * end, 2) for end in found["ci95"][key]]
            for key in KEYS
            if key in found.get("ci95", {})
        }
        return {
            "set": self._name,
            "system": system,
            **figures,
            "ci95": intervals,
            "docs": found["docs"],
        }

    def difference(self, system: str, other: str) -> Json:
        """Subtract what another system reaches, with 95 % intervals over the same resamples; in points."""
        a, b = self._found[system], self._found[other]
        if a.replicates is None or b.replicates is None:
            raise ValueError("differences need --resamples above 0")
        row: Json = {"set": self._name, "difference": f"{system} − {other}"}
        for key in COMPARED:
            interval = paired_difference(a.replicates, b.replicates, key)
            values = a.metrics[key] - b.metrics[key], interval.low, interval.high
            row[key] = [round(100 * float(value), 2) for value in values]
        return row


def study(name: str, arguments: argparse.Namespace) -> Iterator[Json]:
    """One line for each system on one data set."""
    recipe, clock = RECIPES[name], Clock()
    case = clock(
        "words",
        lambda: load_case(
            arguments.data / name, recipe.words, one_text=arguments.one_text
        ),
    )
    settings = (
        of_one_text(recipe.scorers) if arguments.one_text else dict(recipe.scorers)
    )
    if arguments.states:
        case = with_states(case, arguments.states)
        settings["state neighbours"] = StateNeighboursConfig()
    scorers = fit_all(case, settings, clock)
    pairs = clock(
        "candidates", lambda: candidates(scorers, case.held_out, [], len(case.labels))
    )
    names, measured = tuple(settings), Measured(name, case, arguments.resamples)
    for system, places in systems(names).items():
        fit = functools.partial(
            fused,
            case,
            [names[place] for place in places],
            pairs.only(places, FusionConfig().candidates),
        )
        yield measured.line(
            system, clock("fusion", fit) if system == "fused" else fit()
        )
    if not case.single_label:
        yield measured.line(
            "without co-occurrence", fused(case, names, pairs, co_occurrence=False)
        )
    seconds = [sum(step[which] for step in clock.steps.values()) for which in (0, 1)]
    yield {
        "set": name,
        "system": "all cheap scorers",
        "wall_s": round(seconds[0], 1),
        "cpu_s": round(seconds[1], 1),
    }
    for tree in [] if arguments.trees == "none" else arguments.trees.split(","):
        found, fit_s = tree_predictions(tree, case, arguments.cache / name)
        yield measured.line(tree, found) | {"fit_s": fit_s}
        pairs = candidates(scorers, case.held_out, [found], len(case.labels))
        tree_alone = pairs.only([len(names)], FusionConfig().candidates)
        yield measured.line(f"{tree}, calibrated", fused(case, [tree], tree_alone))
        yield measured.line(f"fused with {tree}", fused(case, [*names, tree], pairs))
        for system in ("fused", f"fused with {tree}"):
            for other in (tree, f"{tree}, calibrated"):
                yield measured.difference(system, other)


def of_one_text(settings: dict[str, ScorerSettings]) -> dict[str, ScorerSettings]:
    """The scorers without those of the title alone; the others read everything as one text."""
    fields = {name: getattr(one, "fields", None) for name, one in settings.items()}
    return {
        name: replace(one, fields=None) if fields[name] else one  # pyright: ignore[reportArgumentType]
        for name, one in settings.items()
        if fields[name] != ("title",)
    }


def systems(names: Sequence[str]) -> dict[str, list[int]]:
    """Which scorers take part in what is measured: all, each alone, all without one."""
    everything = list(range(len(names)))
    chosen = {"fused": everything, **{one: [place] for place, one in enumerate(names)}}
    if len(names) > 2:
        chosen |= {
            f"without {one}": [i for i in everything if i != place]
            for place, one in enumerate(names)
        }
    return chosen


def tree_predictions(
    shape: str, case: Case, cache: Path
) -> tuple[SparsePredictions, float]:
    """A tree's best hundred labels of the held-out documents, and the seconds that its fit took; read if cached."""
    path = cache / f"{shape}.npz"
    if not path.exists():
        began = time.perf_counter()
        tree = TreeConfig(shape=shape).fit(case.training)
        fit_s = time.perf_counter() - began
        found = tree.score(case.held_out).top(100)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, ids=found.label_ids_NK, scores=found.scores_NK, fit_s=fit_s)
    saved = np.load(path)
    return SparsePredictions(saved["ids"], saved["scores"]), round(
        float(saved["fit_s"]), 1
    )


def fit_all(
    case: Case, settings: dict[str, ScorerSettings], clock: Clock
) -> list[Scorer]:
    """Every scorer, fitted on all training documents."""
    return [
        clock(name, lambda one=one: one.fit(case.training))
        for name, one in settings.items()
    ]


def candidates(
    scorers: Sequence[Scorer],
    features: Features,
    more: Sequence[SparsePredictions],
    labels: int,
) -> Pairs:
    """The union of the candidates of scorers and of further predictions, a block of documents at a time."""
    k = FusionConfig().candidates
    parts = []
    for start in range(0, len(features), BLOCK):
        rows = slice(start, start + BLOCK)
        scored = [scorer.score(features.take(rows)) for scorer in scorers]
        scored += [
            as_scored(one.label_ids_NK[rows], one.scores_NK[rows], labels)
            for one in more
        ]
        parts.append(Pairs.of(scored, k))
    return Pairs.concatenate(parts)


def as_scored(
    ids_NK: NDArray[np.integer], scores_NK: NDArray[np.floating], labels: int
) -> SparseScored:
    """Predictions as a scorer's view of the documents."""
    rows, places = np.nonzero(ids_NK >= 0)
    scores = sparse.csr_array(
        (scores_NK[rows, places].astype(np.float32), (rows, ids_NK[rows, places])),
        shape=(len(ids_NK), labels),
    )
    scores.sort_indices()
    return SparseScored(scores)


def fused(
    case: Case, names: Sequence[str], pairs: Pairs, *, co_occurrence: bool = True
) -> SparsePredictions:
    """Probabilities of all held-out documents by a fusion that is fitted on the tuning half.

    It is linear: the threshold is tuned on predictions for the documents that the fusion was fitted on, and trees would
    be too sure of these. A scorer alone is calibrated without the co-occurrence of labels.
    """
    rows, occurrences = case.tuning, Occurrences.of(case.training.labels_NL)
    if not co_occurrence or len(names) == 1:
        occurrences = Occurrences.without_pairs(occurrences.counts_L)
    learned = pairs.take(rows)
    fusion = fit_fusion(names, learned, case.gold[rows], occurrences, "linear")
    return fusion.fuse(pairs)


def with_states(case: Case, folder: Path) -> Case:
    """The case with the mean states that `quality_states.py` left in a folder."""
    parts = [
        next(iter(sorted(folder.glob(f"states-{split}-*"))))
        for split in ("train", "dev")
    ]
    train, held_out = (
        np.concatenate([np.load(block) for block in sorted(part.glob("*.npy"))])
        for part in parts
    )
    if (len(train), len(held_out)) != (len(case.training), len(case.held_out)):
        sys.exit(
            f"{folder}: the states are not those of the case's documents; run quality_states.py to its end"
        )
    training = replace(
        case.training, features=Features(case.training.features.words, train)
    )
    return replace(
        case, training=training, held_out=Features(case.held_out.words, held_out)
    )


def print_table(lines: Sequence[Json]) -> None:
    """All systems, and their differences to trees, as Markdown tables."""
    print("| set | system | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---|" * len(COLUMNS))
    for found in lines:
        if "system" in found and "ndcg@5" in found:
            keys = (*KEYS, *COLUMNS[len(KEYS) :])
            print(
                f"| {found['set']} | {found['system']} | "
                + " | ".join(f"{found[key]:.1f}" for key in keys)
                + " |"
            )
    print(
        "\n| set | difference, points | "
        + " | ".join(COMPARED.values())
        + " |\n|---|---|"
        + "---|" * len(COMPARED)
    )
    for found in lines:
        if "difference" in found:
            cells = [
                "{:+.1f} [{:+.1f}, {:+.1f}]".format(*found[key]) for key in COMPARED
            ]
            print(
                f"| {found['set']} | {found['difference']} | "
                + " | ".join(cells)
                + " |"
            )


if __name__ == "__main__":
    main()
