"""Measure each scorer alone, and the fusion without it, on dev."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from xmtc.evaluate.evaluation import evaluate as measure
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.files import write_text
from xmtc.scorers.base import Candidates
from xmtc.scorers.candidates import Pairs
from xmtc.scorers.ensemble import Ensemble, cross_fitted
from xmtc.scorers.fusion import fit_fusion
from xmtc.stages.scoring import thresholds_of
from xmtc.stages.worker import Worker

METRICS = ("p@1", "ndcg@5", "micro_f1", "macro_f1", "ece")


def write_shares(worker: Worker, ensemble: Ensemble, pairs: Pairs, fused: Candidates, path: Path) -> None:
    """Write JSON: `fused`, `alone` and `without` by scorer, each with metrics and macro-F1 by frequency bin.

    Every fusion is fitted on one half of dev and measured on the other.

    Args:
        worker: worker of this rank.
        ensemble: ensemble whose scorers made the pairs.
        pairs: pairs of dev.
        fused: result of `cross_fitted_dev` for all scorers.
        path: path of the file.
    """
    names = ensemble.names

    def of(places: list[int]) -> dict[str, Any]:
        some = [names[place] for place in places]
        return _measured(worker, cross_fitted_dev(worker, ensemble, pairs.only(places), some))

    everything = list(range(len(names)))
    result: dict[str, Any] = {"names": names, "fused": _measured(worker, fused)}
    result["alone"] = {name: of([place]) for place, name in enumerate(names)}
    if len(names) > 1:
        result["without"] = {name: of([one for one in everything if one != place]) for place, name in enumerate(names)}
    write_text(path, json.dumps(result, indent=2) + "\n")


def _measured(worker: Worker, found: Candidates) -> dict[str, Any]:
    top_k, gold = worker.config.evaluate.top_k, worker.dev.label_matrix()
    predictions = SparsePredictions(found.label_ids_NK[:, :top_k], found.scores_NK[:, :top_k])
    evaluation = measure(
        predictions,
        gold,
        worker.corpus.labels,
        len(worker.train),
        config=replace(worker.config.evaluate, resamples=0),
        thresholds=thresholds_of(worker, predictions, gold),
    )
    chosen = {key: evaluation.metrics[key] for key in METRICS if evaluation.metrics.get(key) is not None}
    return chosen | {"bins": {name: bin_["macro_f1"] for name, bin_ in evaluation.metrics["bins"].items()}}


def cross_fitted_dev(worker: Worker, ensemble: Ensemble, pairs: Pairs, names: list[str] | None = None) -> Candidates:
    """Fuse each half of dev with a fusion fitted on the other half.

    Args:
        worker: worker of this rank.
        ensemble: ensemble whose scorers made the pairs.
        pairs: pairs of dev.
        names: names of the scorers in `pairs`. Default: all of the ensemble's.
    """
    counts_L = worker.corpus.labels.train_counts
    return cross_fitted(
        lambda part, gold: fit_fusion(names or ensemble.names, part, gold, counts_L, ensemble.config),
        pairs,
        worker.dev.label_matrix(),
        exclusive=worker.config.data.task == "single_label",
    )
