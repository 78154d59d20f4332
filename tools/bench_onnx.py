"""What ONNX and its 8-bit weights change: metrics and documents per second of one trained model, against PyTorch.

    python tools/bench_onnx.py runs/imdb --split test
    python tools/bench_onnx.py runs/imdb --threads 1 --clock cpu     # on a machine that others use too

Exports the model of the run to a temporary folder and scores the same documents with each engine. Prints a JSON line
each: metrics; for the graphs, in how many documents more than in PyTorch the best label is right (with one label per
document, the difference in accuracy), with the 95 % interval bootstrapped over documents; the share of documents
that get the best label that PyTorch gives them; documents per second, the median of `--repeats` passes that the engines
take in turns; and the size of the exported model.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.artefact.export import ModelParts
from xmtc.artefact.onnx_export import export_onnx, load_any
from xmtc.config.load import load_config
from xmtc.data.collate import Collator
from xmtc.data.corpus import Corpus, Split
from xmtc.data.sampler import evaluation_batches
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds
from xmtc.predict.scorer import Scoring, score_split
from xmtc.run.config import RunConfig

TOKENS = 4096  # of a batch
RESAMPLES = 2000
Found = tuple[NDArray[np.int32], NDArray[np.float32]]  # label ids and scores, best first
SHOWN = {"multi_label": ("ndcg@5", "p@1", "micro_f1", "macro_f1"), "single_label": ("accuracy", "macro_f1")}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--split", default="dev", help="[dev]")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of one batch [one per core]")
    parser.add_argument("--repeats", type=int, default=3, help="[3]")
    parser.add_argument("--documents", type=int, help="of the split, from the first [all]")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="[wall]")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    split = Corpus.open(load_config(RunConfig, options.run / "config.yaml", []).data.corpus).split(options.split)
    plain = options.run / "model"
    with tempfile.TemporaryDirectory() as folder:
        paths = {"pytorch": plain, "onnx": Path(folder) / "float", "onnx int8": Path(folder) / "int8"}
        for name, path in paths.items():
            if path != plain:
                export_onnx(plain, path, int8=name == "onnx int8")
        engines = {name: load_any(path, threads=options.threads) for name, path in paths.items()}
        found, taken = score_in_turns(engines, split, options)
        best_N, right_N = found["pytorch"][0][:, 0], right(found["pytorch"][0], split)
        for name, parts in engines.items():
            ids_NK, scores_NK = found[name]
            row: dict[str, object] = {"engine": name, "documents": len(ids_NK)}
            row |= metrics(parts, ids_NK, scores_NK, split)
            if name != "pytorch":
                row["best_label_right_minus_pytorch"] = paired_interval(right(ids_NK, split) - right_N)
            row["same_best_label"] = round(float((ids_NK[:, 0] == best_N).mean()), 4)
            row["documents_per_s"] = round(len(ids_NK) / statistics.median(taken[name]), 1)
            row["of_passes"] = [round(len(ids_NK) / seconds, 1) for seconds in taken[name]]
            row["threads"] = options.threads
            row["megabytes"] = round(sum(p.stat().st_size for p in paths[name].rglob("*") if p.is_file()) / 1e6, 1)
            print(json.dumps(row), flush=True)


def score_in_turns(
    engines: dict[str, ModelParts], split: Split, options: argparse.Namespace
) -> tuple[dict[str, Found], dict[str, list[float]]]:
    """What each engine finds, and the seconds of its passes: engine after engine, so that all see the same machine."""
    now = time.process_time if options.clock == "cpu" else time.perf_counter
    batches = evaluation_batches(split.lengths[: options.documents], TOKENS)
    found: dict[str, Found] = {}
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(options.repeats):
        for name, parts in engines.items():
            window, overlap = parts.classifier.encoder.window, parts.info.model.overlap
            collate = Collator(split, parts.tokenizer, window=window, overlap=overlap)
            scoring = Scoring(len(parts.labels), task=parts.info.task)
            start = now()
            ids_NK, scores_NK = score_split(parts.classifier, split, collate, scoring, batches=batches)
            taken[name].append(now() - start)
            found[name] = ids_NK[: options.documents], scores_NK[: options.documents]
    return found, taken


def right(ids_NK: NDArray[np.int32], split: Split) -> NDArray[np.float64]:
    """1 for each document (N,) whose best label is correct, otherwise 0."""
    labels_NL = split.label_matrix()[: len(ids_NK)].tocsr()
    return np.asarray(labels_NL[np.arange(len(ids_NK)), ids_NK[:, 0]], np.float64).ravel()


def paired_interval(difference_N: NDArray[np.float64]) -> list[float]:
    """The mean of the documents' differences, and its 95 % bootstrap interval."""
    generator, documents = np.random.default_rng(0), len(difference_N)
    means = [difference_N[generator.integers(documents, size=documents)].mean() for _ in range(RESAMPLES)]
    return [round(float(x), 4) for x in (difference_N.mean(), *np.quantile(means, [0.025, 0.975]))]


def metrics(
    parts: ModelParts, ids_NK: NDArray[np.int32], scores_NK: NDArray[np.float32], split: Split
) -> dict[str, float]:
    """The metrics that are shown."""
    task = parts.info.task
    thresholds = None if task == "single_label" else Thresholds(parts.threshold, parts.thresholds_L)
    found = evaluate(
        SparsePredictions(ids_NK, scores_NK),
        split.label_matrix()[: len(ids_NK)],
        parts.labels,
        train_documents=1,  # of propensities, which are in none of the metrics shown
        config=EvaluateConfig(resamples=0),
        thresholds=thresholds,
    ).metrics
    return {name: round(found[name], 4) for name in SHOWN[task]}


if __name__ == "__main__":
    main()
