"""The tools of the planting study on a tiny configuration: resumable, and its tables follow from what it writes."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

import planting
import planting_outcomes
import planting_settings
import planting_tables
from tiny_runs import load, write_config
from xmtc.fusion.decision import Decision
from xmtc.planting.plan import planting_plan
from xmtc.scorers.predictions import SparsePredictions

SCORERS = [{"kind": "linear", "penalty": 0.1}, {"kind": "word_neighbours"}]


def test_tables_follow_from_what_runs_write_and_done_runs_are_skipped(
    tmp_path, monkeypatch, capsys
):
    shared = load(
        write_config(tmp_path),
        f"model.scorers={json.dumps(SCORERS)}",
        "finetune.phases=[{epochs: 1}]",
    )
    setting = planting_settings.Setting(
        "", "", None, ("random_long", "planted", "prototypes")
    )
    monkeypatch.setitem(planting_settings.SETTINGS, "b", setting)
    monkeypatch.setattr(planting, "setting_config", lambda *_: shared)
    out = tmp_path / "out"
    out.mkdir()
    arguments = SimpleNamespace(
        seeds=[1], arms=[], out=out, data=tmp_path, work=tmp_path
    )
    assert list(planting.missing("b", [1, 2], ["planted"], out))[2:] == [
        ("planted", 1),
        ("planted", 2),
    ]
    planting.study("b", arguments)
    written = (out / "b.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["arm"], line["seed"]) for line in lines] == [
        ("scorers", 0), ("parabel", 0), ("random_long", 1), ("planted", 1), ("prototypes", 1),
    ]  # fmt: skip
    assert len(lines[2]["curves"]["finetune"]) == 3, (
        "one epoch of stage 2 and two of stage 1"
    )
    assert "mig_share_planted" in lines[3]
    assert lines[4]["cpu_s"].keys() == {"plant", "finetune"}
    planting.study("b", arguments)
    assert (out / "b.jsonl").read_text() == written
    results = planting_tables.Results.read(out, "b", resamples=50)
    for line in lines:
        for system in ("head", "fused") if "fused" in line else ("head",):
            drawn = results.replicates(line["arm"], line["seed"], system)
            for key in ("macro_f1", "ndcg@5", "micro_f1"):
                assert drawn[key].mean() == pytest.approx(line[system][key], abs=0.01)
    contrast = next(
        one for one in planting_tables.CONTRASTS if one.title.startswith("H5")
    )
    mean, low, high = results.contrast(contrast, "ndcg@5")
    by_arm = [
        results.means(arm, "head")["ndcg@5"] for arm in ("planted", "random_long")
    ]
    assert mean == pytest.approx(by_arm[0] - by_arm[1], abs=0.01)
    assert low <= mean <= high
    monkeypatch.setattr(
        sys, "argv", ["planting_tables.py", str(out), "--resamples", "20"]
    )
    planting_tables.main()
    assert "1 of 5: not finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arm", "planted", "stage_1", "stage_2", "signal"),
    [
        ("random", "", 0, 10, "mig"),
        ("random_long", "", 0, 15, "mig"),
        ("prototypes", "rows", 0, 10, "mig"),
        ("prototypes_long", "rows", 0, 15, "mig"),
        ("planted_attention", "attention", 5, 10, "mig"),
        ("planted", "attention rows", 5, 10, "mig"),
        ("shuffled", "attention", 5, 10, "exchanged"),
        ("tfidf", "attention", 5, 10, "tfidf"),
        ("pmi", "attention", 5, 10, "pmi"),
        ("chi2", "attention", 5, 10, "chi2"),
        ("published", "attention", 10, 10, "mig"),
        ("published_random", "", 0, 20, "mig"),
        ("common_only", "attention", 5, 10, "mig"),
        ("stage1_1", "attention", 1, 10, "mig"),
        ("stage1_20", "attention", 20, 10, "mig"),
        ("closed", "attention rows values", 0, 10, "mig"),
        ("closed_attention", "attention rows", 0, 10, "mig"),
        ("closed_values", "rows values", 0, 10, "mig"),
        ("closed_half", "attention rows values", 0, 5, "mig"),
        ("closed_shuffled", "attention rows values", 0, 10, "exchanged"),
    ],
)
def test_arms(tmp_path, arm, planted, stage_1, stage_2, signal):
    (tmp_path / "eurlex57k").mkdir()
    pq.write_table(
        pa.table({"doc_id": ["a", "b"]}), tmp_path / "eurlex57k" / "dev.parquet"
    )
    shared = planting_settings.setting_config("g500", tmp_path, tmp_path / "work")
    config = planting_settings.arm_config(shared, "g500", arm, seed=3)
    plan = planting_plan(config.model, config.plant)
    assert " ".join(sorted(plan.parts)) == planted
    assert plan.ranking_epochs == stage_1
    assert sum(phase.epochs for phase in config.finetune.phases) == stage_2
    assert config.mig.signal.kind == signal
    assert config.seed == 3
    assert config.mig.signed == (not arm.startswith("published"))


def test_every_arm_of_a_setting_is_known():
    named = {
        arm for setting in planting_settings.SETTINGS.values() for arm in setting.arms
    }
    assert named == set(planting_settings.ARMS)


def test_outcomes_survive_being_written():
    generator = np.random.default_rng(0)
    labels_NL = sparse.csr_array(generator.random((7, 12)) < 0.2)
    labels_NL.sort_indices()
    gold = planting_outcomes.Gold(labels_NL, generator.integers(0, 9, 12))
    ids_NK = np.array([generator.permutation(12)[:6] for _ in range(7)], np.int32)
    scores_NK = -np.sort(-generator.random((7, 6), np.float32), axis=1)
    predicted = planting_outcomes.Predicted.of(
        SparsePredictions(ids_NK, scores_NK), gold, Decision(0.5)
    )
    read_gold = planting_outcomes.Gold.from_json(json.loads(json.dumps(gold.to_json())))
    read = planting_outcomes.Predicted.from_json(
        json.loads(json.dumps(predicted.to_json())), read_gold
    )
    assert (read_gold.labels_NL != labels_NL).nnz == 0
    assert read_gold.counts_L.tolist() == gold.counts_L.tolist()
    made = np.zeros((7, 12), bool)
    for row in range(7):
        made[row, ids_NK[row, scores_NK[row] >= 0.5]] = True
    assert (read.outcome(read_gold).predicted.toarray() > 0).tolist() == made.tolist()
    assert (read.outcome(read_gold).right.toarray() > 0).tolist() == (
        made & labels_NL.toarray()
    ).tolist()
    first_right = [bool(labels_NL[row, ids_NK[row, 0]]) for row in range(7)]
    assert read.ratios(read_gold)["p@1"].numerator_N.tolist() == first_right
