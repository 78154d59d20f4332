"""Batch scoring: what is written, exactly once whatever happens, and what is refused."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import xmtc
from score_jobs import COLUMNS, FP32, contents, read_output, score, write_rows
from trial_model import LABELS, TEXTS, export
from xmtc.artefact.export import write_decision
from xmtc.desk.config import read_tuning
from xmtc.errors import CheckpointError, ConfigError, DataError, StorageError
from xmtc.fusion.decision import Decision
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig
from xmtc.predict.arguments import as_bar
from xmtc.predict.predictor import Model
from xmtc.predict.text_scorer import TextScorer
from xmtc.score.batch import BlockScorer
from xmtc.score.inputs import block_name, input_files, read_blocks, text_columns
from xmtc.score.job import Settings, publish
from xmtc.score.local import pending_files, score_local
from xmtc.score.shell import make_job, parse_threshold, read_labels, use_bfloat16


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture
def source(tmp_path):
    write_rows(tmp_path / "in" / "a.jsonl", 10)
    table = pa.table(
        {"id": [f"p{i}" for i in range(7)], "text": [TEXTS[i % 4] for i in range(7)]}
    )
    pq.write_table(table, tmp_path / "in" / "b.parquet")
    return tmp_path / "in"


def test_scores_are_the_models_own(model, source, tmp_path):
    manifest = score(model, source, tmp_path / "out")
    rows = read_output(tmp_path / "out").to_pylist()
    assert [row["doc_id"] for row in rows] == [f"d{i}" for i in range(10)] + [
        f"p{i}" for i in range(7)
    ]
    assert (manifest["documents"], manifest["rejected"], len(manifest["parts"])) == (
        17,
        0,
        4 + 3,
    )
    expected = xmtc.Model.from_pretrained(model, device="cpu").predict(TEXTS, top_k=5)
    for row in rows:
        predictions = expected[int(row["doc_id"][1:]) % 4]
        assert row["labels"] == [p.label for p in predictions]
        np.testing.assert_allclose(
            row["scores"], [p.score for p in predictions], atol=1e-5
        )


def test_workers_change_no_byte(model, source, tmp_path):
    settings = Settings(top_k=5, block_rows=6, tokens_per_batch=60, columns=COLUMNS)
    for workers in (1, 3):
        score(model, source, tmp_path / str(workers), settings, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


def test_filters(model, source, tmp_path):
    score(
        model,
        source,
        tmp_path / "all",
        Settings(top_k=LABELS, bfloat16=False, columns=COLUMNS),
    )
    everything = read_output(tmp_path / "all").to_pylist()
    for name, settings, least in (
        ("tuned", {"threshold": "tuned"}, 0.4),
        ("x", {"threshold": 0.7}, 0.7),
    ):
        score(
            model,
            source,
            tmp_path / name,
            Settings(top_k=LABELS, bfloat16=False, columns=COLUMNS, **settings),
        )
        for row, whole in zip(
            read_output(tmp_path / name).to_pylist(), everything, strict=True
        ):
            assert row["scores"] == [
                s for s in whole["scores"] if s >= np.float32(least)
            ]
            made, total = (
                [s for s in whole["scores"] if s >= np.float32(0.4)],
                sum(whole["scores"]),
            )
            assert row["expected_recall"] == pytest.approx(sum(made) / total, abs=1e-5)
            assert row["expected_precision"] == pytest.approx(
                sum(made) / max(len(made), 1), abs=1e-5
            )
            assert row["expected_f1"] == pytest.approx(
                2 * sum(made) / (len(made) + total), abs=1e-5
            )
    some = Settings(
        top_k=LABELS, bfloat16=False, include=("L03", "L17"), columns=COLUMNS
    )
    score(model, source, tmp_path / "some", some)
    for row, whole in zip(
        read_output(tmp_path / "some").to_pylist(), everything, strict=True
    ):
        assert row["labels"] == [
            label for label in whole["labels"] if label in ("L03", "L17")
        ]


def test_predicted_labels_beyond_the_limit_are_named(model, source, tmp_path, caplog):
    for top_k, said in (
        (LABELS, ""),
        (1, "--top-k 1: some documents have more predicted labels"),
    ):
        score(
            model,
            source,
            tmp_path / str(top_k),
            Settings(top_k=top_k, columns=COLUMNS, threshold="tuned"),
        )
        assert caplog.text.count("predicted labels") == bool(said)
        assert said in caplog.text


@pytest.mark.parametrize("rule", ["micro", "samples", "top_k=1"])
def test_a_block_of_bad_rows_alone_is_empty_whatever_the_rule(tmp_path, rule):
    model = export(tmp_path / "model")
    write_decision(model / "thresholds.json", Decision(0.0, None, rule))
    (tmp_path / "in.jsonl").write_text(
        '{"id": "a"}\n' * 3 + '{"id": "b", "text": "kidney"}\n'
    )
    manifest = score(
        model, tmp_path / "in.jsonl", tmp_path / "out", replace(FP32, threshold="tuned")
    )
    assert (manifest["documents"], manifest["rejected"]) == (1, 3)
    assert read_output(tmp_path / "out")["doc_id"].to_pylist() == ["b"]


def test_a_single_label_model_gives_its_best_label_where_thresholds_are_tuned(
    source, tmp_path
):
    model = export(tmp_path / "model", FlatConfig(), "single_label")
    for name, threshold in (("all", None), ("tuned", "tuned")):
        settings = Settings(
            top_k=5, bfloat16=False, evidence=True, columns=COLUMNS, threshold=threshold
        )
        score(model, source, tmp_path / name, settings)
    everything, tuned = (
        read_output(tmp_path / name).to_pylist() for name in ("all", "tuned")
    )
    assert (
        max(row["scores"][0] for row in everything) < 0.4
    )  # which stands in thresholds.json
    for row, whole in zip(tuned, everything, strict=True):
        assert (row["labels"], row["scores"]) == (
            whole["labels"][:1],
            whole["scores"][:1],
        )
        assert [[word["text"] for word in words] for words in row["evidence"]] == [
            [word["text"] for word in whole["evidence"][0]]
        ]


def test_a_rule_that_the_model_cannot_have_is_refused_before_anything_is_scored(
    model, source, tmp_path, monkeypatch
):
    monkeypatch.setattr(TextScorer, "score", None)
    for answer in (
        lambda: score(
            model, source, tmp_path / "out", replace(FP32, threshold="macro")
        ),
        lambda: Model.from_pretrained(model, device="cpu").predict(
            TEXTS, threshold="macro"
        ),
    ):
        with pytest.raises(ConfigError, match="trial: has no rules"):
            answer()


@pytest.mark.parametrize(
    "head",
    [LabelAttentionConfig(width=16, heads=2), FlatConfig()],
    ids=lambda head: head.kind,
)
def test_evidence_is_the_predictors(source, tmp_path, head):
    model = export(tmp_path / "model", head)
    score(
        model,
        source,
        tmp_path / "out",
        Settings(top_k=3, bfloat16=False, evidence=True, columns=COLUMNS),
    )
    expected = xmtc.Model.from_pretrained(model, device="cpu").predict(
        TEXTS, top_k=3, evidence=True
    )
    for row in read_output(tmp_path / "out").to_pylist():
        for words, prediction in zip(
            row["evidence"], expected[int(row["doc_id"][1:]) % 4], strict=True
        ):
            assert [word["text"] for word in words] == [
                word.text for word in prediction.evidence
            ]
            contributions = [word.contribution for word in prediction.evidence]
            np.testing.assert_allclose(
                [word["contribution"] for word in words], contributions, atol=1e-4
            )


def test_an_interrupted_job_resumes_and_damaged_parts_are_scored_again(
    model, source, tmp_path
):
    output = tmp_path / "out"
    score(model, source, output)
    whole = contents(output)
    manifest = (output / "_manifest.json").read_text()
    (output / "part-00000-00001.parquet").write_bytes(b"cut short")
    (output / "part-00001-00002.parquet").unlink()
    score(model, source, output)
    assert contents(output) == whole
    assert (output / "_manifest.json").read_text() == manifest


def test_a_bar_splits_documents_and_is_counted_after_a_damage_too(
    model, source, tmp_path
):
    score(model, source, tmp_path / "all")
    before = read_output(tmp_path / "all")
    bar = (
        f"expected_recall>={float(np.median(before['expected_recall'].to_numpy())):.4f}"
    )
    settings = replace(FP32, release=as_bar(bar))
    manifest = score(model, source, tmp_path / "out", settings)
    found = read_output(tmp_path / "out")
    assert found.drop_columns("release") == before
    assert found["release"].to_pylist() == [
        x >= float(bar[17:]) for x in before["expected_recall"].to_pylist()
    ]
    assert 0 < manifest["released"] == sum(found["release"].to_pylist()) < 17
    (tmp_path / "out" / manifest["parts"][0]["path"]).write_bytes(b"")
    assert score(model, source, tmp_path / "out", settings) == manifest


@pytest.mark.parametrize(
    "bar",
    [
        "",
        "0.8",
        "expected_recall>0.8",
        "recall>=0.8",
        "expected_f1>=1.2",
        "expected_f1>=-1",
    ],
)
def test_what_is_no_bar_is_refused(bar):
    with pytest.raises(ConfigError, match="not a bar: give expected_precision"):
        as_bar(bar)
    with pytest.raises(ConfigError, match="release"):
        read_tuning([f"release={bar!r}"])


def test_a_finished_job_is_left_alone(model, source, tmp_path):
    score(model, source, tmp_path / "out")
    before = (tmp_path / "out" / "part-00000-00000.parquet").stat().st_mtime_ns
    score(model, source, tmp_path / "out")
    assert (tmp_path / "out" / "part-00000-00000.parquet").stat().st_mtime_ns == before


def scored_blocks(monkeypatch, most=None):
    """Names of the blocks that are scored from now on; from the block after the first `most` on it is interrupted."""
    blocks = []
    score_block = BlockScorer.score

    def spy(self, block):
        if len(blocks) == most:
            raise KeyboardInterrupt
        blocks.append(block.name)
        return score_block(self, block)

    monkeypatch.setattr(BlockScorer, "score", spy)
    return blocks


def test_a_finished_job_is_scored_again_where_it_may_overwrite(
    model, source, tmp_path, monkeypatch, caplog
):
    output = tmp_path / "out"
    manifest = score(model, source, output)
    whole = contents(output)
    with caplog.at_level("INFO", "xmtc"):
        assert score(model, source, output) == manifest
    assert (
        "this job is complete; only damaged parts are scored again (use --overwrite"
        in caplog.text
    )
    with monkeypatch.context() as patch:
        blocks = scored_blocks(patch)
        assert score(model, source, output, overwrite=True) == manifest
    assert len(blocks) == 4 + 3
    assert contents(output) == whole


@pytest.mark.parametrize("top_k", [5, 4], ids=["the same job's", "another job's"])
def test_a_killed_overwrite_resumes(model, source, tmp_path, monkeypatch, top_k):
    before = Settings(top_k=top_k, bfloat16=False, block_rows=3, columns=COLUMNS)
    score(model, source, tmp_path / "before", before)
    score(model, source, tmp_path / "expected")
    output = tmp_path / "out"
    shutil.copytree(tmp_path / "before", output)
    with monkeypatch.context() as patch:
        scored_blocks(patch, most=3)
        with pytest.raises(KeyboardInterrupt):
            score(model, source, output, overwrite=True)
    with monkeypatch.context() as patch:
        blocks = scored_blocks(patch)
        score(model, source, output, overwrite=True)
    assert len(blocks) == 4 + 3 - 3
    assert contents(output) == contents(tmp_path / "expected")
    assert (output / "_manifest.json").read_bytes() == (
        tmp_path / "expected" / "_manifest.json"
    ).read_bytes()


def test_another_job_is_refused_unless_it_may_overwrite(model, source, tmp_path):
    output = tmp_path / "out"
    score(model, source, output)
    with pytest.raises(DataError, match="top_k"):
        score(
            model,
            source,
            output,
            Settings(top_k=4, bfloat16=False, block_rows=3, columns=COLUMNS),
        )
    write_rows(source / "a.jsonl", 4)
    with pytest.raises(DataError, match="input changed"):
        score(model, source, output)
    assert score(model, source, output, overwrite=True)["documents"] == 11
    assert len(list(output.glob("part-*"))) == 2 + 3
    torch.manual_seed(1)
    other = export(tmp_path / "other", FlatConfig())
    with pytest.raises(DataError, match="model changed"):
        score(other, source, output)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="no scoring job"):
        score(model, source, tmp_path / "full", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_stops_where_another_one_has_taken_its_output(
    model, source, tmp_path, monkeypatch, overwrite
):
    """Before the first has a part, or with --overwrite: its parts would lie among those of the second."""
    output, ended = tmp_path / "out", []

    def taken(*arguments):
        record = publish(*arguments) if overwrite else None
        monkeypatch.undo()
        ended.append(
            score(model, source, output, replace(FP32, top_k=2), overwrite=overwrite)
        )
        return record or publish(*arguments)

    monkeypatch.setattr("xmtc.score.local.publish", taken)
    with pytest.raises(DataError, match="taken by another job"):
        score(model, source, output)
    assert json.loads((output / "_manifest.json").read_text()) == ended[0]
    assert {len(labels) for labels in read_output(output)["labels"].to_pylist()} == {2}
    assert score(model, source, output, replace(FP32, top_k=2)) == ended[0]


def test_a_last_file_without_the_columns_is_refused_before_the_first_is_scored(
    model, source, tmp_path
):
    pq.write_table(pa.table({"id": ["p"], "body": ["x"]}), source / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet: no column 'text'"):
        score(model, source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_a_file_that_was_corrected_is_scored_again(
    model, source, tmp_path, monkeypatch
):
    path, output, scored = source / "c.jsonl", tmp_path / "out", []
    lines = [
        json.dumps({"id": f"c{i}", "text": TEXTS[i % 4], "note": "x" * 9_000}).encode()
        + b"\n"
        for i in range(9)
    ]
    path.write_bytes(b"".join(lines))
    expected = score(model, source, tmp_path / "expected")
    path.write_bytes(b"".join(lines).replace(b"c8", b"\xff"))
    with pytest.raises(DataError, match=r"c\.jsonl:9: not UTF-8"):
        score(model, source, output)
    path.write_bytes(b"".join(lines))

    def noted(job, block, *rest):
        scored.append(block)
        return publish(job, block, *rest)

    monkeypatch.setattr("xmtc.score.local.publish", noted)
    assert score(model, source, output) == expected
    assert {block[:5] for block in scored} == {"00002"}
    assert contents(output) == contents(tmp_path / "expected")


def test_the_output_in_a_folder_of_inputs_is_no_input(model, tmp_path):
    write_rows(tmp_path / "in" / "a.jsonl", 6)
    first = score(model, tmp_path / "in", tmp_path / "in" / "scored")
    assert score(model, tmp_path / "in", tmp_path / "in" / "scored") == first
    assert score(model, tmp_path / "in", tmp_path / "out")["documents"] == 6


def test_bad_rows_are_listed_counted_and_limited(model, tmp_path):
    lines = [
        '{"id": "a", "text": "kidney"}',
        "nonsense",
        '{"id": "b", "text": ""}',
        '{"id": "c", "text": "\\u200b"}',
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"--max-rejected 1; .*in\.jsonl:2: "):
        score(model, tmp_path / "in.jsonl", tmp_path / "out", max_rejected=1)
    manifest = score(model, tmp_path / "in.jsonl", tmp_path / "out", max_rejected=3)
    rejected = pq.read_table(tmp_path / "out" / "_rejected.parquet").to_pylist()
    assert (manifest["documents"], manifest["rejected"], len(rejected)) == (1, 3, 3)
    assert {"no text in 'text'", "the text has no tokens: leave it out"} <= {
        row["reason"] for row in rejected
    }
    (tmp_path / "bad.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(DataError, match="'id'"):
        score(model, tmp_path / "bad.jsonl", tmp_path / "bad")


def test_inputs_by_glob_folder_address_and_kind(tmp_path):
    write_rows(tmp_path / "x" / "a.jsonl", 2)
    write_rows(tmp_path / "y" / "a.jsonl", 3)
    (tmp_path / "x" / "b.tsv").write_text("text\tn\nfish\t1\nlaw\t2\n")
    (tmp_path / "x" / "notes.txt").write_text("not scored")
    again = str(tmp_path / "y" / ".." / "x")
    files = input_files(
        [
            str(tmp_path / "*" / "*.jsonl"),
            str(tmp_path / "x"),
            again,
            (tmp_path / "x" / "b.tsv").as_uri(),
        ]
    )
    assert [file.path.rpartition("/")[2] for file in files] == [
        "a.jsonl",
        "b.tsv",
        "a.jsonl",
    ]
    assert len({file.name for file in files}) == 3
    rows = [
        read_blocks(i, file, text_columns(["text"], None), 2)
        for i, file in enumerate(files)
    ]
    ids = [doc_id for blocks in rows for block in blocks for doc_id in block.doc_ids]
    assert len(ids) == len(set(ids)) == 7
    for given, message in (
        (str(tmp_path / "nothing*"), "nothing matches"),
        (str(tmp_path / "x" / "notes.txt"), "unknown file type"),
    ):
        with pytest.raises(DataError, match=message):
            input_files([given])


def test_bad_options_are_named(model, source, tmp_path):
    for value in ("high", "1.5"):
        with pytest.raises(ConfigError, match="threshold="):
            parse_threshold(value)
    (tmp_path / "labels.txt").write_text("L01\n\nL99\n")
    labels = read_labels([f"@{tmp_path / 'labels.txt'}", "L02", "L01"])
    assert labels == ("L01", "L99", "L02")
    with pytest.raises(DataError, match="'L99'"):
        score(
            model, source, tmp_path / "out", Settings(include=labels, columns=COLUMNS)
        )
    assert (
        score(model, source, tmp_path / "out")["documents"] == 17
    )  # what came to nothing is in nobody's way
    with pytest.raises(DataError, match=r"'note'.*id, text.*--text-column"):
        score(
            model,
            source / "b.parquet",
            tmp_path / "wrong",
            Settings(columns=text_columns(["note"], "id")),
        )
    with pytest.raises(DataError, match="is a file, not a directory"):
        score(model, source, source / "a.jsonl")
    with pytest.raises(CheckpointError, match=r"config\.json: missing"):
        make_job(tmp_path, [str(source)], tmp_path / "o", FP32)


def test_an_output_that_cannot_be_written_is_refused_before_the_input_is_read(
    model, source, tmp_path, monkeypatch
):
    monkeypatch.setattr("xmtc.score.inputs.content_hash", pytest.fail)
    (tmp_path / "notes.txt").touch()
    for place, words in (
        (tmp_path, "has files in it"),
        (tmp_path / "notes.txt/out", "cannot be written"),
    ):
        with pytest.raises((DataError, StorageError), match=words):
            make_job(model, [str(source)], place, FP32)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "in"}


KILLED = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import xmtc.score.local
from xmtc.score.shell import make_job
from xmtc.score.inputs import text_columns
from xmtc.score.job import Settings, open_job, publish
from xmtc.desk.config import read_tuning
settings = Settings(top_k=5, bfloat16=False, block_rows=3, columns=text_columns(["text"], "id"))
job = make_job(Path(sys.argv[1]), [sys.argv[2]], Path(sys.argv[3]), settings)
print("ready", flush=True)
xmtc.score.local.score_local(job, device="cpu", workers=1)
"""


