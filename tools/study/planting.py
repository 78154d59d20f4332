"""The runs of the planting study: docs/benchmarks/planting.md says which and why.

    PYTHONPATH=tools/plugins python tools/study/planting.py data --settings b --out docs/benchmarks/planting

Each run of a setting, arm and seed adds a line to OUT/SETTING.jsonl (figures) and to OUT/SETTING.outcomes.jsonl
(predictions, from which `planting_tables.py` computes intervals). Runs that have a line are skipped; a run that was
killed is repeated. Corpora, hidden states and scorers are shared by the runs of a setting.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from scipy.special import expit

from attention_overlap import attention_overlap
from planting_outcomes import Gold, Predicted, dumps
from planting_settings import ARMS, SETTINGS, arm_config, setting_config
from xmtc.data.corpus import Split
from xmtc.evaluate.decisions import outcomes_of
from xmtc.evaluate.evaluation import evaluate
from xmtc.evaluate.fit_calibration import calibrated, fit_calibration
from xmtc.fusion.cross_fit import CrossFit
from xmtc.fusion.decision import Decision
from xmtc.fusion.ensemble import HEAD, names_of
from xmtc.fusion.fusion import candidates_of
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.planting.mig.ranking import TokenRanking, rank_corpus
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.state import git_state, versions
from xmtc.scorers.base import DenseScored, Features, Scored, Scorer, Training
from xmtc.scorers.config import TreeConfig
from xmtc.scorers.label_text import names_of_labels
from xmtc.scorers.predictions import SparsePredictions
from xmtc.stages.finetune import load_best
from xmtc.stages.hidden_states import ENCODE_TOKENS
from xmtc.stages.plant import token_ndcg
from xmtc.stages.prepare import prepare_corpus, rank_tokens
from xmtc.stages.run_stage import denormals_as_zero, run_stage
from xmtc.stages.worker import Worker, build_worker

CHOOSE, MEASURE = "dev", "test"
"""Splits of the corpus that hold the two halves of dev."""
KEYS = ("p@1", "ndcg@5", "psp@5", "micro_f1", "macro_f1")
COMMON = 5
"""Arm `common_only` plants labels with more training documents than this."""


@dataclass(frozen=True)
class Half:
    """One half of dev as head and scorers see it.

    Attributes:
        head: the head's hundred best labels.
        pairs: candidates of scorers and head.
    """

    head: SparsePredictions
    pairs: Pairs


class Shared:
    """What all runs of a setting have in common: corpus, ranking by MIG, fitted scorers.

    Args:
        config: of the setting, see `setting_config`.
    """

    def __init__(self, config: RunConfig) -> None:
        self.config, self.paths = config, RunPaths.of(config)
        self.corpus = prepare_corpus(config)
        self.counts_L = np.asarray(self.corpus.labels.train_counts, np.int64)
        self.ranking: TokenRanking = rank_corpus(
            self.corpus, config.mig, self.paths.ranking
        )[0]
        self._scored: dict[str, list[list[Scored]]] = {}

    def gold(self, name: str) -> Gold:
        """Labels of a half."""
        labels_NL = self.corpus.split(name).label_matrix()
        labels_NL.sort_indices()
        return Gold(labels_NL, self.counts_L)

    @cached_property
    def training(self) -> Training:
        """What scorers are fitted on."""
        train, vocabulary = self.corpus.split("train"), self.corpus.vocabulary()
        names = names_of_labels(self.corpus.labels, vocabulary)
        return Training(Features(train.words()), train.label_matrix(), names)

    @cached_property
    def scorers(self) -> dict[str, Scorer]:
        """The scorers by name, fitted."""
        settings = self.config.model.scorers
        return {
            name: one.fit(self.training)
            for name, one in zip(names_of(settings), settings, strict=True)
        }

    def scored(self, worker: Worker, split: Split) -> list[list[Scored]]:
        """What the scorers say of a half, by batch of the worker; batches are the same in all runs."""
        if split.name not in self._scored:
            features = (
                Features(split.words(one.documents))
                for one in worker.batches.share(split, ENCODE_TOKENS)
            )
            scorers = self.scorers.values()
            self._scored[split.name] = [
                [scorer.score(some) for scorer in scorers] for some in features
            ]
        return self._scored[split.name]


def train(shared: Shared, config: RunConfig, arm: str) -> dict[str, float]:
    """Run both stages of a run; seconds of this process's cores by stage."""
    paths, seconds = RunPaths.of(config), {}
    planting = planting_plan(config.model, config.plant)
    shutil.rmtree(paths.root, ignore_errors=True)
    if planting.ranks_tokens:
        ranking = rank_tokens(config, paths, shared.corpus)
        if arm == "common_only":
            ranking.token_ids_LK[shared.counts_L <= COMMON] = -1
            ranking.save(paths.ranking)
    for stage in (Stage.PLANT, Stage.FINETUNE):
        if stage is Stage.FINETUNE or planting.parts:
            began = time.process_time()
            run_stage(stage, config, paths)
            seconds[stage.value] = round(time.process_time() - began, 1)
    return seconds


