"""What studies share that train on documents that a seed draws: options, runs, differences, and the record.

A record has JSON lines. It is written line by line under another name, and gets its own name once it is whole.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

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
METRICS = {"ndcg@5": "nDCG@5", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
RARE = "1-5"
RESAMPLES = 300
Line = dict[str, Any]


def options(description: str | None, work: str) -> argparse.ArgumentParser:
    """Return a parser of what all these studies ask for.

    Args:
        description: docstring of the study.
        work: folder of corpora and runs by default.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="folder of the data sets")
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(seed) for seed in text.split(",")],
        default=[1, 2, 3],
    )
    parser.add_argument("--work", type=Path, default=Path(work))
    parser.add_argument("--record", type=Path, help="JSON lines to write")
    parser.add_argument("--tables", type=Path, nargs="+", help="records to print")
    return parser


def draw(path: Path, folder: Path, count: int | None, seed: int) -> Path:
    """Write rows of a table that a seed draws, in the order of the table; all of them without a count."""
    drawn = folder / "data" / path.name
    if not drawn.exists():
        table = pq.read_table(path)
        rows = np.random.default_rng(seed).permutation(len(table))[:count]
        drawn.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.take(np.sort(rows)), drawn)
    return drawn


def overrides(place: Path, name: str, seed: int) -> list[str]:
    """Return settings of a run in this folder, whose scorers are not fitted on dev at the end."""
    return [
        f"seed={seed}",
        f"name={name}",
        f"track.directory={json.dumps(str(place / 'runs'))}",
        f"data.corpus={json.dumps(str(place / 'corpus'))}",
        "distributed.workers=0",
        "evaluate.fit_on_dev=false",
    ]


def source(files: Mapping[str, Path], labels: Path) -> list[str]:
    """Return settings that read these files of splits, and this table of labels."""
    paths = {split: str(path) for split, path in files.items()}
    return [
        f"data.source.files={json.dumps(paths)}",
        f"data.source.labels.path={json.dumps(str(labels))}",
    ]


def trained(config: RunConfig) -> FusedPredictor:
    """Train a configuration, unless that is done. Return its loaded model, whose scorers are not fused yet."""
    train_run(config)
    worker = build_worker(config, RunPaths.of(config), split=False)
    with denormals_as_zero():
        load_model(worker)
        predicts = predictor(worker)
    assert isinstance(predicts, FusedPredictor), "the configuration has scorers"
    return predicts


def ablation_of(predicts: FusedPredictor) -> Ablation:
    """Score dev, and return what fuses some of the scorers on its halves."""
    with denormals_as_zero():
        return predicts.ablation(predicts.pairs(predicts.worker.dev))


def figures(evaluation: Evaluation) -> Line:
    """Return the metrics of a fusion, in percent."""
    metrics = evaluation.metrics
    line = {metric: round(100 * metrics[metric], 2) for metric in METRICS}
    rare = metrics["bins"].get(RARE, {}).get("macro_f1")
    return line | {RARE: None if rare is None else round(100 * rare, 2)}


def differences(
    more: Evaluation, less: Evaluation, metrics: Iterable[str] = METRICS
) -> dict[str, list[float]]:
    """Return what one fusion has more than another, in points, with 95 % intervals of paired resamples."""
    assert more.replicates is not None, "resamples were drawn"
    assert less.replicates is not None, "resamples were drawn"
    found = {}
    for metric in metrics:
        interval = paired_difference(more.replicates, less.replicates, metric)
        estimate = more.metrics[metric] - less.metrics[metric]
        ends = (estimate, interval.low, interval.high)
        found[metric] = [round(100 * float(value), 2) for value in ends]
    return found


def record(path: Path, lines: Iterable[Line]) -> list[Line]:
    """Print lines and write them as they come. Return all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    written = []
    with unfinished.open("w", encoding="utf-8") as file:
        for line in lines:
            written.append(line)
            text = json.dumps(line)
            print(text, flush=True)
            file.write(text + "\n")
            file.flush()
    unfinished.replace(path)
    return written


def read(path: Path) -> list[Line]:
    """Read a record."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_or_measure(
    arguments: argparse.Namespace,
    measure: Callable[[], Iterable[Line]],
    print_table: Callable[[Sequence[Line]], None],
) -> None:
    """Print the table of each record that is given; without any, measure and record, and print the table of that.

    Args:
        arguments: what a parser of `options` gave.
        measure: gives the lines.
        print_table: prints the lines of one record.
    """
    if arguments.tables:
        for path in arguments.tables:
            print_table(read(path))
        return
    print_table(record(arguments.record, measure()))
