"""Google Cloud Storage: the same as at S3, as far as its client and its errors are others; against an emulator."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tiny_runs
from gcs_server import BUCKET, GcsServer, gcs
from s3_server import names
from xmtc.errors import StorageError
from xmtc.pipeline import train_run
from xmtc.storage.mirror import Mirror
from xmtc.storage.remote import Remote, is_denied
from xmtc.track.tracker import Tracker

pytest.importorskip("gcsfs")
pytest.importorskip("gcp_storage_emulator")

# What gcsfs does with files above 1 MB; as an error it would end the upload.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Sending a large body directly:ResourceWarning"
)

PLACE = f"gs://{BUCKET}"


@pytest.fixture(scope="module")
def server() -> Iterator[GcsServer]:
    with gcs() as running:
        yield running


@pytest.fixture
def impatient(monkeypatch) -> None:
    """The client's own pauses, half a minute of them before it gives an error, take no time."""

    async def sleep(seconds: float) -> None:
        pass

    monkeypatch.setattr("gcsfs.retry.asyncio", SimpleNamespace(sleep=sleep))


def test_changes_travel_both_ways_and_once(server, tmp_path):
    one, two = (
        Mirror(tmp_path / name, Remote(f"{PLACE}/both")) for name in ("one", "two")
    )
    (one.local / "sub").mkdir(parents=True)
    for name, content in (
        ("a", b"1"),
        ("empty", b""),
        ("sub/b", bytes(6_000_000)),
    ):  # more than goes in one request
        (one.local / name).write_bytes(content)
    one.push()
    two.pull()
    assert {p.name: p.stat().st_size for p in two.local.rglob("*") if p.is_file()} == {
        "a": 1,
        "empty": 0,
        "b": 6_000_000,
    }
    assert not one.changed_elsewhere("a")
    (two.local / "a").write_text("2")
    two.push()
    assert one.changed_elsewhere("a")
    one.pull()
    assert (one.local / "a").read_text() == "2"
    assert Remote(f"{one.remote.uri}/a").is_file()
    assert not one.remote.is_file()
    one.remove("")
    assert names(f"{PLACE}/both") == set()
    assert (one.remote.list(), one.remote.read("a"), one.remote.stamp("a")) == (
        {},
        None,
        None,
    )


def test_a_server_that_comes_back_is_waited_for_and_one_that_stays_away_is_named(
    server, impatient, tmp_path, monkeypatch, caplog
):
    (tmp_path / "a").write_text("1")
    server.stop()
    try:
        with pytest.raises(StorageError, match=r"gs://.*/a: .*\d+ s"):
            Remote(f"{PLACE}/away", retry_s=0.1).upload(tmp_path / "a", "a")
    finally:
        clock = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda seconds: server.start()
        )
        monkeypatch.setattr("xmtc.storage.remote.time", clock)
    with caplog.at_level(logging.WARNING, "xmtc"):
        Remote(f"{PLACE}/away", retry_s=60).upload(tmp_path / "a", "a")
    assert "trying again" in caplog.text
    assert names(f"{PLACE}/away") == {"a"}


def test_permanent_errors_are_raised_without_retries(server, tmp_path, monkeypatch):
    from gcsfs.retry import validate_response

    (tmp_path / "a").write_text("1")
    with pytest.raises(StorageError, match="FileNotFoundError"):
        Remote("gs://nobodys-bucket/x", retry_s=60).upload(tmp_path / "a", "a")
    remote = Remote(f"{PLACE}/denied", retry_s=60)
    for status in (401, 403):

        def refuse(*_, status=status):
            validate_response(status, "Anonymous caller is not allowed", "b/x/o")

        monkeypatch.setattr(remote._fs, "put_file", refuse)
        with pytest.raises(
            StorageError, match=r"writing failed .*client's credentials .*gcloud's"
        ) as found:
            remote.upload(tmp_path / "a", "a")
        assert is_denied(found.value.__cause__)


@pytest.fixture(scope="module")
def config(server, tmp_path_factory) -> Path:
    """Of a run with source, corpus and run directory there."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("gs")
    config = tiny_runs.write_config(
        folder,
        plant={"parts": []},
        storage={"cache": str(folder / "first"), "retry_minutes": 0.001},
        track={
            "directory": f"{PLACE}/runs",
            "log_every_steps": 1,
            "checkpoint_every_steps": 3,
        },
    )
    text = config.read_text()
    for split in ("train", "dev", "test"):
        Remote(f"{PLACE}/source").upload(folder / f"{split}.jsonl", f"{split}.jsonl")
        text = text.replace(f"{folder / split}.jsonl", f"{PLACE}/source/{split}.jsonl")
    config.write_text(text.replace(str(folder / "corpus"), f"{PLACE}/corpus"))
    return config


def test_a_lost_server_ends_the_run_and_another_machine_resumes_it(
    config, server, impatient, tmp_path, monkeypatch
):
    log = Tracker.log

    def log_and_stop(self, stage, at, *args, **kwargs):
        log(self, stage, at, *args, **kwargs)
        if at == 8:
            server.stop()

    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "log", log_and_stop)
        with pytest.raises(
            StorageError,
            match=r"runs/tiny/(checkpoints/step_0000000[69]/|metrics\.jsonl)",
        ):
            train_run(tiny_runs.load(config))
    server.start()
    run = train_run(tiny_runs.load(config, f"storage.cache={tmp_path}"))
    assert sorted(tiny_runs.losses(run, "finetune")) == list(range(1, 21))
    there = names(f"{PLACE}/runs/tiny")
    assert {"run.json", "model/config.json", "eval/test/report.html"} <= there
    assert {
        name.split("/")[1] for name in there if name.startswith("checkpoints/step_")
    } == {
        "step_00000018",
        "step_00000020",
    }
