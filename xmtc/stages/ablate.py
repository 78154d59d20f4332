"""`xmtc ablate`: what each scorer of a finished run adds, what it costs, and which of them add nothing.

Every fusion is fitted on one half of dev and measured on the other. Intervals of differences are of paired bootstrap
resamples: both fusions on the same resampled documents.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.config.load import load_config
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate import layout
from xmtc.evaluate.bootstrap import Difference, paired_difference
from xmtc.evaluate.evaluation import Evaluation
from xmtc.files import read_json, write_json
from xmtc.fusion.cross_fit import Arm
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunDirectory, RunPaths
from xmtc.stages.ablation import Ablation, shown_metrics
from xmtc.stages.evaluate import load_model, predictor
from xmtc.stages.fused_predictor import FusedPredictor
from xmtc.stages.run_stage import denormals_as_zero
from xmtc.stages.scorer_cost import ENCODER, milliseconds_per_document
from xmtc.stages.worker import Worker, build_worker

_RESAMPLES = 300
_NOTHING = {"ndcg@5": 0.001, "accuracy": 0.001, "macro_f1": 0.003}
"""What a scorer may add, as a fraction, and still be taken to add nothing."""
_COMPARED = ("ndcg@5", "macro_f1")
_COMPARED_ONE_LABEL = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Contribution:
    """What a scorer adds to the fusion of all others, and costs.

    Attributes:
        name: name of the scorer, or that of the co-occurrence of labels.
        adds: by metric, the fusion with it minus the fusion without it, as a fraction.
        intervals: by metric, the 95 % interval of that.
        milliseconds: of a document; None for the co-occurrence, which is part of the fusion.
    """

    name: str
    adds: Mapping[str, float]
    intervals: Mapping[str, Difference]
    milliseconds: float | None

    @property
    def adds_nothing(self) -> bool:
        """Whether it adds at most 0.1 points of nDCG@5 or accuracy, and 0.3 of macro-F1.

        Estimates decide, not intervals: where dev is small every interval reaches 0, which would be missing evidence
        taken for evidence that a scorer is of no use.
        """
        return all(added <= _NOTHING[metric] for metric, added in self.adds.items())


@dataclass(frozen=True)
class AblationResult:
    """What `ablate` finds out.

    Attributes:
        contributions: of each scorer, those that add most first.
        encoder_ms: milliseconds of a document that encoding takes, which the head and scorers of states share.
        left_out: scorers that add nothing together, see `Contribution.adds_nothing`.
        together: what these add together; None if there are none.
        metrics: names of the metrics that were compared.
    """

    contributions: Sequence[Contribution]
    encoder_ms: float | None
    left_out: Sequence[str]
    together: Contribution | None
    metrics: Sequence[str]


def configuration_of(run: Path) -> RunConfig:
    """Read the configuration of a finished run, to work with it in this process, wherever the run was moved to.

    Raises:
        DataError: there is no finished run.
        ConfigError: its configuration cannot be read.
    """
    files = RunDirectory(run)
    if not files.metrics("dev").is_file() or not files.config.is_file():
        raise DataError(
            f"{run}: no finished run there (config.yaml and eval/dev/metrics.json); train it to the end"
        )
    here = [
        f"name={json.dumps(run.resolve().name)}",
        f"track.directory={json.dumps(str(run.resolve().parent))}",
        "distributed.workers=0",
        "distributed.address=null",
    ]
    return load_config(RunConfig, files.config, here)


def ablate(config: RunConfig, paths: RunPaths) -> AblationResult:
    """Measure what each scorer of a finished run adds on dev, and add it to the run's `scorers.json`.

    Args:
        config: configuration of the run, for this process.
        paths: its files.

    Raises:
        ConfigError: the run has no scorers to leave out.
    """
    count = len(config.model.scorers) + config.model.head.scores
    if not config.model.scorers or count < 2:
        raise ConfigError(
            f"{paths.root}: a model of one scorer has none that could be left out"
        )
    worker = build_worker(config, paths, split=False)
    with denormals_as_zero():
        load_model(worker)
        predicts = predictor(worker)
        assert isinstance(predicts, FusedPredictor), "a model with scorers is fused"
        ablation = predicts.ablation(predicts.pairs(worker.dev))
        return _Measuring(worker, ablation).result()


class _Measuring:
    """Measures fusions against that of all scorers."""

    def __init__(self, worker: Worker, ablation: Ablation) -> None:
        self._worker = worker
        self._ablation = ablation
        self._metrics = (
            _COMPARED_ONE_LABEL if worker.config.data.one_label else _COMPARED
        )
        self._fused = ablation.evaluation(ablation.logits_NK, _RESAMPLES)

    def result(self) -> AblationResult:
        """Leave out each scorer, then all together that add nothing, and write what the report shows."""
        ablation = self._ablation
        costs = milliseconds_per_document(self._worker, ablation.ensemble)
        arms = ablation.left_out()
        contributions = []
        without: dict[str, Any] = {}
        with self._worker.progress.task(
            "leave out scorers", len(arms), "fusions"
        ) as task:
            for name, evaluation in zip(
                arms,
                self._ablation.evaluations(list(arms.values()), _RESAMPLES),
                strict=True,
            ):
                contributions.append(
                    self._contribution(name, evaluation, costs.get(name))
                )
                without[name] = shown_metrics(evaluation.metrics)
                task.advance(1)
        self._write(without)
        contributions.sort(
            key=lambda contribution: contribution.adds[self._metrics[0]], reverse=True
        )
        left_out, together = self._leave_out_together(contributions, costs)
        return AblationResult(
            contributions, costs.get(ENCODER), left_out, together, self._metrics
        )

    def _leave_out_together(
        self, contributions: Sequence[Contribution], costs: Mapping[str, float]
    ) -> tuple[list[str], Contribution | None]:
        """Leave out those that add nothing, the costliest first, as long as all that are left out add nothing together.

        Two that stand in for each other each seem to add nothing.
        """
        names = self._ablation.ensemble.names
        candidates = [
            contribution
            for contribution in contributions
            if contribution.adds_nothing and contribution.name in names
        ]
        candidates.sort(
            key=lambda candidate: costs.get(candidate.name, 0.0), reverse=True
        )
        left_out: list[str] = []
        together: Contribution | None = None
        for candidate in candidates:
            tried = [*left_out, candidate.name]
            if len(tried) == len(names):
                break
            without = candidate
            if left_out:
                arm = self._ablation.fusion_of(
                    [name for name in names if name not in tried]
                )
                total = sum(costs.get(name, 0.0) for name in tried)
                without = self._contribution(
                    " and ".join(tried), self._evaluation(arm), total
                )
            if without.adds_nothing:
                left_out, together = tried, without
        return left_out, together

    def _contribution(
        self, name: str, without: Evaluation, milliseconds: float | None
    ) -> Contribution:
        """Compare the fusion of all scorers with one without some."""
        assert self._fused.replicates is not None, "resamples were drawn"
        assert without.replicates is not None, "resamples were drawn"
        adds = {}
        intervals = {}
        for metric in self._metrics:
            adds[metric] = self._fused.metrics[metric] - without.metrics[metric]
            intervals[metric] = paired_difference(
                self._fused.replicates, without.replicates, metric
            )
        return Contribution(name, adds, intervals, milliseconds)

    def _evaluation(self, arm: Arm) -> Evaluation:
        """Fit and measure one fusion."""
        return next(self._ablation.evaluations([arm], _RESAMPLES))

    def _write(self, without: Mapping[str, Any]) -> None:
        """Add the fusions without each scorer to what the report shows."""
        path = self._worker.paths.evaluation("dev") / layout.SCORERS
        content = read_json(path) if path.is_file() else {}
        fused = {
            "names": self._ablation.ensemble.names,
            "fused": shown_metrics(self._fused.metrics),
        }
        write_json(
            path, {"alone": {}} | content | fused | {"without": without}, indent=2
        )
