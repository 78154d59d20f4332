"""What ONNX and its 8-bit weights change: metrics and documents a second of one trained model, against PyTorch.

    python tools/bench_onnx.py runs/quickstart
    python tools/bench_onnx.py runs/imdb --split test
    python tools/bench_onnx.py runs/imdb --threads 1 --clock cpu     # on a machine that others use too

Exports the model of the run to a temporary folder and scores the same documents with each engine. Prints a JSON line
each: metrics, the share of documents that get the best label that PyTorch gives them, documents a second (the median of
`--repeats` passes) and the size of the exported model.
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

from xmtc.config.load import load_config
from xmtc.config.schema import RunConfig
from xmtc.data.collate import Collator
from xmtc.data.corpus import Corpus, Split
from xmtc.data.sampler import evaluation_batches
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds
from xmtc.models.export import LoadedModel
from xmtc.models.onnx_export import export_onnx, load_any
from xmtc.score.scorer import Scoring, score_split

TOKENS = 4096  # of a batch
SHOWN = {"multi_label": ("ndcg@5", "p@1", "micro_f1", "macro_f1"), "single_label": ("accuracy", "macro_f1")}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run directory")
    parser.add_argument("--split", default="dev", help="[dev]")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of one batch [one a core]")
    parser.add_argument("--repeats", type=int, default=3, help="[3]")
    parser.add_argument("--documents", type=int, help="of the split, from the first [all]")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="[wall]")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    split = Corpus.open(load_config(RunConfig, options.run / "config.yaml", []).data.corpus).split(options.split)
    plain = options.run / "model"
    best_N: NDArray[np.int32] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pytorch", "onnx", "onnx int8"):
            path = plain if name == "pytorch" else Path(folder) / "onnx"
            if name != "pytorch":
                export_onnx(plain, path, int8=name == "onnx int8")
            row, found_N = measure(load_any(path, threads=options.threads), split, options)
            best_N = found_N if best_N is None else best_N
            row["megabytes"] = round(sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) / 1e6, 1)
            row["same_best_label"] = round(float((found_N == best_N).mean()), 4)
            print(json.dumps({"engine": name, "documents": len(found_N), **row}), flush=True)


def measure(
    parts: LoadedModel, split: Split, options: argparse.Namespace
) -> tuple[dict[str, float], NDArray[np.int32]]:
    """The figures of one engine, and each document's best label."""
    collate = Collator(split, parts.tokenizer, window=parts.classifier.encoder.window, overlap=parts.info.model.overlap)
    labels, task = len(parts.labels), parts.info.task
    now = time.process_time if options.clock == "cpu" else time.perf_counter
    batches = evaluation_batches(split.lengths[: options.documents], TOKENS)
    taken = []
    for _ in range(options.repeats):
        start = now()
        ids_NK, scores_NK = score_split(parts.classifier, split, collate, labels, Scoring(task=task), batches=batches)
        taken.append(now() - start)
    ids_NK, scores_NK = ids_NK[: options.documents], scores_NK[: options.documents]
    thresholds = None if task == "single_label" else Thresholds(parts.threshold, parts.thresholds_L)
    metrics = evaluate(
        SparsePredictions(ids_NK, scores_NK),
        split.label_matrix()[: options.documents],
        parts.labels,
        train_documents=1,  # of propensities, which are in none of the metrics shown
        config=EvaluateConfig(resamples=0),
        thresholds=thresholds,
    ).metrics
    row = {name: round(metrics[name], 4) for name in SHOWN[task]}
    return row | {"documents_per_s": round(len(ids_NK) / statistics.median(taken), 1)}, ids_NK[:, 0]


if __name__ == "__main__":
    main()
