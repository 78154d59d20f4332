"""Any system's predictions against a prepared corpus."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from xmtc.data.config import DataConfig
from xmtc.data.corpus import Corpus
from xmtc.data.prepare import prepare
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.fusion.decision import Decision
from xmtc.report.run_results import RunResults
from xmtc.report.runs import evaluate_files
from xmtc.report.write import write_report

WORDS = ("law", "note", "heart", "trade", "fish")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("gold")
    for split, count in (("train", 60), ("test", 20)):
        rows = [
            {
                "id": f"{split}{i}",
                "text": f"{split} {i} " + WORDS[i % 5] * 2,
                "labels": [WORDS[i % 5], WORDS[i % 3]],
            }
            for i in range(count)
        ]
        (folder / f"{split}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    files = {split: str(folder / f"{split}.jsonl") for split in ("train", "test")}
    settings = {
        "source": {"kind": "jsonl", "files": files, "columns": {"id": "id"}},
        "corpus": str(folder / "corpus"),
        "tokenizer": {"kind": "trained", "model": "wordpiece", "vocab_size": 300},
    }
    config = TypeAdapter(DataConfig).validate_json(json.dumps(settings))
    return prepare(
        config, None, map_unordered=lambda function, items: map(function, list(items))
    )


def write(path, doc_ids, labels, scores):
    pq.write_table(
        pa.table({"doc_id": doc_ids, "labels": labels, "scores": scores}), path
    )


def test_a_perfect_file_is_perfect_and_can_be_reported(corpus, tmp_path):
    split = corpus.split("test")
    labels = [
        [corpus.labels.labels[x] for x in split.label_ids(i)] for i in range(len(split))
    ]
    write(
        tmp_path / "p.parquet",
        split.doc_ids()[::-1],
        labels[::-1],
        [[0.9] * len(row) for row in labels[::-1]],
    )
    evaluation = evaluate_files(
        tmp_path / "p.parquet",
        corpus.path,
        "test",
        tmp_path / "other",
        EvaluateConfig(resamples=20),
    )
    assert evaluation.metrics["macro_f1"] == evaluation.metrics["p@1"] == 1
    assert evaluation.metrics["threshold_tuned_here"] is True
    write_report([RunResults.load(tmp_path / "other")], tmp_path / "report.html")
    assert "tuned on these very documents" in (tmp_path / "report.html").read_text()


def test_a_given_threshold_is_used(corpus, tmp_path):
    split = corpus.split("test")
    count = len(split)
    write(
        tmp_path / "p.parquet",
        split.doc_ids(),
        [["law", "fish"]] * count,
        [[0.9, 0.2]] * count,
    )
    config = EvaluateConfig(resamples=0)
    given = Decision(0.5)
    metrics = evaluate_files(
        tmp_path / "p.parquet", corpus.path, "test", tmp_path / "o", config, given
    ).metrics
    assert metrics["predicted_per_doc"] == 1
    assert metrics["threshold_tuned_here"] is False


def test_a_threshold_for_labels_that_exclude_each_other_is_refused(corpus, tmp_path):
    gold = shutil.copytree(corpus.path, tmp_path / "gold")
    manifest = (gold / "manifest.json").read_text()
    (gold / "manifest.json").write_text(manifest.replace("multi_label", "single_label"))
    with pytest.raises(ConfigError, match="--threshold"):
        evaluate_files(
            tmp_path / "p.parquet",
            gold,
            "test",
            tmp_path / "o",
            EvaluateConfig(),
            Decision(0.5),
        )


def test_the_wrong_split_is_named(corpus, tmp_path):
    split = corpus.split("train")
    write(
        tmp_path / "p.parquet",
        split.doc_ids(),
        [["law"]] * len(split),
        [[0.9]] * len(split),
    )
    with pytest.raises(DataError, match=r"20 of 20 .*'test0'"):
        evaluate_files(
            tmp_path / "p.parquet",
            corpus.path,
            "test",
            tmp_path / "o",
            EvaluateConfig(),
        )
    assert not (tmp_path / "o").exists()


def test_an_output_that_is_a_file_is_refused(corpus, tmp_path):
    split = corpus.split("test")
    write(
        tmp_path / "p.parquet",
        split.doc_ids(),
        [["law"]] * len(split),
        [[0.9]] * len(split),
    )
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(StorageError, match="taken: "):
        evaluate_files(
            tmp_path / "p.parquet",
            corpus.path,
            "test",
            tmp_path / "taken",
            EvaluateConfig(resamples=0),
        )
    assert (tmp_path / "taken").read_text() == "mine"


def test_the_output_of_a_scoring_job_can_be_evaluated(corpus, tmp_path):
    split, scores = corpus.split("test"), tmp_path / "scores"
    scores.mkdir()
    config = EvaluateConfig(resamples=0)
    with pytest.raises(DataError, match=r"manifest\.json"):
        evaluate_files(scores, corpus.path, "test", tmp_path / "o", config)
    ids = split.doc_ids()
    for number, rows in enumerate((ids[:12], ids[12:])):
        write(
            scores / f"part-00000-0000{number}.parquet",
            rows,
            [["law"]] * len(rows),
            [[0.9]] * len(rows),
        )
    (scores / "_manifest.json").write_text(
        json.dumps({"parts": [{"path": p.name} for p in scores.glob("part-*")]})
    )
    assert evaluate_files(scores, corpus.path, "test", tmp_path / "o", config).metrics[
        "docs"
    ] == len(split)
