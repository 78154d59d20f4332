"""What it costs that half of the judgements are missing, and what leaving them out saves over reading them as absent.

    python tools/study/hidden_judgements.py data --work runs/hidden_judgements \
        --record docs/benchmarks/hidden_judgements.jsonl
    python tools/study/hidden_judgements.py data --tables docs/benchmarks/hidden_judgements.jsonl

For each of `--seeds`, 2,000 laws are drawn from the training documents of EURLEX57K and 1,000 from its dev documents.
Half of the pairs of a training document and a label are hidden at random, those that the document has and those that it
has not. Three corpora are trained on with the same configuration:

    all       every judgement
    left out  hidden pairs are not judged: the judged labels are in `labels` and `rejected`
    absent    hidden pairs read as absent: `labels` alone

Dev is judged completely. The head (label attention over a frozen MiniLM that reads 32 tokens), the ridge regression
over words and the fusion of all scorers are measured on dev by fusions that are fitted on one half of dev and applied
to the other. Training is the same for all arms, and nothing was chosen on dev. Intervals are of paired resamples of
dev's documents. Runs resume.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
from xmtc.config.load import load_config
from xmtc.evaluate.evaluation import Evaluation
from xmtc.run.config import RunConfig

BASE = CONFIGS / "eurlex57k_attention.yaml"
CORPUS = "eurlex57k"
DOCUMENTS, DEV_DOCUMENTS = 2_000, 1_000
HIDDEN = 0.5
ARMS = ("all", "left out", "absent")
MEASURED = ("head", "linear", "fused")


def main() -> None:
    arguments = options(__doc__, "runs/hidden_judgements").parse_args()
    print_or_measure(arguments, lambda: measure_all(arguments), print_table)


def measure_all(arguments: argparse.Namespace) -> Iterator[Line]:
    """Yield the lines of all seeds."""
    for seed in arguments.seeds:
        yield from lines_of_seed(arguments, seed)


def lines_of_seed(arguments: argparse.Namespace, seed: int) -> list[Line]:
    """Train and measure the three arms: a line each, with differences to reading hidden pairs as absent."""
    folder = arguments.work / f"{CORPUS}-{seed}"
    train, dev = (
        draw(arguments.data / CORPUS / f"{split}.parquet", folder, count, seed)
        for split, count in (("train", DOCUMENTS), ("dev", DEV_DOCUMENTS))
    )
    hidden = hide(train, folder, seed)
    files = {"all": train, "left out": hidden, "absent": hidden}
    measured = {
        arm: measure(arguments, folder, arm, (files[arm], dev), seed) for arm in ARMS
    }
    lines = []
    for arm in ARMS:
        for name in MEASURED:
            line = {"seed": seed, "arm": arm, "measured": name}
            line |= figures(measured[arm][name])
            if arm == "left out":
                line["gains"] = differences(
                    measured[arm][name], measured["absent"][name]
                )
            lines.append(line)
    return lines


def hide(train: Path, folder: Path, seed: int) -> Path:
    """Write the documents with half of their judgements: labels that they have, and labels that they have not."""
    path = folder / "hidden.parquet"
    if path.exists():
        return path
    table = pq.read_table(train)
    rng = np.random.default_rng(seed)
    rows = [set(labels) for labels in table["labels"].to_pylist()]
    every_label = sorted(set().union(*rows))
    labels, rejected = [], []
    for row in rows:
        shown = rng.random(len(every_label)) >= HIDDEN
        judged = [label for label, seen in zip(every_label, shown, strict=True) if seen]
        labels.append([label for label in judged if label in row])
        rejected.append([label for label in judged if label not in row])
    table = table.set_column(
        table.column_names.index("labels"), "labels", pa.array(labels)
    )
    pq.write_table(table.append_column("rejected", pa.array(rejected)), path)
    return path


def measure(
    arguments: argparse.Namespace,
    folder: Path,
    arm: str,
    files: tuple[Path, Path],
    seed: int,
) -> dict[str, Evaluation]:
    """Train on the files of train and dev, and measure the head, the regression and the fusion on dev."""
    place = folder / arm.replace(" ", "_")
    train, dev = files
    settings = [
        *overrides(place, "run", seed),
        *source(
            {"train": train, "dev": dev}, arguments.data / CORPUS / "labels.parquet"
        ),
        "data.max_length=32",
    ]
    if arm == "left out":
        settings.append("data.source.columns.rejected=rejected")
    ablation = ablation_of(trained(load_config(RunConfig, BASE, settings)))
    arms = [
        ablation.alone("head"),
        ablation.alone("linear"),
        ablation.fusion_of(ablation.ensemble.names),
    ]
    return dict(zip(MEASURED, ablation.evaluations(arms, RESAMPLES), strict=True))


def print_table(lines: Sequence[Line]) -> None:
    """Print the means of the seeds as Markdown, with the range of the seeds' gains."""
    metrics = [*METRICS, RARE]
    print(f"| measured | hidden pairs | {' | '.join(metrics)} |")
    print("|---" * (len(metrics) + 2) + "|")
    for name in MEASURED:
        for arm in ARMS:
            own = [
                line for line in lines if (line["measured"], line["arm"]) == (name, arm)
            ]
            cells = [
                f"{np.mean([line[metric] or 0.0 for line in own]):.1f}"
                for metric in metrics
            ]
            print(f"| {name} | {arm} | {' | '.join(cells)} |")
    for name in MEASURED:
        for metric in METRICS:
            own = [
                line["gains"][metric]
                for line in lines
                if line["measured"] == name and "gains" in line
            ]
            shown = "; ".join(
                f"{gain:+.1f} [{low:+.1f}, {high:+.1f}]" for gain, low, high in own
            )
            print(f"{name}, {metric}: left out minus absent, by seed: {shown}")


if __name__ == "__main__":
    main()
