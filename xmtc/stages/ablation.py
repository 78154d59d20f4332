"""Fusions of some of a model's scorers on dev, each fitted on one half and applied to the other."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.evaluate import layout
from xmtc.evaluate.evaluation import Evaluation
from xmtc.evaluate.scorer_groups import groups_lost_by_fusion
from xmtc.evaluate.summary import in_words
from xmtc.files import write_json
from xmtc.fusion.cross_fit import Arm, CrossFit
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.fusion import candidates_of
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.measuring import quick_evaluation, quick_metrics
from xmtc.stages.worker import Worker
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)

METRICS = ("p@1", "ndcg@5", "micro_f1", "macro_f1", "ece")


@dataclass(frozen=True)
class Ablation:
    """Fusions of dev, each fitted on one half and measured on the other.

    Attributes:
        worker: worker of this rank.
        ensemble: fitted ensemble whose scorers made the pairs.
        cross_fit: pairs and labels of dev.
        logits_NK: logits of the pairs by all scorers.
    """

    worker: Worker
    ensemble: Ensemble
    cross_fit: CrossFit
    logits_NK: NDArray[np.float64]

    def candidates(self, logits_NK: NDArray[np.float64]) -> SparsePredictions:
        """Return what the logits give."""
        return candidates_of(
            self.cross_fit.pairs, logits_NK, exclusive=self.worker.config.data.one_label
        )

    def write(self) -> None:
        """Print the metrics of all scorers, and write JSON: metrics of all (`fused`), and of each alone (`alone`).

        A scorer alone is calibrated by a linear fusion, which takes a moment. What leaving one out costs takes a fusion
        like the whole one for each, and is measured when somebody asks, see `xmtc.stages.ablate`.
        """
        names = self.ensemble.names
        metrics = self._metrics(self.candidates(self.logits_NK))
        fused = shown_metrics(metrics)
        shown = ", ".join(
            in_words(metric, fused[metric]) for metric in METRICS if metric in fused
        )
        print_line(f"dev, all scorers: {shown}")
        arms = [self.alone(name) for name in names]
        alone: dict[str, Any] = {}
        with self.worker.progress.task(
            "each scorer alone", len(arms), "fusions"
        ) as task:
            for name, logits_of_one_NK in zip(
                names, self.cross_fit.logits(arms), strict=True
            ):
                alone[name] = self.measured(self.candidates(logits_of_one_NK))
                task.advance(1)
        groups = {
            name: {"labels": group["labels"], "docs": group["docs"]}
            for name, group in metrics["bins"].items()
        }
        content = {"names": names, "fused": fused, "alone": alone, "groups": groups}
        is_last = self.ensemble.has_head or not self.worker.config.model.head.scores
        for sentence in groups_lost_by_fusion(content) if is_last else ():
            logger.warning("dev, %s; see Scorers in the report", sentence)
        write_json(
            self.worker.paths.evaluation("dev") / layout.SCORERS, content, indent=2
        )

    def alone(self, name: str) -> Arm:
        """Return the fusion that only calibrates one scorer."""
        return Arm([name], self._places([name]), "linear", co_occurrence=False)

    def fusion_of(self, names: Sequence[str], *, co_occurrence: bool = True) -> Arm:
        """Return a fusion of some scorers that is of the fitted ensemble's kind."""
        assert self.ensemble.fusion is not None, "the fusion is not fitted"
        return Arm(
            names,
            self._places(names),
            self.ensemble.fusion.combination.kind,
            self.ensemble.config.co_occurrence and co_occurrence,
        )

    def left_out(self) -> Mapping[str, Arm]:
        """Return the fusion without each scorer, and without the co-occurrence of labels if it takes part."""
        names = self.ensemble.names
        arms = {}
        if len(names) > 1:
            for name in names:
                arms[name] = self.fusion_of([other for other in names if other != name])
        if self.ensemble.fusion is not None and self.ensemble.fusion.first is not None:
            arms[CO_OCCURRENCE] = self.fusion_of(names, co_occurrence=False)
        return arms

    def _places(self, names: Sequence[str]) -> list[int]:
        return [self.ensemble.names.index(name) for name in names]

    def evaluations(self, arms: Sequence[Arm], resamples: int) -> Iterator[Evaluation]:
        """Fit and measure fusions, in order; `evaluation` measures that of all scorers.

        Args:
            arms: the fusions.
            resamples: bootstrap resamples behind intervals.
        """
        for logits_NK in self.cross_fit.logits(arms):
            yield self.evaluation(logits_NK, resamples)

    def evaluation(self, logits_NK: NDArray[np.float64], resamples: int) -> Evaluation:
        """Measure what logits of the pairs give."""
        best = self.candidates(logits_NK).top(self.worker.config.evaluate.top_k)
        return quick_evaluation(
            self.worker,
            best,
            self.worker.dev.label_matrix(),
            calibrated=True,
            resamples=resamples,
        )

    def measured(self, candidates: SparsePredictions) -> dict[str, Any]:
        """Return the metrics of dev that the report shows of a fusion."""
        return shown_metrics(self._metrics(candidates))

    def _metrics(self, candidates: SparsePredictions) -> dict[str, Any]:
        """Return all metrics of dev."""
        best = candidates.top(self.worker.config.evaluate.top_k)
        return quick_metrics(
            self.worker, best, self.worker.dev.label_matrix(), calibrated=True
        )


def shown_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Select the metrics of a fusion that the report shows, with macro-F1 of each bin of labels."""
    shown = {name: metrics[name] for name in METRICS if metrics.get(name) is not None}
    return shown | {
        "bins": {name: values["macro_f1"] for name, values in metrics["bins"].items()}
    }
