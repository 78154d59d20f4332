"""The files of an evaluation, and predictions files of other systems."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation_cases import gold_and_scores, label_table, whole
from xmtc.errors import DataError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import EvaluatedDocuments, evaluate
from xmtc.evaluate.store import (
    read_predictions,
    read_replicates,
    write_evaluation,
    write_predictions,
)
from xmtc.evaluate.summary import markdown_summary, summary_table
from xmtc.fusion.decision import Decision

DOC_IDS = [f"d{i}" for i in range(300)]
LABELS = label_table().labels


def test_an_evaluation_is_written_and_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "xmtc.evaluate.store._BLOCK", 16
    )  # tables are written some rows at a time
    gold, scores = gold_and_scores()
    config = EvaluateConfig(resamples=20)
    evaluation = evaluate(
        whole(scores),
        gold,
        label_table(),
        1000,
        config=config,
        decision=Decision(0.4),
        documents=EvaluatedDocuments(DOC_IDS),
    )
    write_evaluation(
        tmp_path, evaluation, predictions=whole(scores), doc_ids=DOC_IDS, labels=LABELS
    )
    assert json.loads((tmp_path / "metrics.json").read_text()) == evaluation.metrics
    assert pq.read_table(tmp_path / "per_label.parquet").equals(evaluation.per_label)
    frame = pd.read_csv(tmp_path / "per_label.csv")
    assert frame["label"].tolist() == LABELS
    np.testing.assert_allclose(frame["f1"], evaluation.per_label["f1"].to_numpy())
    back = read_replicates(tmp_path / "replicates.parquet")
    assert back.identity == evaluation.replicates.identity
    np.testing.assert_array_equal(
        back.values["p@1"], evaluation.replicates.values["p@1"]
    )
    row = pq.read_table(tmp_path / "predictions.parquet").slice(7, 1).to_pylist()[0]
    assert row["doc_id"] == "d7"
    assert row["labels"][0] == LABELS[scores[7].argmax()]
    assert not list(tmp_path.glob("*.tmp"))
    assert "| P@1 |" in markdown_summary(evaluation.metrics, "x")
    assert summary_table(evaluation.metrics).row_count == 13


def test_predictions_come_back_in_the_order_asked_for(tmp_path):
    _, scores = gold_and_scores()
    write_predictions(tmp_path / "p.parquet", whole(scores), DOC_IDS, LABELS)
    found = read_predictions(tmp_path / "p.parquet", LABELS, DOC_IDS[::-1], top_k=7)
    np.testing.assert_array_equal(
        found.label_ids_NK[::-1], whole(scores).label_ids_NK[:, :7]
    )
    np.testing.assert_array_equal(found.scores_NK[::-1], whole(scores).scores_NK[:, :7])


def test_unordered_plain_lists_are_ranked(tmp_path):
    table = pa.table(
        {
            "doc_id": ["a", "b"],
            "labels": [["L001", "L000"], []],
            "scores": [[0.2, 0.8], []],
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    found = read_predictions(tmp_path / "p.parquet", LABELS, ["a", "b"], top_k=5)
    assert found.label_ids_NK.tolist() == [[0, 1], [-1, -1]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"doc_id": ["a"], "labels": [["L001"]], "scores": [[0.5]]},
            "1 of 2 gold documents .* 'b'",
        ),
        (
            {"doc_id": ["a", "a"], "labels": [[], []], "scores": [[], []]},
            "document 'a' has more than one row",
        ),
        (
            {"doc_id": ["a", "b", "c"], "labels": [[]] * 3, "scores": [[]] * 3},
            "not in the gold split, such as 'c'",
        ),
        (
            {"doc_id": ["a", "b"], "labels": [["Q"], []], "scores": [[0.5], []]},
            "label 'Q' is not in the gold corpus",
        ),
        (
            {"doc_id": ["a", "b"], "labels": [[], ["L001"]], "scores": [[], []]},
            "document 'b' differ in length",
        ),
        ({"doc_id": ["a", "b"], "labels": [[], []]}, "no column 'scores'"),
        (
            {"doc_id": ["a", "b"], "labels": [["L001"], []], "scores": [[7.0], []]},
            r"p\.parquet: document 'a' has a score",
        ),
        (
            {
                "doc_id": ["b", "a"],
                "labels": [["L001"] * 2, []],
                "scores": [[0.5] * 2, []],
            },
            r"p\.parquet: document 'b' has the same label twice",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(tmp_path, columns, message):
    types = {
        "doc_id": pa.string(),
        "labels": pa.list_(pa.string()),
        "scores": pa.list_(pa.float32()),
    }
    pq.write_table(
        pa.table({k: pa.array(v, types[k]) for k, v in columns.items()}),
        tmp_path / "p.parquet",
    )
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "p.parquet", LABELS, ["a", "b"], top_k=5)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"labels": ["L001", "L002"]}, "column 'labels' is string"),
        ({"labels": pa.nulls(2)}, "column 'labels' is null"),
        ({"labels": [[1], [2]]}, "column 'labels' is list<.*int64>"),
        ({"scores": [["0.5"], ["0.5"]]}, "column 'scores' is list<.*string>"),
        ({"doc_id": [1, 2]}, "column 'doc_id' is int64"),
    ],
)
def test_columns_of_another_type_are_refused_by_name(tmp_path, columns, message):
    fitting = {
        "doc_id": ["a", "b"],
        "labels": [["L001"], ["L002"]],
        "scores": [[0.5], [0.5]],
    }
    pq.write_table(pa.table(fitting | columns), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=rf"p\.parquet: {message}"):
        read_predictions(tmp_path / "p.parquet", LABELS, ["a", "b"], top_k=5)


def test_labels_are_those_of_the_corpus_however_they_are_written(tmp_path):
    table = pa.table(
        {"doc_id": ["a"], "labels": [["cafe\u0301", " law"]], "scores": [[0.9, 0.1]]}
    )
    pq.write_table(table, tmp_path / "p.parquet")
    assert read_predictions(
        tmp_path / "p.parquet", ["caf\u00e9", "law"], ["a"], top_k=2
    ).label_ids_NK.tolist() == [[0, 1]]


def test_empty_lists_predict_nothing_whatever_their_type(tmp_path):
    pq.write_table(
        pa.table({"doc_id": ["a"], "labels": [[]], "scores": [[]]}),
        tmp_path / "p.parquet",
    )
    assert read_predictions(
        tmp_path / "p.parquet", LABELS, ["a"], top_k=5
    ).label_ids_NK.tolist() == [[-1]]


def test_a_missing_or_foreign_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.parquet"):
        read_predictions(tmp_path / "absent.parquet", LABELS, DOC_IDS, 5)
    (tmp_path / "text.parquet").write_text("no parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        read_predictions(tmp_path / "text.parquet", LABELS, DOC_IDS, 5)
