"""Are the intervals of macro-F1 as wide as macro-F1 really varies with the documents?

    python tools/bench/intervals.py CORPUS RUN OTHER_RUN --documents 300 1500

Takes subsets of the evaluated documents of two finished runs, and compares two standard deviations of macro-F1: the one
between subsets, and the one that the bootstrap finds within a subset. Then the same of the difference of the two runs.

Shapes: N documents, M documents of a subset, L labels, G groups of labels, 2 runs.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.bins import bin_mask
from xmtc.data.corpus import Corpus
from xmtc.evaluate.bootstrap import bootstrap
from xmtc.evaluate.classification import Outcome, label_scores
from xmtc.evaluate.store import read_predictions
from xmtc.scorers.predictions import match

BINS = ("1-5", "6-10", "11-50", ">50")
SUBSETS, BOOTSTRAPS, RESAMPLES, TOP_K = 300, 20, 300, 100


def read(corpus: Corpus, run: Path) -> Outcome:
    """Read what a run decided about the documents of dev."""
    split, folder = corpus.split("dev"), run / "eval/dev"
    found = read_predictions(
        folder / "predictions.parquet", corpus.labels.labels, split.doc_ids(), TOP_K
    )
    threshold = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))[
        "threshold"
    ]
    gold = split.label_matrix()
    return Outcome.of(
        found, found.scores_NK >= threshold, match(found.label_ids_NK, gold), gold
    )


def subset(outcome: Outcome, rows_M: NDArray[np.int64]) -> Outcome:
    """Keep some of the documents."""
    return Outcome(
        *(
            sparse.csr_array(m[rows_M])
            for m in (outcome.predicted, outcome.right, outcome.gold)
        )
    )


def macro_f1(
    outcome: Outcome, groups: dict[str, NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Macro-F1 of each group: (G,)."""
    return label_scores(outcome.label_sums(np.array(list(groups.values()))))[
        "macro_f1"
    ][:, 0]


def between(
    runs: list[Outcome], groups: dict[str, NDArray[np.bool_]], size: int
) -> NDArray[np.float64]:
    """Standard deviations between subsets, (2, G): of the first run, and of the difference.

    Subsets share documents, which the last factor corrects.
    """
    rng, documents = np.random.default_rng(0), runs[0].gold.shape[0]
    found = []
    for _ in range(SUBSETS):
        rows_M = rng.choice(documents, size, replace=False)
        first_G, second_G = (macro_f1(subset(run, rows_M), groups) for run in runs)
        found.append([first_G, first_G - second_G])
    return np.std(found, axis=0) / np.sqrt(1 - size / documents)


def within(
    runs: list[Outcome], groups: dict[str, NDArray[np.bool_]], size: int
) -> NDArray[np.float64]:
    """Standard deviations that the bootstrap finds within a subset, averaged over subsets: (2, G)."""
    rng, documents = np.random.default_rng(1), runs[0].gold.shape[0]
    found = []
    for seed in range(BOOTSTRAPS):
        rows_M = rng.choice(documents, size, replace=False)
        drawn = [
            bootstrap({}, subset(run, rows_M), groups, RESAMPLES, seed) for run in runs
        ]
        first_GR, second_GR = (
            np.stack([one[f"{name}macro_f1"] for name in groups]) for one in drawn
        )
        found.append([first_GR.std(axis=1), (first_GR - second_GR).std(axis=1)])
    return np.mean(found, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument(
        "runs", type=Path, nargs=2, help="finished runs with predictions of dev"
    )
    parser.add_argument(
        "--documents",
        type=int,
        nargs="+",
        default=[300, 1500],
        help="sizes of the subsets",
    )
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    runs = [read(corpus, run) for run in arguments.runs]
    counts_L = corpus.labels.train_counts
    groups = {"": counts_L >= 0} | {
        f"{name}/": bin_mask(name, counts_L) for name in BINS
    }
    print(
        "| labels with | documents | macro-F1: between | within | ratio | difference: between | within | ratio |"
    )
    print("|---" * 8 + "|")
    for size in arguments.documents:
        real, claimed = (100 * of(runs, groups, size) for of in (between, within))
        for g, name in enumerate(groups):
            cells = [
                f"{a:.2f} | {b:.2f} | {b / a:.2f}"
                for a, b in zip(real[:, g], claimed[:, g], strict=True)
            ]
            print(
                f"| {name.rstrip('/') or 'any'} | {size} | " + " | ".join(cells) + " |"
            )


if __name__ == "__main__":
    main()
