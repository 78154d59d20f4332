"""Evaluating a run again and reporting on runs, from their files."""

import json
import shutil

import pytest
import torch

import tiny_runs
from xmtc.errors import DataError
from xmtc.pipeline import prepare_stage, train_run
from xmtc.report.runs import evaluate_run, report_runs

SENTENCE = tiny_runs.documents(1, first=76)[0]["text"]
"""The first test document."""


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole.run, tmp_path / "runs" / "tiny")


def metrics(run):
    return json.loads((run / "eval" / "test" / "metrics.json").read_text())


def test_what_only_training_can_measure_is_kept(run):
    before = metrics(run)
    assert all(before[key] is not None for key in ("micro_auc", "macro_auc", "micro_auc_error"))
    evaluate_run(run)
    after = metrics(run)
    assert after.pop("threshold_tuned_here") is False
    assert after | {"seconds": 0} == before | {"seconds": 0}


@pytest.mark.parametrize("missing", ["predictions.parquet", "metrics.json"])
def test_a_split_that_cannot_be_evaluated_again_is_named(run, capsys, missing):
    (run / "eval" / "test" / missing).unlink()
    evaluate_run(run)
    assert f"warning: test: not evaluated again: {run / 'eval' / 'test'} has no {missing}" in capsys.readouterr().err


def test_a_corpus_rebuilt_with_other_counts_is_refused(run, tmp_path):
    config = tiny_runs.load(run / "config.yaml", "data.limit.train=20", f"data.corpus={tmp_path / 'corpus'}")
    prepare_stage(config)
    text = (run / "config.yaml").read_text()
    corpus = next(line for line in text.splitlines() if line.startswith("  corpus: "))
    (run / "config.yaml").write_text(text.replace(corpus, f"  corpus: {tmp_path / 'corpus'}"))
    before = (run / "eval" / "test" / "metrics.json").read_bytes()
    with pytest.raises(DataError, match=r"corpus: .*tiny"):
        evaluate_run(run)
    assert (run / "eval" / "test" / "metrics.json").read_bytes() == before


def test_one_run_given_twice_is_shown_once(run, tmp_path, capsys):
    report_runs([run, run], tmp_path / "report.html")
    assert "1 of the runs were given before; each is shown once" in capsys.readouterr().err
    assert "<h2>Comparison" not in (tmp_path / "report.html").read_text()


def test_runs_of_one_name_are_told_apart_by_their_folders(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "earlier" / "tiny")
    report_runs([run, other], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "runs/tiny" in page
    assert "earlier/tiny" in page


def test_a_labels_own_thresholds_are_used_again(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.evaluate.thresholds._LEAST_SUPPORT", 2)
    torch.set_num_threads(1)
    settings = {"per_label_thresholds": True, "resamples": 0}
    run = train_run(tiny_runs.load(tiny_runs.write_config(tmp_path, evaluate=settings), *tiny_runs.RANDOM_START))
    before = metrics(run)
    assert before["labels_with_own_threshold"] > 0
    evaluate_run(run)
    after = metrics(run)
    del after["threshold_tuned_here"]
    assert after | {"seconds": 0} == before | {"seconds": 0}
    assert "own thresholds" in (run / "eval" / "test" / "report.html").read_text()
