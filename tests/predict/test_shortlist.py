"""Two-stage scoring: the same scores as exact scoring for the labels that the index finds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import tiny_runs
import xmtc
from trial_model import LABELS, TEXTS, export
from xmtc.data.sampler import MicroBatch
from xmtc.errors import ConfigError
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.models.heads.config import FlatConfig
from xmtc.pipeline import train_run
from xmtc.predict.shortlist_scores import ShortlistScores
from xmtc.report.runs import evaluate_run
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings
from xmtc.score.local import score_local
from xmtc.score.shell import make_job


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return export(tmp_path_factory.mktemp("attention") / "model")


@pytest.fixture(scope="module")
def flat(tmp_path_factory) -> Path:
    return export(tmp_path_factory.mktemp("flat") / "model", head=FlatConfig())


def shortlist_of(model: xmtc.Model, size: int) -> ShortlistScores:
    classifier = model.scorer.classifier
    index = LabelIndex(
        LabelVectors.of(classifier.head, classifier.calibration), IndexConfig()
    )
    return ShortlistScores(classifier, size, index)


def scores(
    model: xmtc.Model, shortlist: int | None, top_k: int
) -> list[dict[str, float]]:
    found = model.predict(TEXTS, top_k, shortlist=shortlist)
    return [{p.label: p.score for p in one} for one in found]


def batch_of(model: xmtc.Model):
    documents = model.scorer.tokenise(TEXTS)
    return model.scorer.collator(documents)(
        MicroBatch(np.arange(len(TEXTS)), np.ones(len(TEXTS), np.float32))
    )


def test_a_flat_head_loses_nothing(flat):
    model = xmtc.Model.from_pretrained(flat, device="cpu")
    for exact, found in zip(scores(model, None, 5), scores(model, 5, 5), strict=True):
        assert list(found) == list(exact)
        assert found == pytest.approx(exact, abs=1e-5)
    assert shortlist_of(model, 5).recall([batch_of(model)], 5) == 1.0


def test_the_models_index_is_opened_and_none_is_built(flat, monkeypatch):
    monkeypatch.setattr("xmtc.mining.index._build", lambda *_: pytest.fail("built"))
    model = xmtc.Model.from_pretrained(flat, device="cpu")
    for size in (5, 5, 7):
        assert len(scores(model, size, 20)[0]) == size


def test_shortlisted_labels_get_their_exact_scores_best_first(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    for exact, found in zip(
        scores(model, None, LABELS), scores(model, 9, 20), strict=True
    ):
        assert len(found) == 9
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert found == pytest.approx(
            {label: exact[label] for label in found}, abs=1e-5
        )


def test_recall_is_the_share_of_the_exact_best_that_was_found(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    exact, found = scores(model, None, 4), scores(model, 9, 9)
    wanted = np.mean(
        [len(set(a) & set(b)) / 4 for a, b in zip(exact, found, strict=True)]
    )
    model.scorer.classifier.eval()
    assert shortlist_of(model, 9).recall([batch_of(model)], 4) == pytest.approx(wanted)
    assert shortlist_of(model, LABELS - 1).recall([batch_of(model)], 4) > 0.7


def test_fillers_do_not_count_for_recall(directory):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    model.scorer.classifier.eval()
    batch = batch_of(model)
    alone = replace(batch, weight_B=torch.tensor([1.0, 0, 0, 0]))
    shortlist = shortlist_of(model, 9)
    assert shortlist.recall([alone], 4) in {0, 0.25, 0.5, 0.75, 1}
    assert shortlist.recall([replace(batch, weight_B=torch.zeros(4))], 4) == 0


@pytest.mark.parametrize("size", [0, LABELS, LABELS + 5])
def test_a_shortlist_of_all_labels_is_refused(directory, size):
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    with pytest.raises(ConfigError, match=f"{size} of 23"):
        shortlist_of(model, size)


def test_labels_that_exclude_each_other_need_all_logits(tmp_path):
    model = xmtc.Model.from_pretrained(
        export(tmp_path / "model", task="single_label"), device="cpu"
    )
    with pytest.raises(ConfigError, match="softmax needs every logit"):
        model.predict(TEXTS, 3, shortlist=5)


def test_a_scoring_job_takes_a_shortlist(directory, tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    settings = Settings(
        top_k=4, shortlist=9, bfloat16=False, columns=text_columns(["text"], None)
    )
    job = make_job(
        directory, [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    score_local(job, device="cpu", workers=1)
    rows = pq.read_table(next((tmp_path / "out").glob("part-*.parquet"))).to_pylist()
    model = xmtc.Model.from_pretrained(directory, device="cpu")
    for row, wanted in zip(rows, scores(model, 9, 4), strict=True):
        assert dict(zip(row["labels"], row["scores"], strict=True)) == pytest.approx(
            wanted, abs=1e-5
        )


def test_a_job_for_some_labels_takes_no_shortlist(directory, tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    settings = Settings(
        top_k=4,
        shortlist=6,
        include=("L00", "L02"),
        columns=text_columns(["text"], None),
    )
    job = make_job(
        directory, [str(tmp_path / "in.parquet")], tmp_path / "out", settings
    )
    with pytest.raises(ConfigError, match="include already limits the labels"):
        score_local(job, device="cpu", workers=1)


def test_evidence_is_not_taken_from_a_shortlist(directory, tmp_path):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "in.parquet")
    job = make_job(
        directory,
        [str(tmp_path / "in.parquet")],
        tmp_path / "out",
        Settings(shortlist=9, evidence=True),
    )
    with pytest.raises(ConfigError, match="--shortlist and --evidence"):
        score_local(job, device="cpu", workers=1)


def test_training_evaluates_through_a_shortlist(tmp_path):
    path = tiny_runs.write_config(tmp_path)
    config = tiny_runs.load(
        path,
        "plant.parts=[]",
        "evaluate.shortlist=5",
        "finetune.phases=[{epochs: 1}]",
        "evaluate.resamples=0",
    )
    run = train_run(config)
    metrics = json.loads((run / "eval" / "test" / "metrics.json").read_text())
    assert 0.5 < metrics["shortlist_recall@5"] <= 1
    assert metrics.get("macro_auc") is None
    recall = json.loads((run / "model" / "index.json").read_text())["recall"]
    on_dev = json.loads((run / "eval" / "dev" / "metrics.json").read_text())[
        "shortlist_recall@5"
    ]
    assert (recall["share"], recall["best"], recall["shortlist"]) == (on_dev, 5, 5)
    evaluate_run(run)
    again = json.loads((run / "eval" / "test" / "metrics.json").read_text())
    assert again["shortlist_recall@5"] == metrics["shortlist_recall@5"]
    assert "the shortlist holds" in (run / "eval" / "test" / "report.html").read_text()
    predicted = pq.read_table(run / "eval" / "test" / "predictions.parquet").column(
        "labels"
    )
    assert all(len(labels) == 5 for labels in predicted.to_pylist())


def test_a_single_label_task_is_not_evaluated_through_a_shortlist(tmp_path):
    path = tiny_runs.write_config(tmp_path)
    with pytest.raises(ConfigError, match=r"evaluate\.shortlist: "):
        tiny_runs.load(path, "evaluate.shortlist=5", "data.task=single_label")
