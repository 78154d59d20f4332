"""Evaluating a run again and reporting on runs, from their files."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import tiny_runs
import xmtc
from trial_model import export
from xmtc.artefact.decide import decide
from xmtc.errors import ConfigError, DataError
from xmtc.models.heads.config import FlatConfig
from xmtc.pipeline import prepare_stage
from xmtc.predict.arguments import as_rule
from xmtc.report.runs import evaluate_run, report_runs

SENTENCE = tiny_runs.documents(1, first=76)[0]["text"]
"""The first test document."""


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole.run, tmp_path / "runs" / "tiny")


def metrics(run, split="test"):
    return json.loads((run / "eval" / split / "metrics.json").read_text())


def test_what_only_training_can_measure_is_kept(run):
    before = metrics(run)
    assert all(
        before[key] is not None for key in ("micro_auc", "macro_auc", "micro_auc_error")
    )
    evaluate_run(run)
    after = metrics(run)
    assert after.pop("threshold_tuned_here") is False
    assert after | {"seconds": 0} == before | {"seconds": 0}


@pytest.mark.parametrize("missing", ["predictions.parquet", "metrics.json"])
def test_a_split_that_cannot_be_evaluated_again_is_named(run, capsys, missing):
    (run / "eval" / "test" / missing).unlink()
    evaluate_run(run)
    assert (
        f"warning: test: not evaluated again: {run / 'eval' / 'test'} has no {missing}"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("folder", ["model", "eval", "nowhere"])
def test_what_is_not_a_run_has_no_predictions(run, folder):
    with pytest.raises(
        DataError, match=rf"{folder}: no predictions there .*; give a finished run"
    ):
        evaluate_run(run / folder)


def test_a_corpus_rebuilt_with_other_counts_is_refused(run, tmp_path):
    config = tiny_runs.load(
        run / "config.yaml", "data.limit.train=20", f"data.corpus={tmp_path / 'corpus'}"
    )
    prepare_stage(config)
    text = (run / "config.yaml").read_text()
    corpus = next(line for line in text.splitlines() if line.startswith("  corpus: "))
    (run / "config.yaml").write_text(
        text.replace(corpus, f"  corpus: {tmp_path / 'corpus'}")
    )
    before = (run / "eval" / "test" / "metrics.json").read_bytes()
    with pytest.raises(DataError, match=r"corpus: .*tiny"):
        evaluate_run(run)
    assert (run / "eval" / "test" / "metrics.json").read_bytes() == before


def test_one_run_given_twice_is_shown_once(run, tmp_path, capsys):
    report_runs([run, run], tmp_path / "report.html")
    assert "1 run given before; each is shown once" in capsys.readouterr().err
    assert "<h2>Comparison" not in (tmp_path / "report.html").read_text()


def test_runs_of_one_name_are_told_apart_by_their_folders(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "earlier" / "tiny")
    report_runs([run, other], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "runs/tiny" in page
    assert "earlier/tiny" in page


def test_another_decision_needs_no_training(run):
    before, model = metrics(run), run / "model"
    texts = [document["text"] for document in tiny_runs.documents(6, first=76)]
    asked = xmtc.Model.from_pretrained(model).predict(texts, threshold="top_k=2")
    decide(model, "top_k=2")
    evaluate_run(run)
    after = metrics(run)
    assert (before["decision"], after["decision"]) == ("micro", "top_k=2")
    assert after["predicted_per_doc"] == 2
    assert after["ndcg@5"] == before["ndcg@5"]
    loaded = xmtc.Model.from_pretrained(model)
    assert [len(labels) for labels in asked] == [2] * 6
    assert loaded.predict(texts, threshold="tuned") == [
        [one._replace(predicted=True) for one in labels] for labels in asked
    ]
    details = json.loads((run / "eval" / "test" / "details.json").read_text())
    assert [row["rule"] for row in details["rules"]] == [
        "top_k=2",
        "micro",
        "macro",
        "samples",
        "precision=0.9",
    ]
    page = (run / "eval" / "test" / "report.html").read_text()
    assert "What each rule gives" in page
    assert "Released documents: recall" in page
    assert "expected_recall&gt;=" in page
    for rule in ("samples", "budget=1.5", "precision=0.5", "macro"):
        decide(model, rule)
        assert xmtc.Model.from_pretrained(model).decision.rule == rule
    evaluate_run(run)
    found = [
        json.loads((run / "eval" / "dev" / name).read_text())
        for name in ("metrics.json", "details.json")
    ]
    assert found[0]["macro_f1"] == pytest.approx(
        found[1]["rules"][0]["macro_f1"]
    )  # each half by the other
    with pytest.raises(ConfigError, match="not a rule"):
        as_rule("best")


@pytest.mark.parametrize("per_label", [False, True])
def test_a_threshold_that_was_edited_is_the_one_in_use(run, per_label):
    edited = {
        "rule": "macro" if per_label else "micro",
        "global": 0.5,
        "per_label": [0.5] * 6 if per_label else None,
    }
    (run / "model" / "thresholds.json").write_text(json.dumps(edited))
    evaluate_run(run)
    for split in ("dev", "test"):
        folder = run / "eval" / split
        measured, (first, *others) = (
            metrics(run, split),
            json.loads((folder / "details.json").read_text())["rules"],
        )
        scores = pd.read_parquet(folder / "predictions.parquet")["scores"]
        assert first["predicted_per_doc"] == pytest.approx(
            np.mean([(one >= 0.5).sum() for one in scores])
        )
        assert first["micro_f1"] == pytest.approx(measured["micro_f1"])
        assert first["rule"] == edited["rule"] not in {row["rule"] for row in others}


def test_a_single_label_model_has_no_rules(tmp_path):
    folder = export(tmp_path / "m", FlatConfig(), "single_label")
    with pytest.raises(ConfigError, match="has no rules"):
        decide(folder, "macro")
    with pytest.raises(ConfigError, match="has no rules"):
        xmtc.Model.from_pretrained(folder).predict(["a text"], threshold="macro")
