"""The whole job with source, corpus and run directory on a real S3 server, and that server's failures in mid-run."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tiny_runs
from s3_server import BUCKET, S3Server, names, s3
from tiny_runs import losses
from xmtc.cli import app
from xmtc.errors import DataError, StorageError
from xmtc.pipeline import prepare_stage, train_run
from xmtc.storage.remote import Remote, Stamp
from xmtc.track.tracker import Tracker

RUNS, CORPUS = f"s3://{BUCKET}/runs", f"s3://{BUCKET}/corpora/tiny"


@dataclass(frozen=True)
class Place:
    server: S3Server
    folder: Path
    config: Path

    def load(self, *overrides: str):
        return tiny_runs.load(self.config, *overrides)

    def cache(self, name: str) -> str:
        return f"storage.cache={self.folder / name}"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[Place]:
    """A finished run at a URI, without stage 1; a machine is a cache folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("at_a_uri")
    with s3(folder / "home") as server:
        config = tiny_runs.write_config(
            folder,
            plant={"parts": []},
            storage={"cache": str(folder / "first"), "retry_minutes": 0.01},
            track={
                "directory": RUNS,
                "log_every_steps": 1,
                "checkpoint_every_steps": 3,
            },
        )
        text = config.read_text()
        for split in ("train", "dev", "test"):
            Remote(f"s3://{BUCKET}/source").upload(
                folder / f"{split}.jsonl", f"{split}.jsonl"
            )
            text = text.replace(
                f"{folder / split}.jsonl", f"s3://{BUCKET}/source/{split}.jsonl"
            )
            (folder / f"{split}.jsonl").unlink()
        config.write_text(text.replace(str(folder / "corpus"), CORPUS))
        found = Place(server, folder, config)
        train_run(found.load())
        yield found


def test_everything_is_there(place):
    there = names(f"{RUNS}/tiny")
    for name in (
        "run.json",
        "config.yaml",
        "metrics.jsonl",
        "model/config.json",
        "eval/test/report.html",
    ):
        assert name in there
    steps = {
        name.split("/")[1] for name in there if name.startswith("checkpoints/step_")
    }
    assert steps == {"step_00000018", "step_00000020"}, "keep_last holds there too"
    assert not [name for name in there if name.endswith((".tmp", ".part", ".lock"))]
    words = {"words.json", "words.safetensors"}
    assert {
        "manifest.json",
        "labels.arrow",
        "train/00000.arrow",
        "tokenizer/tokenizer.json",
    } | words <= names(CORPUS)


def test_another_machine_finds_everything_done(place, monkeypatch, capsys):
    monkeypatch.setattr(
        "xmtc.pipeline.run_workers", lambda *_: pytest.fail("trains again")
    )
    monkeypatch.setattr(
        "xmtc.data.prepare._Work.build", lambda *_: pytest.fail("prepares again")
    )
    run = train_run(place.load(place.cache("second")))
    assert "finetune: already done, skipped" in capsys.readouterr().err
    assert run.is_relative_to(place.folder / "second")
    assert (
        json.loads((run / "run.json").read_text())["stages"]["report"]["state"]
        == "done"
    )


