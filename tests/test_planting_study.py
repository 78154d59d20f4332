"""The tools of the planting study on a tiny configuration: resumable, and its tables follow from what it writes."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from tiny_runs import load, write_config
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds

TOOLS = str(Path(__file__).parents[1] / "tools")
SCORERS = [{"kind": "linear", "penalties": [0.1]}, {"kind": "word_neighbours"}]


@pytest.fixture(scope="module")
def tools():
    """The modules of the study."""
    sys.path.insert(0, TOOLS)
    try:
        import planting_outcomes
        import planting_settings
        import planting_study
        import planting_tables

        yield SimpleNamespace(
            outcomes=planting_outcomes, settings=planting_settings, study=planting_study, tables=planting_tables
        )
    finally:
        sys.path.remove(TOOLS)


def test_tables_follow_from_what_runs_write_and_done_runs_are_skipped(tools, tmp_path, monkeypatch, capsys):
    shared = load(write_config(tmp_path), f"model.scorers={json.dumps(SCORERS)}", "finetune.phases=[{epochs: 1}]")
    setting = tools.settings.Setting("", "", None, ("random_long", "planted", "prototypes"))
    monkeypatch.setitem(tools.settings.SETTINGS, "b", setting)
    monkeypatch.setattr(tools.study, "setting_config", lambda *_: shared)
    out = tmp_path / "out"
    out.mkdir()
    arguments = SimpleNamespace(seeds=[1], arms=[], out=out, data=tmp_path, work=tmp_path)
    assert list(tools.study.missing("b", [1, 2], ["planted"], out))[2:] == [("planted", 1), ("planted", 2)]
    tools.study.study("b", arguments)
    written = (out / "b.jsonl").read_text()
    lines = [json.loads(line) for line in written.splitlines()]
    assert [(line["arm"], line["seed"]) for line in lines] == [
        ("scorers", 0), ("parabel", 0), ("random_long", 1), ("planted", 1), ("prototypes", 1),
    ]  # fmt: skip
    assert len(lines[2]["curves"]["finetune"]) == 3, "one epoch of stage 2 and two of stage 1"
    assert "mig_share_planted" in lines[3]
    assert lines[4]["cpu_s"].keys() == {"plant", "finetune"}
    tools.study.study("b", arguments)
    assert (out / "b.jsonl").read_text() == written
    results = tools.tables.Results.read(out, "b", resamples=50)
    for line in lines:
        for system in ("head", "fused") if "fused" in line else ("head",):
            drawn = results.replicates(line["arm"], line["seed"], system)
            for key in ("macro_f1", "ndcg@5", "micro_f1"):
                assert drawn[key].mean() == pytest.approx(line[system][key], abs=0.01)
    mean, low, high = results.contrast(tools.tables.CONTRASTS[5], "ndcg@5")
    by_arm = [results.means(arm, "head")["ndcg@5"] for arm in ("planted", "random_long")]
    assert mean == pytest.approx(by_arm[0] - by_arm[1], abs=0.01)
    assert low <= mean <= high
    monkeypatch.setattr(sys, "argv", ["planting_tables.py", str(out), "--resamples", "20"])
    tools.tables.main()
    assert "1 of 5: not finished" in capsys.readouterr().out
    assert "<svg" in (out / "b-bins-dark.svg").read_text()


def test_outcomes_survive_being_written(tools):
    generator = np.random.default_rng(0)
    labels_NL = sparse.csr_array(generator.random((7, 12)) < 0.2)
    labels_NL.sort_indices()
    gold = tools.outcomes.Gold(labels_NL, generator.integers(0, 9, 12))
    ids_NK = np.array([generator.permutation(12)[:6] for _ in range(7)], np.int32)
    scores_NK = -np.sort(-generator.random((7, 6), np.float32), axis=1)
    predicted = tools.outcomes.Predicted.of(SparsePredictions(ids_NK, scores_NK), gold, Thresholds(0.5))
    read_gold = tools.outcomes.Gold.from_json(json.loads(json.dumps(gold.to_json())))
    read = tools.outcomes.Predicted.from_json(json.loads(json.dumps(predicted.to_json())), read_gold)
    assert (read_gold.labels_NL != labels_NL).nnz == 0
    assert read_gold.counts_L.tolist() == gold.counts_L.tolist()
    made = np.zeros((7, 12), bool)
    for row in range(7):
        made[row, ids_NK[row, scores_NK[row] >= 0.5]] = True
    assert (read.outcome(read_gold).predicted.toarray() > 0).tolist() == made.tolist()
    assert (read.outcome(read_gold).right.toarray() > 0).tolist() == (made & labels_NL.toarray()).tolist()
    first_right = [bool(labels_NL[row, ids_NK[row, 0]]) for row in range(7)]
    assert read.ratios(read_gold)["p@1"].numerator_N.tolist() == first_right