def test_killed_at_random_moments_every_document_is_there_once(model, tmp_path):
    kills, rows = 1, 150  # tests/cluster/test_score_ray.py kills more often
    source, output = write_rows(tmp_path / "in.jsonl", rows), tmp_path / "out"
    score(model, source, tmp_path / "expected")
    random_ = random.Random(kills)
    command = [sys.executable, "-c", KILLED, str(model), str(source), str(output)]
    killed = 0
    while killed < kills:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        began = len(list(output.glob("part-*")))
        while process.poll() is None and len(list(output.glob("part-*"))) < began + 2:
            time.sleep(0.002)
        time.sleep(random_.random() * 0.02)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        killed += 1
        assert not (output / "_manifest.json").exists()
    score(model, source, output)
    assert killed == kills
    ids = Counter(read_output(output)["doc_id"].to_pylist())
    assert ids == Counter(f"d{i}" for i in range(rows))
    assert contents(output) == contents(tmp_path / "expected")
    assert not list(output.glob(".*tmp"))


def test_many_files_of_which_some_are_done_are_told_apart_at_once(model, tmp_path):
    job = make_job(
        model, [str(write_rows(tmp_path / "a.jsonl", 3))], tmp_path / "out", FP32
    )
    file = replace(job.files[0], rows=2 * FP32.block_rows, counted=True)
    job = replace(job, files=(file,) * 5_000)
    done = frozenset(
        block_name(i, block) for i in range(4_990) for block in range(2)
    ) | {block_name(4_990, 0)}
    started = time.process_time()
    assert list(pending_files(job, done)) == list(range(4_990, 5_000))
    assert (
        time.process_time() - started < 2
    )  # every name looked at for every file would take a minute