def looks(shared: Shared, worker: Worker) -> dict[str, float]:
    """Share of the attention on tokens of high MIG: after stage 1 where there was one, and at the end."""
    found = {}
    if worker.planting.parts:
        worker.classifier.head.load_state_dict(load_file(worker.paths.planted))
        found["mig_share_planted"] = attention_overlap(worker, shared.ranking)[
            "attention"
        ]
        if "attention" in worker.planting.parts:
            found["planted_ndcg@10"] = token_ndcg(worker)
    load_best(worker)
    overlap = attention_overlap(worker, shared.ranking)
    return found | {
        "mig_share": overlap["attention"],
        "mig_share_chance": overlap["chance"],
    }


def score(shared: Shared, worker: Worker, name: str) -> Half:
    """Score one half with the best weights."""
    split, scored = (
        worker.corpus.split(name),
        shared.scored(worker, worker.corpus.split(name)),
    )
    collate, k = (
        worker.batches.collator(
            split,
            cached=worker.config.finetune.cache_hidden
            and not worker.encoder_use.trains,
        ),
        worker.config.model.fusion.candidates,
    )
    batches = worker.batches.share(split, ENCODE_TOKENS)
    tops, parts = [], []
    worker.classifier.eval()
    for one, others in zip(batches, scored, strict=True):
        with torch.inference_mode(), worker.strategy.autocast():
            head = DenseScored(
                worker.classifier(collate(one).to(worker.strategy.device))
                .float()
                .cpu()
                .numpy()
            )
        best = head.top(worker.config.evaluate.top_k)
        tops.append(SparsePredictions(best.label_ids_NK, expit(best.scores_NK)))
        parts.append(Pairs.of([*others, head], k))
    order = np.argsort(np.concatenate([one.documents for one in batches]))
    parts_N = ([one.label_ids_NK for one in tops], [one.scores_NK for one in tops])
    head_N = SparsePredictions(*(np.concatenate(part)[order] for part in parts_N))
    return Half(head_N, Pairs.concatenate(parts).take(order))


def alone(
    shared: Shared, choose: SparsePredictions, measure: SparsePredictions
) -> tuple[dict[str, Any], Predicted]:
    """Calibrated and with a threshold, both fitted on one half; measured on the other."""
    gold_NL, bins = shared.gold(CHOOSE).labels_NL, shared.config.evaluate.bins
    calibration = fit_calibration(choose, gold_NL, shared.counts_L, bins)
    decision = outcomes_of(calibrated(choose, calibration), gold_NL).tuned("micro")
    return figures(shared, calibrated(measure, calibration), decision)


def fused(
    shared: Shared, choose: Pairs, measure: Pairs, names: Sequence[str]
) -> tuple[dict[str, Any], Predicted]:
    """By a fusion that is fitted on one half, and a threshold for predictions that it was not fitted on."""
    config, gold_NL = shared.config.model.fusion, shared.gold(CHOOSE).labels_NL
    occurrences = Occurrences.without_pairs(shared.counts_L)
    cross_fit = CrossFit(choose, gold_NL, occurrences, config.candidates)
    fusion, logits_NK = cross_fit.everything(names, config)
    found = candidates_of(choose, logits_NK)
    decision = outcomes_of(found, gold_NL).tuned("micro")
    return figures(shared, fusion.fuse(measure), decision)


def figures(
    shared: Shared, predictions: SparsePredictions, decision: Decision
) -> tuple[dict[str, Any], Predicted]:
    """Metrics of the measured half in percent, and what was predicted."""
    gold, documents = shared.gold(MEASURE), shared.corpus.train_documents
    config = replace(shared.config.evaluate, resamples=0)
    found = evaluate(
        predictions,
        gold.labels_NL,
        shared.corpus.labels,
        documents,
        config=config,
        decision=decision,
    ).metrics
    shown = {key: round(100 * found[key], 3) for key in KEYS}
    bins = {
        name: round(100 * (one["macro_f1"] or 0), 3)
        for name, one in found["bins"].items()
    }
    return shown | {"bins": bins, "threshold": decision.threshold}, Predicted.of(
        predictions, gold, decision
    )


def curves(paths: RunPaths) -> dict[str, list[dict[str, float]]]:
    """Dev metrics after each epoch, by stage."""
    found: dict[str, list[dict[str, float]]] = {}
    for row in map(
        json.loads, paths.metrics_log.read_text(encoding="utf-8").splitlines()
    ):
        epoch = {
            key.removeprefix("dev/"): round(value, 5)
            for key, value in row.items()
            if key.startswith("dev/")
        }
        kept = {
            key: epoch[key] for key in ("ndcg@5", "ndcg@10", "macro_f1") if key in epoch
        }
        if kept:
            found.setdefault(row["stage"], []).append(kept)
    return found


