"""Time and memory of evaluating a million documents: every metric, 1,000 bootstrap resamples of each interval.

    .venv/bin/python tools/bench/evaluate.py
    .venv/bin/python tools/bench/evaluate.py --documents 100000 --max-seconds 20

Prints JSON lines; the last holds the bar: under 120 s and 6 GiB at the default size on 2 cores. Exits 1 when it is not
held. Made-up predictions: labels by a power law, about 5 gold labels and 5 predicted labels per document.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.labels import LabelTable
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import Evaluation, evaluate
from xmtc.scorers.predictions import SparsePredictions

BLOCK = 20_000


def power_law(labels: int) -> NDArray[np.float64]:
    weights = (np.arange(labels) + 5.0) ** -1.1
    return weights / weights.sum()


def distinct(ids_BK: NDArray[np.int32]) -> NDArray[np.int32]:
    """Each row's labels once, in their order, padded with -1."""
    order = np.argsort(ids_BK, axis=1, kind="stable")
    ranked = np.take_along_axis(ids_BK, order, axis=1)
    again = np.zeros(ids_BK.shape, bool)
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
    kept = np.take_along_axis(ids_BK, np.argsort(again, axis=1, kind="stable"), axis=1)
    kept[np.arange(ids_BK.shape[1]) >= (~again).sum(axis=1)[:, None]] = -1
    return kept


def make(
    documents: int, labels: int, top_k: int
) -> tuple[SparsePredictions, sparse.csr_array, LabelTable]:
    rng = np.random.default_rng(0)
    cumulated = np.cumsum(power_law(labels)).astype(np.float32)
    gold_N5 = np.minimum(
        np.searchsorted(cumulated, rng.random((documents, 5), dtype=np.float32)),
        labels - 1,
    )
    rows = np.repeat(np.arange(documents, dtype=np.int32), 5)
    gold = sparse.csr_array(
        (np.ones(rows.size, bool), (rows, gold_N5.ravel())), shape=(documents, labels)
    )
    gold.sum_duplicates()
    ids_NK = np.empty((documents, top_k), np.int32)
    scores_NK = np.empty((documents, top_k), np.float32)
    for start in range(0, documents, BLOCK):
        target = slice(start, start + BLOCK)
        uniform = rng.random(ids_NK[target].shape, dtype=np.float32)
        ids = np.minimum(np.searchsorted(cumulated, uniform), labels - 1).astype(
            np.int32
        )
        found = rng.random((len(ids), 5)) < 0.7
        ids[:, :10:2] = np.where(found, gold_N5[target], ids[:, :10:2])
        ids_NK[target] = distinct(ids)
        scores_NK[target] = -np.sort(
            -(rng.random(ids.shape, dtype=np.float32) ** 20), axis=1
        )
    names = [f"label {i}" for i in range(labels)]
    counts = (power_law(labels) * 5 * documents / 20).astype(np.int64)
    return SparsePredictions(ids_NK, scores_NK), gold, LabelTable(names, names, counts)


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(name: str, work: Callable[[], Evaluation | object]) -> float:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    seconds = time.perf_counter() - start
    facts = {
        "name": name,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
    }
    print(json.dumps(facts | {"peak_gib": round(peak_gib(), 2)}), flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, default=30_000)
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--max-seconds", type=float, default=120.0)
    parser.add_argument("--max-gib", type=float, default=6.0)
    args = parser.parse_args()
    predictions, gold, labels = make(args.documents, args.labels, args.top_k)
    print(
        json.dumps(
            {
                "name": "data",
                "gold_per_doc": gold.nnz / args.documents,
                "peak_gib": round(peak_gib(), 2),
            }
        )
    )
    decision = []
    timed(
        "tune the decision",
        lambda: decision.append(outcomes_of(predictions, gold).tuned("micro")),
    )
    config = EvaluateConfig(top_k=args.top_k, resamples=args.resamples)
    seconds = timed(
        "evaluate",
        lambda: evaluate(
            predictions,
            gold,
            labels,
            args.documents,
            config=config,
            decision=decision[0],
        ),
    )
    ratio = min(args.max_seconds / seconds, args.max_gib / peak_gib())
    print(
        json.dumps(
            {
                "name": "bench_evaluate",
                "ratio": round(ratio, 2),
                "bar": 1.0,
                "holds": ratio >= 1,
            }
        )
    )
    sys.exit(0 if ratio >= 1 else 1)


if __name__ == "__main__":
    main()
