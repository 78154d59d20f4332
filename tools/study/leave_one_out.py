"""What each scorer adds to a configuration, over several draws of documents, and the smallest set that is as good.

    python tools/study/leave_one_out.py data --work runs/leave_one_out --record docs/benchmarks/parts/laws.jsonl \
        --corpus eurlex57k --documents 5000 --dev-documents 2000
    python tools/study/leave_one_out.py data --tables docs/benchmarks/parts/*.jsonl

For each of `--seeds`, documents are drawn from train and dev, the configuration is trained on them as `xmtc train`
does, and fusions of fewer scorers are measured as `xmtc ablate` does: fitted on one half of dev, applied to the other.
First each scorer is left out alone. Then, one at a time, the scorer goes whose absence costs least in the mean of all
seeds, as long as everything that has gone costs at most 0.1 points of nDCG@5 and 0.3 of macro-F1 together.

Runs resume, and a record has one line for each fusion that was compared with that of all scorers.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from drawn_runs import (
    CONFIGS,
    METRICS,
    RARE,
    RESAMPLES,
    Line,
    ablation_of,
    differences,
    draw,
    figures,
    options,
    overrides,
    print_or_measure,
    source,
    trained,
)
from xmtc.cli import app
from xmtc.config.load import load_config
from xmtc.evaluate.evaluation import Evaluation
from xmtc.run.config import RunConfig
from xmtc.stages.ablation import Ablation

SHIPPED = {
    "eurlex57k": "eurlex57k_minilm.yaml",
    "gnd_tib": "gnd_minilm.yaml",
    "quickstart": "quickstart.yaml",
}
"""Corpora with a shipped configuration; others take what `xmtc init` writes for them."""
NO_LONGER_SHIPPED = {
    "eurlex57k": [{"kind": "word_neighbours"}, {"kind": "state_neighbours"}]
}
"""Scorers that a shipped configuration had until this study, which still asks about them."""
LEAST_LOSS = {"ndcg@5": 0.1, "macro_f1": 0.3}
"""Points that a smaller set of scorers may lose."""


def main() -> None:
    arguments = parse()
    print_or_measure(arguments, lambda: measure(arguments), print_table)


def parse() -> argparse.Namespace:
    parser = options(__doc__, "runs/leave_one_out")
    parser.add_argument("--corpus", help="name of a data set, or quickstart")
    parser.add_argument("--documents", type=int, help="training documents to draw")
    parser.add_argument("--dev-documents", type=int, help="dev documents to draw")
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        help="confirm on new seeds: leave out only these, all together",
    )
    return parser.parse_args()


def measure(arguments: argparse.Namespace) -> Iterator[Line]:
    """Train all seeds, and yield a line for each set of scorers and seed."""
    runs = [Run.trained(arguments, seed) for seed in arguments.seeds]
    yield from study(arguments.corpus, runs, arguments.without)


@dataclass(frozen=True)
class Run:
    """A finished run, ready to fuse fewer of its scorers.

    Attributes:
        seed: seed of the draw and of the run.
        ablation: its fusions on dev.
    """

    seed: int
    ablation: Ablation

    @classmethod
    def trained(cls, arguments: argparse.Namespace, seed: int) -> "Run":
        """Train the configuration of a corpus on what a seed draws, unless that is done."""
        folder = arguments.work / f"{arguments.corpus}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        predicts = trained(configuration(arguments, folder, seed))
        return cls(seed, ablation_of(predicts))

    def evaluations(self, sets: Sequence[Sequence[str]]) -> Iterator[Evaluation]:
        """Fit and measure the fusion of each set of scorers."""
        arms = [self.ablation.fusion_of(names) for names in sets]
        return self.ablation.evaluations(arms, RESAMPLES)


def configuration(arguments: argparse.Namespace, folder: Path, seed: int) -> RunConfig:
    """Return the configuration of a corpus for the documents that a seed draws."""
    settings = overrides(folder, arguments.corpus, seed)
    if arguments.corpus == "quickstart":
        return load_config(RunConfig, CONFIGS / SHIPPED["quickstart"], settings)
    drawn = drawn_source(arguments, folder, seed)
    if arguments.corpus in SHIPPED:
        settings += drawn
        shipped = CONFIGS / SHIPPED[arguments.corpus]
        asked_about = NO_LONGER_SHIPPED.get(arguments.corpus)
        if asked_about is not None:
            scorers = yaml.safe_load(shipped.read_text())["model"]["scorers"]
            settings.append(f"model.scorers={json.dumps([*scorers, *asked_about])}")
        return load_config(RunConfig, shipped, settings)
    written = folder / "init.yaml"
    if not written.exists():
        app(
            ["init", str(folder / "data"), "--budget", "1h", "--output", str(written)],
            standalone_mode=False,
        )
    return load_config(RunConfig, written, settings)


def drawn_source(arguments: argparse.Namespace, folder: Path, seed: int) -> list[str]:
    """Draw documents of train and dev, and return the settings that read them."""
    data = arguments.data / arguments.corpus
    files = {}
    for split, count in (
        ("train", arguments.documents),
        ("dev", arguments.dev_documents),
    ):
        files[split] = draw(data / f"{split}.parquet", folder, count, seed)
    return source(files, data / "labels.parquet")


def study(corpus: str, runs: Sequence[Run], without: Sequence[str]) -> Iterator[Line]:
    """Yield a line for each set of scorers and seed: what the scorers that are left out add.

    Args:
        corpus: name of the data set.
        runs: a run for each seed.
        without: scorers to leave out together; without any, sets are searched.
    """
    everything = runs[0].ablation.ensemble.names
    assert all(run.ablation.ensemble.names == everything for run in runs)
    whole = [next(run.evaluations([everything])) for run in runs]
    for run, evaluation in zip(runs, whole, strict=True):
        yield {"corpus": corpus, "seed": run.seed, "without": []} | figures(evaluation)
    kept = list(everything)
    while len(kept) > 1:
        sets = [[name for name in kept if name != left_out] for left_out in kept]
        if without:
            sets = [[name for name in everything if name not in without]]
        losses = np.zeros((len(sets), len(LEAST_LOSS)))
        for run, all_of_them in zip(runs, whole, strict=True):
            for place, evaluation in enumerate(run.evaluations(sets)):
                left_out = [name for name in everything if name not in sets[place]]
                line = {"corpus": corpus, "seed": run.seed, "without": left_out}
                adds = differences(all_of_them, evaluation)
                yield line | figures(evaluation) | {"adds": adds}
                for number, metric in enumerate(LEAST_LOSS):
                    lost = all_of_them.metrics[metric] - evaluation.metrics[metric]
                    losses[place, number] += 100 * lost / len(runs)
        shares = losses / np.array(list(LEAST_LOSS.values()))
        least = int(shares.max(axis=1).argmin())
        if without or shares[least].max() > 1:
            return
        kept = sets[least]


def print_table(lines: Sequence[Line]) -> None:
    """Print what left-out scorers add, in the mean of the seeds, as a Markdown table.

    The interval is from the mean lower to the mean upper end: dev documents are partly the same for all seeds, so that
    the intervals must not be taken for independent ones.
    """
    titles = [f"{title}, points" for title in METRICS.values()]
    print("| corpus | left out | " + " | ".join(titles) + f" | labels with {RARE} |")
    print("|---|---|" + "---|" * (len(titles) + 1))
    whole = {line["seed"]: line for line in lines if not line["without"]}
    sets = list(
        dict.fromkeys(tuple(line["without"]) for line in lines if line["without"])
    )
    for without in sets:
        same = [line for line in lines if tuple(line["without"]) == without]
        cells = []
        for metric in METRICS:
            mean, low, high = np.mean([line["adds"][metric] for line in same], axis=0)
            cells.append(f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]")
        rare = [
            whole[line["seed"]][RARE] - line[RARE]
            for line in same
            if line[RARE] is not None
        ]
        cells.append(f"{np.mean(rare):+.2f}" if rare else "–")
        names = " and ".join(without)
        print(f"| {same[0]['corpus']} | {names} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
