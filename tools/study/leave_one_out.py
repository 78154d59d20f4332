"""What each scorer adds to a configuration, over several draws of documents, and the smallest set that is as good.

    python tools/study/leave_one_out.py data --work runs/leave_one_out --record docs/benchmarks/parts/laws.jsonl \
        --corpus eurlex57k --documents 5000 --dev-documents 2000
    python tools/study/leave_one_out.py data --tables docs/benchmarks/parts/*.jsonl

For each seed, documents are drawn from train and dev, the configuration is trained on them as `xmtc train` does, and
fusions of fewer scorers are measured as `xmtc ablate` does: fitted on one half of dev, applied to the other. First each
scorer is left out alone. Then, one at a time, the scorer goes whose absence costs least in the mean of all seeds, as
long as everything that has gone costs at most 0.1 points of nDCG@5 and 0.3 of macro-F1 together.

Runs resume, and a record has one line for each fusion that was compared with that of all scorers.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from xmtc.cli import app
from xmtc.config.load import load_config
from xmtc.evaluate.bootstrap import paired_difference
from xmtc.evaluate.evaluation import Evaluation
from xmtc.pipeline import train_run
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.ablation import Ablation
from xmtc.stages.evaluate import load_model, predictor
from xmtc.stages.fused_predictor import FusedPredictor
from xmtc.stages.run_stage import denormals_as_zero
from xmtc.stages.worker import build_worker

CONFIGS = Path(__file__).parents[2] / "configs"
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
METRICS = {"ndcg@5": "nDCG@5", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
RARE = "1-5"
RESAMPLES = 300
Line = dict[str, Any]


def main() -> None:
    arguments = parse()
    if arguments.tables:
        for path in arguments.tables:
            print_table([json.loads(line) for line in path.read_text().splitlines()])
        return
    runs = [Run.trained(arguments, seed) for seed in arguments.seeds]
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    with arguments.record.open("w", encoding="utf-8") as file:
        for line in study(arguments.corpus, runs, arguments.without):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    print_table(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="folder of the data sets")
    parser.add_argument("--corpus", help="name of a data set, or quickstart")
    parser.add_argument("--documents", type=int, help="training documents to draw")
    parser.add_argument("--dev-documents", type=int, help="dev documents to draw")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[1, 2, 3],
    )
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        help="confirm on new seeds: leave out only these, all together",
    )
    parser.add_argument("--work", type=Path, default=Path("runs/leave_one_out"))
    parser.add_argument("--record", type=Path, help="JSON lines to write")
    parser.add_argument("--tables", type=Path, nargs="+", help="records to print")
    return parser.parse_args()


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
        config = configuration(arguments, folder, seed)
        train_run(config)
        paths = RunPaths.of(config)
        worker = build_worker(config, paths, split=False)
        with denormals_as_zero():
            load_model(worker)
            predicts = predictor(worker)
            assert isinstance(predicts, FusedPredictor)
            return cls(seed, predicts.ablation(predicts.pairs(worker.dev)))

    def evaluations(self, sets: Sequence[Sequence[str]]) -> Iterator[Evaluation]:
        """Fit and measure the fusion of each set of scorers."""
        arms = [self.ablation.fusion_of(names) for names in sets]
        return self.ablation.evaluations(arms, RESAMPLES)


def configuration(arguments: argparse.Namespace, folder: Path, seed: int) -> RunConfig:
    """Return the configuration of a corpus for the documents that a seed draws."""
    overrides = [
        f"seed={seed}",
        f"name={arguments.corpus}",
        f"track.directory={json.dumps(str(folder / 'runs'))}",
        f"data.corpus={json.dumps(str(folder / 'corpus'))}",
        "distributed.workers=0",
        "evaluate.fit_on_dev=false",
    ]
    if arguments.corpus == "quickstart":
        return load_config(RunConfig, CONFIGS / SHIPPED["quickstart"], overrides)
    source = arguments.data / arguments.corpus
    files = {}
    for split, count in (
        ("train", arguments.documents),
        ("dev", arguments.dev_documents),
    ):
        files[split] = str(draw(source / f"{split}.parquet", folder, count, seed))
    if arguments.corpus in SHIPPED:
        overrides += [
            f"data.source.files={json.dumps(files)}",
            f"data.source.labels.path={json.dumps(str(source / 'labels.parquet'))}",
        ]
        shipped = CONFIGS / SHIPPED[arguments.corpus]
        asked_about = NO_LONGER_SHIPPED.get(arguments.corpus)
        if asked_about is not None:
            scorers = yaml.safe_load(shipped.read_text())["model"]["scorers"]
            overrides.append(f"model.scorers={json.dumps([*scorers, *asked_about])}")
        return load_config(RunConfig, shipped, overrides)
    written = folder / "init.yaml"
    if not written.exists():
        app(
            ["init", str(folder / "data"), "--budget", "1h", "--output", str(written)],
            standalone_mode=False,
        )
    return load_config(RunConfig, written, overrides)


def draw(path: Path, folder: Path, count: int | None, seed: int) -> Path:
    """Write rows of a table that a seed draws, in the order of the table; all of them without a count."""
    drawn = folder / "data" / path.name
    if not drawn.exists():
        table = pq.read_table(path)
        rows = np.random.default_rng(seed).permutation(len(table))[:count]
        drawn.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(np.sort(rows)), drawn)
    return drawn


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
                yield line | figures(evaluation) | differences(all_of_them, evaluation)
                for number, metric in enumerate(LEAST_LOSS):
                    lost = all_of_them.metrics[metric] - evaluation.metrics[metric]
                    losses[place, number] += 100 * lost / len(runs)
        shares = losses / np.array(list(LEAST_LOSS.values()))
        least = int(shares.max(axis=1).argmin())
        if without or shares[least].max() > 1:
            return
        kept = sets[least]


def figures(evaluation: Evaluation) -> Line:
    """Return the metrics of a fusion, in percent."""
    metrics = evaluation.metrics
    line = {metric: round(100 * metrics[metric], 2) for metric in METRICS}
    rare = metrics["bins"].get(RARE, {}).get("macro_f1")
    return line | {RARE: None if rare is None else round(100 * rare, 2)}


def differences(everything: Evaluation, fewer: Evaluation) -> Line:
    """Return what a fusion of fewer scorers lacks, in points, with 95 % intervals of paired resamples."""
    assert everything.replicates is not None, "resamples were drawn"
    assert fewer.replicates is not None, "resamples were drawn"
    adds = {}
    for metric in METRICS:
        interval = paired_difference(everything.replicates, fewer.replicates, metric)
        estimate = everything.metrics[metric] - fewer.metrics[metric]
        ends = (estimate, interval.low, interval.high)
        adds[metric] = [round(100 * float(value), 2) for value in ends]
    return {"adds": adds}


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
