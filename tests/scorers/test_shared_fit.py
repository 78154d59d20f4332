"""Ranks that share the work of fitting get what one process gets."""

import json
from unittest.mock import patch

import numpy as np
import pytest

import tiny_runs
from gloo import run_gloo
from scorer_cases import training
from xmtc.errors import DataError
from xmtc.pipeline import prepare_stage
from xmtc.run.directory import RunPaths
from xmtc.scorers import linear, ranked_words
from xmtc.scorers.config import LinearConfig, RankedWordsConfig, WordNeighboursConfig
from xmtc.scorers.linear import Linear
from xmtc.scorers.ranked_words import RankedWords
from xmtc.stages.run_stage import run_stage

SCORERS = "[{kind: linear, penalty: 0.3}, {kind: word_neighbours, neighbours: 5}, {kind: state_neighbours}]"
SETTINGS = (
    f"model.scorers={SCORERS}",
    "model.head={kind: flat, pooling: {kind: summary, width: 8}}",
    "plant.parts=[]",
    "finetune.phases=[{epochs: 1, encoder_layers: 0}]",
)


CONFIG = LinearConfig(prune=0, penalty=0.5)
DOCUMENTS = (20, 80)  # fewer and more than columns: the dual form and the primal one


def fit_all() -> list[np.ndarray]:
    cases = [training(documents)[0] for documents in DOCUMENTS]
    scorers = [Linear.fit(one, CONFIG) for one in cases] + [
        RankedWords.fit(cases[0], RankedWordsConfig())
    ]
    return [scorer.weights_WL.toarray() for scorer in scorers]


def fit_on_ranks() -> list[np.ndarray]:
    linear.LABELS_AT_ONCE = ranked_words.LABELS_AT_ONCE = (
        2  # labels: both ranks solve some
    )
    return fit_all()


def test_ranks_find_the_weights_of_one_process(tmp_path):
    expected = fit_all()
    for found in run_gloo(fit_on_ranks, 2, tmp_path):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)


def run_scorers(path) -> str:
    config = tiny_runs.load(path, *SETTINGS, "name=shared", "distributed.workers=2")
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    with (
        patch.object(
            WordNeighboursConfig,
            "fit",
            side_effect=DataError("these documents have no words"),
        ),
        pytest.raises(DataError, match="no words"),  # only the first rank fits it
    ):
        run_stage("scorers", config, paths)
    for stage in ("scorers", "finetune", "evaluate"):
        run_stage(stage, config, paths)
    return str(paths.root)


def test_a_fused_run_on_two_workers_measures_what_one_process_measures(tmp_path):
    path = tiny_runs.write_config(tmp_path)
    prepare_stage(tiny_runs.load(path))
    alone = tiny_runs.load(path, *SETTINGS, "name=alone")
    paths = RunPaths.of(alone)
    paths.root.mkdir(parents=True, exist_ok=True)
    for stage in ("scorers", "finetune", "evaluate"):
        run_stage(stage, alone, paths)
    shared = run_gloo(run_scorers, 2, tmp_path / "gloo", path)[0]
    for split in ("dev", "test"):
        ours, theirs = (
            json.loads((root / "eval" / split / "metrics.json").read_text())
            for root in (
                RunPaths.of(tiny_runs.load(path, "name=shared")).root,
                paths.root,
            )
        )
        for name in ("ndcg@5", "map", "micro_f1", "macro_f1"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-3), (
                split,
                name,
                shared,
            )