def one_run(
    shared: Shared, setting: str, arm: str, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train and measure one run: its figures, and its predictions."""
    began, config = time.perf_counter(), arm_config(shared.config, setting, arm, seed)
    seconds = train(shared, config, arm)
    worker = build_worker(config, RunPaths.of(config))
    with denormals_as_zero():
        share = looks(shared, worker)
        choose, measure = (score(shared, worker, name) for name in (CHOOSE, MEASURE))
    head, head_predicted = alone(shared, choose.head, measure.head)
    both, both_predicted = fused(
        shared, choose.pairs, measure.pairs, [*shared.scorers, HEAD]
    )
    line = {
        "head": head,
        "fused": both,
        **share,
        "curves": curves(RunPaths.of(config)),
        "cpu_s": seconds,
    }
    shutil.rmtree(RunPaths.of(config).root)
    line["wall_s"] = round(time.perf_counter() - began, 1)
    return line, {"head": head_predicted.to_json(), "fused": both_predicted.to_json()}


def reference(
    shared: Shared, setting: str, arm: str, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A system without a head on the same documents: the scorers fused, or a linear tree."""
    began, k = time.process_time(), shared.config.model.fusion.candidates
    halves = [Features(shared.corpus.split(name).words()) for name in (CHOOSE, MEASURE)]
    if arm == "scorers":
        scored = [
            [scorer.score(half) for scorer in shared.scorers.values()]
            for half in halves
        ]
        found, predicted = fused(
            shared, *(Pairs.of(one, k) for one in scored), names=list(shared.scorers)
        )
    else:
        tree = TreeConfig(shape="parabel").fit(shared.training)
        best = [tree.score(half).top(shared.config.evaluate.top_k) for half in halves]
        found, predicted = alone(shared, *best)
    return {"head": found, "cpu_s": {"all": round(time.process_time() - began, 1)}}, {
        "head": predicted.to_json()
    }


def missing(
    setting: str, seeds: Sequence[int], only: Sequence[str], out: Path
) -> Iterator[tuple[str, int]]:
    """Runs of a setting without a line: the reference systems, then five arms at a time, seed by seed.

    Args:
        setting: whose runs.
        seeds: of the runs.
        only: arms to run; all of the setting's if empty.
        out: folder with the lines.
    """
    path = out / f"{setting}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = {(line["arm"], line["seed"]) for line in map(json.loads, lines)}
    arms = [arm for arm in SETTINGS[setting].arms if not only or arm in only]
    wanted = [("scorers", 0), ("parabel", 0)]
    for start in range(0, len(arms), 5):
        wanted += [(arm, seed) for seed in seeds for arm in arms[start : start + 5]]
    yield from (one for one in wanted if one not in done)


def append(path: Path, line: dict[str, Any]) -> None:
    """Add a line at once, so that a kill leaves whole lines only."""
    with path.open("ab", buffering=0) as file:
        file.write(dumps(line).encode("ascii"))
        os.fsync(file.fileno())


def study(setting: str, arguments: argparse.Namespace) -> None:
    """All missing runs of a setting."""
    todo = list(missing(setting, arguments.seeds, arguments.arms, arguments.out))
    if not todo:
        return
    shared = Shared(setting_config(setting, arguments.data, arguments.work))
    lines, outcomes = (
        arguments.out / f"{setting}{end}.jsonl" for end in ("", ".outcomes")
    )
    if not outcomes.exists():
        append(outcomes, shared.gold(MEASURE).to_json())
    state = git_state()
    made_by = {
        "commit": None if state is None else state.commit,
        "versions": versions(),
    }
    made_by["train_documents"] = shared.corpus.train_documents
    for arm, seed in todo:
        work = reference if arm in ("scorers", "parabel") else one_run
        line, predicted = work(shared, setting, arm, seed)
        name = {"setting": setting, "arm": arm, "seed": seed}
        append(outcomes, name | predicted)
        append(lines, name | line | made_by)
        print(
            json.dumps(name | {"head": line["head"], "cpu_s": line["cpu_s"]}),
            flush=True,
        )


def _names(known: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Read comma-separated names, and refuse unknown ones."""

    def parse(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"no {name!r}; there are: {', '.join(known)}"
                )
        return text.split(",")

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with the data sets")
    parser.add_argument(
        "--settings",
        type=_names(SETTINGS),
        default=list(SETTINGS),
        help="comma-separated, in this order",
    )
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1, 2, 3, 4, 5],
    )
    parser.add_argument(
        "--arms",
        type=_names(ARMS),
        default=[],
        help="comma-separated; default: all of a setting",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("docs/benchmarks/planting"),
        help="where the lines go",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("runs/planting_study"),
        help="where corpora and runs go",
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for setting in arguments.settings:
        study(setting, arguments)


if __name__ == "__main__":
    main()
