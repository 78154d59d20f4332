"""Measure each scorer alone, and the fusion without it, on dev."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xmtc.evaluate import layout
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.files import write_text
from xmtc.fusion.config import CombinationKind, FusionConfig
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.base import Candidates
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.worker import Worker

METRICS = ("p@1", "ndcg@5", "micro_f1", "macro_f1", "ece")


CrossFit = Callable[[FusionConfig, Pairs, Sequence[str]], Candidates]
"""Fuses each half of dev with a fusion of these settings and scorers that is fitted on the other half."""


def write_ablation(worker: Worker, ensemble: Ensemble, pairs: Pairs, fused: Candidates, cross_fit: CrossFit) -> None:
    """Write JSON: `fused`, `alone` and `without` by scorer, each with metrics and macro-F1 by frequency bin.

    Every fusion is fitted on one half of dev and measured on the other. A scorer alone is calibrated by a linear
    fusion. Fusions without a scorer, or without the co-occurrence of labels, are of the same kind as the fitted
    ensemble's.

    Args:
        worker: worker of this rank.
        ensemble: fitted ensemble whose scorers made the pairs.
        pairs: pairs of dev.
        fused: result of `cross_fit` for all scorers.
        cross_fit: see `CrossFit`.
    """
    assert ensemble.fusion is not None, "the fusion is not fitted"
    names, kind = ensemble.names, ensemble.fusion.combination.kind

    def of(kind: CombinationKind, *names: str, co_occurrence: bool = True) -> dict[str, Any]:
        places = [ensemble.names.index(name) for name in names]
        config = replace(ensemble.config, kind=kind, co_occurrence=ensemble.config.co_occurrence and co_occurrence)
        return _measured(worker, cross_fit(config, pairs.only(places), names))

    result: dict[str, Any] = {"names": names, "fused": _measured(worker, fused)}
    result["alone"] = {name: of("linear", name, co_occurrence=False) for name in names}
    without = {name: of(kind, *(one for one in names if one != name)) for name in names if len(names) > 1}
    if ensemble.fusion.first is not None:
        without[CO_OCCURRENCE] = of(kind, *names, co_occurrence=False)
    if without:
        result["without"] = without
    write_text(worker.paths.evaluation("dev") / layout.SCORERS, json.dumps(result, indent=2) + "\n")


def _measured(worker: Worker, found: Candidates) -> dict[str, Any]:
    predictions = best_of(found, worker.config.evaluate.top_k)
    metrics = quick_metrics(worker, predictions, worker.dev.label_matrix(), calibrated=True)
    chosen = {key: metrics[key] for key in METRICS if metrics.get(key) is not None}
    return chosen | {"bins": {name: bin_["macro_f1"] for name, bin_ in metrics["bins"].items()}}


def best_of(found: Candidates, count: int) -> SparsePredictions:
    """Select each document's best candidates."""
    return SparsePredictions(found.label_ids_NK[:, :count], found.scores_NK[:, :count])