def test_a_last_line_without_an_end_is_a_row(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "law"}\n{"text": "fish"}')
    (tmp_path / "b.csv").write_text("text\nlaw")
    write_rows(tmp_path / "c.jsonl", 3)
    assert [file.rows for file in input_files([str(tmp_path)])] == [2, 1, 3]


def test_a_gpu_of_another_machine_is_not_looked_for_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert use_bfloat16("auto", "cuda")
    assert not use_bfloat16("fp32", "cuda")


@pytest.mark.parametrize(
    "how", ["overwritten", "replaced", "longer", "shorter", "same size"]
)
def test_a_file_that_changes_in_mid_job_stops_it(model, tmp_path, monkeypatch, how):
    source, other = (
        write_rows(tmp_path / "in.jsonl", 90_000),
        write_rows(tmp_path / "other.jsonl", 30),
    )
    before, published = source.read_bytes(), []

    def change(*arguments):
        if not published:
            if how == "replaced":
                other.replace(source)
            else:
                content = {
                    "overwritten": other.read_bytes(),
                    "longer": before + b"{}",
                    "shorter": before[:999],
                }
                source.write_bytes(content.get(how, before[:-9] + before[-9:].upper()))
        published.append(publish(*arguments))
        return published[-1]

    monkeypatch.setattr("xmtc.score.local.publish", change)
    monkeypatch.setattr("xmtc.score.local.BLOCKS_AHEAD", 1)
    with pytest.raises(DataError, match=r"in\.jsonl: changed while it was scored"):
        score(model, source, tmp_path / "out")
    assert 1 <= len(published) < 9
    assert not (tmp_path / "out" / "_manifest.json").exists()
    expected = [f"d{row}" for row in range(3 * len(published))]
    parts = sorted((tmp_path / "out").glob("part-*.parquet"))
    assert [
        one
        for part in parts
        for one in pq.read_table(part).column("doc_id").to_pylist()
    ] == expected


