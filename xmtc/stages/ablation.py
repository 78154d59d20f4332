"""Measure each scorer alone, and the fusion without it, on dev."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate import layout
from xmtc.files import write_json
from xmtc.fusion.config import CombinationKind
from xmtc.fusion.cross_fit import Arm, CrossFit
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.fusion import candidates_of
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.worker import Worker
from xmtc.track.console import print_line

METRICS = ("p@1", "ndcg@5", "micro_f1", "macro_f1", "ece")


@dataclass(frozen=True)
class Ablation:
    """Fusions of dev, each fitted on one half and measured on the other.

    Attributes:
        worker: worker of this rank.
        ensemble: fitted ensemble whose scorers made the pairs.
        cross_fit: pairs and labels of dev.
    """

    worker: Worker
    ensemble: Ensemble
    cross_fit: CrossFit

    def logits(self) -> NDArray[np.float64]:
        """Compute the logits of dev by all scorers."""
        return next(self.cross_fit.logits([self._arm(self._kind, *self.ensemble.names)]))

    def candidates(self, logits_NK: NDArray[np.float64]) -> SparsePredictions:
        """Return the candidates of dev with these logits, best first."""
        return candidates_of(self.cross_fit.pairs, logits_NK, exclusive=self.worker.config.data.one_label)

    def write(self, logits_NK: NDArray[np.float64]) -> None:
        """Print the metrics of all scorers, and write JSON: `fused`, `alone` and `without` by scorer, with metrics.

        A scorer alone is calibrated by a linear fusion. Fusions without a scorer, or without the co-occurrence of
        labels, are of the same kind as the fitted ensemble's.

        Args:
            logits_NK: those of `logits`.
        """
        arms = self.arms()
        fused = self._measured(self.candidates(logits_NK))
        metrics = ", ".join(f"{name} {fused[name]:.3f}" for name in METRICS if name in fused)
        print_line(f"dev, all scorers: {metrics}; intervals follow")
        result: dict[str, Any] = {"names": self.ensemble.names, "fused": fused}
        for group, _ in arms:
            result[group] = {}
        logits_of_arms = self.cross_fit.logits(list(arms.values()))
        with self.worker.progress.task("leave out scorers", len(arms), "fusions") as task:
            for (group, name), arm_logits_NK in zip(arms, logits_of_arms, strict=True):
                result[group][name] = self._measured(self.candidates(arm_logits_NK))
                task.advance(1)
        write_json(self.worker.paths.evaluation("dev") / layout.SCORERS, result, indent=2)

    def arms(self) -> Mapping[tuple[str, str], Arm]:
        """Return what is fused, by group and name."""
        names = self.ensemble.names
        kind = self._kind
        arms = {("alone", name): self._arm("linear", name, co_occurrence=False) for name in names}
        if len(names) > 1:
            for name in names:
                rest = [other for other in names if other != name]
                arms["without", name] = self._arm(kind, *rest)
        if self.ensemble.fusion is not None and self.ensemble.fusion.first is not None:
            arms["without", CO_OCCURRENCE] = self._arm(kind, *names, co_occurrence=False)
        return arms

    @property
    def _kind(self) -> CombinationKind:
        assert self.ensemble.fusion is not None, "the fusion is not fitted"
        return self.ensemble.fusion.combination.kind

    def _arm(self, kind: CombinationKind, *names: str, co_occurrence: bool = True) -> Arm:
        config = self.ensemble.config
        config = replace(config, kind=kind, co_occurrence=config.co_occurrence and co_occurrence)
        return Arm(names, [self.ensemble.names.index(name) for name in names], config)

    def _measured(self, candidates: SparsePredictions) -> dict[str, Any]:
        best = candidates.top(self.worker.config.evaluate.top_k)
        metrics = quick_metrics(self.worker, best, self.worker.dev.label_matrix(), calibrated=True)
        shown: dict[str, Any] = {name: metrics[name] for name in METRICS if metrics.get(name) is not None}
        shown["bins"] = {name: row["macro_f1"] for name, row in metrics["bins"].items()}
        return shown