def stop_at(step: int, action, monkeypatch) -> None:
    """Does `action` when this step of fine-tuning is logged."""
    log = Tracker.log

    def log_and_act(self, stage, at, *args, **kwargs):
        log(self, stage, at, *args, **kwargs)
        if at == step and action is not None:
            action()

    monkeypatch.setattr(Tracker, "log", log_and_act)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_another_machine_resumes_from_the_newest_checkpoint(place, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop_at(8, interrupt, patch)
        with pytest.raises(KeyboardInterrupt):
            train_run(place.load("name=moved", place.cache("one")))
    shutil.rmtree(place.folder / "one")
    run = train_run(place.load("name=moved", place.cache("another")))
    said = capsys.readouterr().err
    assert "resuming after step 6/20" in said
    assert losses(run, "finetune") == losses(
        place.folder / first_run(place), "finetune"
    )


def test_a_slow_upload_does_not_hold_up_the_next_steps(place, monkeypatch, capsys):
    """The checkpoint of the first epoch, after step 5, is uploaded once step 7 has been trained, and not before."""
    trained = threading.Event()
    held: list[str] = []
    upload = Remote.upload

    def upload_after_step_7(self: Remote, path: Path, name: str) -> Stamp:
        if name.startswith("checkpoints/step_00000005/"):
            held.append(name)
            assert trained.wait(60), "step 7 waits for the upload"
        return upload(self, path, name)

    monkeypatch.setattr(Remote, "upload", upload_after_step_7)
    stop_at(7, trained.set, monkeypatch)
    config = place.load(
        "name=slow", "track.checkpoint_every_steps=null", place.cache("slow")
    )
    run = train_run(config)
    said = capsys.readouterr().err
    assert held
    waited = re.findall(r"checkpoint after step (\d+): steps waited [\d.]+ s", said)
    assert waited == ["5", "10", "15", "20"]
    assert re.search(r"at the run's URI, after [\d.]+ s beside the steps", said)
    assert losses(run, "finetune") == losses(
        place.folder / first_run(place), "finetune"
    )


def first_run(place: Place) -> Path:
    return next((place.folder / "first" / "runs").glob("*/tiny")).relative_to(
        place.folder
    )


def test_a_lost_server_ends_the_run_which_then_resumes(place, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        stop_at(8, place.server.stop, patch)
        try:
            with pytest.raises(StorageError, match=r"runs/cut/.*\d+ s"):
                train_run(place.load("name=cut"))
        finally:
            place.server.start()
    local = place.folder / first_run(place).with_name("cut")
    assert (local / "checkpoints" / "step_00000009" / "manifest.json").exists(), (
        "what is done is kept here"
    )
    assert "checkpoints/step_00000009/manifest.json" not in names(f"{RUNS}/cut")
    run = train_run(place.load("name=cut"))
    assert "resuming after step 9/20" in capsys.readouterr().err
    assert losses(run, "finetune") == losses(
        place.folder / first_run(place), "finetune"
    )
    assert (
        json.loads(Remote(f"{RUNS}/cut").read("run.json") or b"")["stages"]["report"][
            "state"
        ]
        == "done"
    )


def test_a_run_that_another_machine_has_resumed_is_refused(place, monkeypatch):
    here = place.load("name=both", place.cache("here"))

    def run_elsewhere() -> None:
        Remote(f"{RUNS}/both").upload(place.config, "run.json")

    stop_at(4, run_elsewhere, monkeypatch)
    with pytest.raises(StorageError, match="runs/both: "):
        train_run(here)


def test_a_corpus_without_manifest_is_none_and_is_made_again(place):
    corpus = Remote(CORPUS)
    manifest = corpus.read("manifest.json")
    corpus.remove("manifest.json")
    made = prepare_stage(place.load(place.cache("third")))
    assert (
        (made.path / "manifest.json").read_bytes()
        == manifest
        == corpus.read("manifest.json")
    )


def test_a_place_that_cannot_be_written_is_found_before_the_corpus_is_made(
    place, monkeypatch
):
    config = place.load(
        place.cache("unwritable"), "data.corpus=s3://nobodys-bucket/corpus"
    )
    monkeypatch.setattr("xmtc.pipeline.prepare_corpus", lambda *_: pytest.fail("made"))
    with pytest.raises(
        StorageError, match=r"s3://nobodys-bucket/corpus/\S+: writing failed"
    ):
        prepare_stage(config)


def test_a_damaged_shard_is_named_and_not_taken(place):
    config, shard = place.load(place.cache("fourth")), Remote(CORPUS)
    good = place.folder / "good.arrow"
    shard.download("train/00000.arrow", good)
    bad = place.folder / "bad.arrow"
    bad.write_bytes(good.read_bytes()[:-1] + b"x")
    shard.upload(bad, "train/00000.arrow")
    with pytest.raises(StorageError, match=r"corpora/tiny/train/00000\.arrow: "):
        prepare_stage(config)
    shard.upload(good, "train/00000.arrow")
    prepare_stage(config).verify()


def test_commands_take_uris(place, monkeypatch):
    def xmtc(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    monkeypatch.setenv("COLUMNS", "200")
    status = xmtc("status", f"{RUNS}/tiny")
    assert "finetune  done" in status
    assert "the finished model on test: " in status
    assert '"labels"' in xmtc(
        "predict", f"{RUNS}/tiny/model", "--text", "lawery and fishing"
    )
    source, scores = f"s3://{BUCKET}/source", f"s3://{BUCKET}/scores"
    for _ in range(2):
        xmtc(
            "score",
            f"{RUNS}/tiny/model",
            f"{source}/dev.jsonl",
            f"{source}/te*.jsonl",
            "-o",
            scores,
            "--id",
            "id",
        )
    assert names(scores) >= {
        "_manifest.json",
        "_rejected.parquet",
        "part-00000-00000.parquet",
    }
    page = place.folder / "report.html"
    xmtc("report", f"{RUNS}/tiny", "-o", str(page))
    assert page.stat().st_size > 10_000
    with pytest.raises(StorageError, match="runs/absent"):
        xmtc("status", f"{RUNS}/absent")


def test_a_damaged_local_copy_is_found(place):
    corpus = prepare_stage(place.load(place.cache("fifth")))
    shard = corpus.path / "train" / "00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match=r"00000\.arrow: changed"):
        corpus.verify()
