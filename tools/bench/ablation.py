"""Seconds to fit a run's fusion, cross-fit dev and leave out each scorer, against a loop that shares nothing.

    xmtc train configs/eurlex57k_scorers.yaml
    python tools/bench/ablation.py runs/eurlex57k_scorers

The loop is what xmtc did before: it fits one fusion after another, chooses its kind again for each half, grows trees on
all pairs, walks them level by level, and multiplies probabilities by the whole table of labels that occur together. The
last line is {"name", "ratio", "bar", "holds"}, of wall clock; `cpu_ratio` is of processor seconds. The line before has
the largest difference of a metric. Exits 1 if the bar is not held.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy import sparse

from xmtc.config.load import load_config
from xmtc.fusion import boosted, fusion
from xmtc.fusion.boosted import BoostedTrees
from xmtc.fusion.combination import Floats
from xmtc.fusion.cross_fit import Arm, CrossFit
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.fusion import fit_fusion
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.scorers.base import SparseScored
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.ablation import Ablation
from xmtc.stages.fused_predictor import FusedPredictor, load_ensemble
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.worker import Worker, build_worker

BAR = 5.0
KEYS = ("p@1", "ndcg@5", "micro_f1", "macro_f1")
Found = dict[tuple[str, str], SparsePredictions]


def walked(trees: BoostedTrees, inputs_XNK: Floats, label_ids_NK: np.ndarray) -> Floats:
    """Logits by the nodes of all trees, level by level."""
    used_NK = label_ids_NK >= 0
    inputs_PX = np.ascontiguousarray(inputs_XNK[:, used_NK].T)
    logits_P = np.full(len(inputs_PX), trees.start_1[0])
    children = trees.children_V2.ravel()
    for first in range(0, len(inputs_PX), 512):
        some = inputs_PX[first : first + 512]
        first_P1 = np.arange(0, some.size, some.shape[1], dtype=np.int32)[:, None]
        node_PT = np.repeat(trees.roots_T[None], len(some), axis=0)
        for _ in range(6):
            values_PT = some.ravel().take(first_P1 + trees.input_V.take(node_PT))
            node_PT = children.take(
                2 * node_PT + (values_PT > trees.threshold_V.take(node_PT))
            )
        logits_P[first : first + 512] += trees.value_V.take(node_PT).sum(axis=1)
    logits_NK = np.zeros(used_NK.shape)
    logits_NK[used_NK] = logits_P
    return logits_NK


def multiplied(pairs: Pairs, chances_NK: Floats, occurrences: Occurrences) -> Pairs:
    """Add the scores of the co-occurrence, by a product with the whole table."""
    ids_NK = pairs.label_ids_NK
    rows, places = np.nonzero(pairs.used)
    chances = chances_NK[rows, places].astype(np.float32), (rows, ids_NK[rows, places])
    found_NL = (
        sparse.csr_array(chances, shape=(len(ids_NK), len(occurrences.counts_L)))
        @ occurrences.given_LL
    )
    found_NL.sort_indices()
    scores_NK = SparseScored(found_NL).at(ids_NK)
    return replace(
        pairs, scores_SNK=np.concatenate([pairs.scores_SNK, scores_NK[None]])
    )


def halves(
    arm: Arm, pairs: Pairs, worker: Worker, occurrences: Occurrences
) -> SparsePredictions:
    """Fuse each half with a fusion fitted on the other."""
    gold_NL, used = worker.dev.label_matrix(), pairs.only(arm.places)
    ids_NK, scores_NK = (
        np.full(pairs.label_ids_NK.shape, -1, np.int32),
        np.zeros(pairs.label_ids_NK.shape, np.float32),
    )
    rows_N = np.arange(len(ids_NK))
    for half in (0, 1):
        learned, judged = rows_N[rows_N % 2 != half], rows_N[rows_N % 2 == half]
        fitted = fit_fusion(
            arm.names, used.take(learned), gold_NL[learned], occurrences, arm.config
        )
        found = fitted.fuse(
            used.take(judged), exclusive=worker.config.data.task == "single_label"
        )
        ids_NK[judged], scores_NK[judged] = found.label_ids_NK, found.scores_NK
    return SparsePredictions(ids_NK, scores_NK)


def before(
    worker: Worker, ensemble: Ensemble, pairs: Pairs, occurrences: Occurrences
) -> Found:
    """Fit and apply every fusion on its own."""
    with (
        mock.patch.object(boosted, "MAX_PAIRS", 10**9),
        mock.patch.object(BoostedTrees, "logits", walked),
        mock.patch.object(fusion, "_with_co_occurrence", multiplied),
    ):
        everything = Arm(ensemble.names, range(len(ensemble.names)), ensemble.config)
        fused = halves(everything, pairs, worker, occurrences)
        ensemble = ensemble.fitted(pairs, worker.dev.label_matrix(), occurrences)
        arms = arms_of(
            Ablation(worker, ensemble, cross_fit(worker, pairs, occurrences))
        )
        found = {
            key: halves(arm, pairs, worker, occurrences) for key, arm in arms.items()
        }
    return {("fused", ""): fused} | found


def now(
    worker: Worker, ensemble: Ensemble, pairs: Pairs, occurrences: Occurrences
) -> Found:
    """Fit and apply the same fusions as a run does."""
    ensemble = ensemble.fitted(pairs, worker.dev.label_matrix(), occurrences)
    ablation = Ablation(worker, ensemble, cross_fit(worker, pairs, occurrences))
    fused, arms = ablation.candidates(ablation.logits()), arms_of(ablation)
    found = map(ablation.candidates, ablation.cross_fit.logits(list(arms.values())))
    return {("fused", ""): fused} | dict(zip(arms, found, strict=True))


def arms_of(ablation: Ablation) -> dict[tuple[str, str], Arm]:
    """Return the fusions of a run and of `xmtc ablate`: each scorer alone, and all without each."""
    arms = {("alone", name): ablation.alone(name) for name in ablation.ensemble.names}
    return arms | {("without", name): arm for name, arm in ablation.left_out().items()}


def cross_fit(worker: Worker, pairs: Pairs, occurrences: Occurrences) -> CrossFit:
    return CrossFit(pairs, worker.dev.label_matrix(), occurrences)


def differences(
    worker: Worker, old: Found, new: Found
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the change of each metric of each fusion in points, and its description."""
    for key in old:
        metrics = [
            quick_metrics(
                worker, found[key].top(100), worker.dev.label_matrix(), calibrated=True
            )
            for found in (old, new)
        ]
        for name in KEYS:
            points = 100 * (metrics[1][name] - metrics[0][name])
            yield (
                points,
                {
                    "fusion": " ".join(key).strip(),
                    "metric": name,
                    "points": round(points, 3),
                },
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="finished run with scorers")
    arguments = parser.parse_args()
    config = load_config(RunConfig, arguments.run / "config.yaml", [])
    worker = build_worker(config, RunPaths.of(config))
    predictor = FusedPredictor(
        worker, load_ensemble(worker, has_head=config.model.head.scores), cached=True
    )
    pairs, occurrences = predictor.pairs(worker.dev), predictor._occurrences
    found, walls, cpus = [], [], []
    for arm in (before, now):
        wall, cpu = time.perf_counter(), time.process_time()
        found.append(arm(worker, predictor.ensemble, pairs, occurrences))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        facts = {
            "fusions": len(found[-1]),
            "seconds": round(walls[-1], 1),
            "cpu_seconds": round(cpus[-1], 1),
        }
        print(
            json.dumps({"name": arm.__name__, "pairs": int(pairs.used.sum()), **facts}),
            flush=True,
        )
    _, largest = max(differences(worker, *found), key=lambda one: abs(one[0]))
    print(
        json.dumps(
            {"largest_difference": largest, "cpu_ratio": round(cpus[0] / cpus[1], 2)}
        )
    )
    ratio = walls[0] / walls[1]
    print(
        json.dumps(
            {
                "name": "ablation",
                "ratio": round(ratio, 2),
                "bar": BAR,
                "holds": ratio >= BAR,
            }
        )
    )
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