def test_a_file_that_is_only_touched_is_scored(model, source, tmp_path, monkeypatch):
    def touch(*arguments):
        source.touch()
        return publish(*arguments)

    monkeypatch.setattr("xmtc.score.local.publish", touch)
    assert score(model, source, tmp_path / "out")["documents"] > 0


def test_a_model_that_is_replaced_after_the_check_is_not_used(model, source, tmp_path):
    ours = shutil.copytree(model, tmp_path / "model")
    job = make_job(ours, [str(source)], tmp_path / "out", FP32)
    thresholds = ours / "thresholds.json"
    thresholds.write_text(thresholds.read_text() + "\n")
    with pytest.raises(CheckpointError, match="replaced by another model meanwhile"):
        score_local(job, device="cpu")


def test_a_flat_table_has_a_row_for_each_label_of_each_document(
    model, source, tmp_path, xmtc
):
    done = xmtc(
        "score",
        model,
        source,
        "-o",
        tmp_path / "out",
        "--top-k",
        20,
        "--csv",
        tmp_path / "flat.csv",
    )
    assert done.code == 0
    read = pd.read_csv(tmp_path / "flat.csv", dtype={"label": str})
    assert list(read.columns) == ["doc_id", "label", "name", "score", "predicted"]
    decision = Model.from_pretrained(model).decision
    assert read["predicted"].tolist() == (read["score"] >= decision.threshold).tolist()
    assert read["predicted"].nunique() == 2
    parts = read_output(tmp_path / "out").to_pylist()
    assert read["doc_id"].tolist() == [
        part["doc_id"] for part in parts for _ in part["labels"]
    ]
    assert read["label"].tolist() == [
        label for part in parts for label in part["labels"]
    ]
    assert read["score"].tolist() == pytest.approx(
        [score for part in parts for score in part["scores"]]
    )
