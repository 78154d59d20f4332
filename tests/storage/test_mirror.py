"""A directory and its double on a real S3 server: what travels when, and what happens when the server is away."""

import glob
import logging
import os
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from gloo import run_gloo
from s3_server import BUCKET, names
from xmtc.distributed.collectives import is_leader, rank_and_world_size
from xmtc.errors import ConfigError, StorageError
from xmtc.storage.config import StorageConfig, is_remote
from xmtc.storage.fetch import fetch
from xmtc.storage.mirror import Mirror
from xmtc.storage.remote import Remote
from xmtc.training.checkpoint import CheckpointStore


@pytest.fixture
def uri(server, request, tmp_path) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def test_a_file_that_is_gone_there_no_longer_matches_a_pattern(uri, tmp_path):
    storage, remote = StorageConfig(cache=str(tmp_path / "cache")), Remote(uri)
    for name in ("a.jsonl", "b.jsonl", "c.csv"):
        remote.write(name, b"{}")
    fetch(f"{uri}/c.csv", storage)
    assert len(glob.glob(str(fetch(f"{uri}/*.jsonl", storage)))) == 2
    remote.remove("a.jsonl")
    (found,) = glob.glob(str(fetch(f"{uri}/*.jsonl", storage)))
    assert found.endswith("b.jsonl")
    assert Path(found).with_name("c.csv").exists()


def fill(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_what_is_a_uri():
    assert all(map(is_remote, ("s3://b/x", "gs://b", "hdfs://h:8020/x", "file:///x")))
    assert not any(map(is_remote, ("corpora/x", "/data/x", "./a:b", "C:\\x")))


@pytest.mark.parametrize("scheme", ["s3", "file"])
def test_changes_travel_both_ways_and_once(scheme, uri, tmp_path, monkeypatch):
    uri = uri if scheme == "s3" else f"file://{tmp_path}/there"
    one = Mirror(fill(tmp_path / "one", a="1", sub__b="2"), Remote(uri))
    two = Mirror(tmp_path / "two", Remote(uri))
    one.push()
    two.pull()
    assert (two.local / "sub" / "b").read_text() == "2"
    moved: list[str] = []
    monkeypatch.setattr(Remote, "upload", spy(Remote.upload, moved, 2))
    monkeypatch.setattr(Remote, "download", spy(Remote.download, moved, 1))
    one.push()
    two.pull()
    two.push()
    assert moved == []
    fill(two.local, a="11")
    two.push()
    one.pull()
    assert moved == ["a", "a"]
    assert (one.local / "a").read_text() == "11"


def spy(method, names: list[str], position: int):
    def call(*args):
        names.append(args[position])
        return method(*args)

    return call


def test_what_marks_a_whole_travels_last_and_goes_first(uri, tmp_path, monkeypatch):
    folder = fill(
        tmp_path / "run",
        **{"run.json": "r", "step__manifest.json": "m", "step__z": "z", "step__a": "a"},
    )
    fill(folder, **{".lock": "", "x.tmp": "", ".writing__a": ""})
    order: list[str] = []
    monkeypatch.setattr(Remote, "upload", spy(Remote.upload, order, 2))
    monkeypatch.setattr(Remote, "remove", spy(Remote.remove, order, 1))
    mirror = Mirror(folder, Remote(uri))
    mirror.push()
    assert set(order[:2]) == {"step/a", "step/z"}
    assert order[2:] == ["step/manifest.json", "run.json"]
    assert mirror.folders("") == ["step"]
    mirror.remove("step")
    assert order[4] == "step/manifest.json"
    assert names(uri) == {"run.json"}


def test_where_both_sides_changed_the_other_machine_wins(uri, tmp_path):
    one = Mirror(fill(tmp_path / "one", **{"run.json": "1"}), Remote(uri))
    one.push()
    two = Mirror(tmp_path / "two", Remote(uri))
    two.pull()
    fill(two.local, **{"run.json": "two"})
    two.push()
    fill(one.local, **{"run.json": "one"})
    assert one.changed_elsewhere("run.json")
    one.pull()
    assert (one.local / "run.json").read_text() == "two"
    assert not one.changed_elsewhere("run.json")


def test_a_file_that_continues_the_remote_one_stays_and_travels_again(uri, tmp_path):
    """An upload whose answer was lost leaves an older copy there that no record knows."""
    mirror = Mirror(fill(tmp_path / "run", **{"metrics.jsonl": "1\n"}), Remote(uri))
    mirror.push()
    Remote(uri).upload(
        fill(tmp_path / "sent", lines="1\n2\n") / "lines", "metrics.jsonl"
    )
    fill(mirror.local, **{"metrics.jsonl": "1\n2\n3\n"})
    mirror.pull()
    assert (mirror.local / "metrics.jsonl").read_text() == "1\n2\n3\n"
    mirror.push()
    assert Remote(uri).read("metrics.jsonl") == b"1\n2\n3\n"


def test_files_deleted_remotely_are_published_again(uri, tmp_path):
    mirror = Mirror(fill(tmp_path / "run", a="1"), Remote(uri))
    mirror.push()
    Remote(uri).remove("a")
    mirror.pull()
    mirror.push()
    assert names(uri) == {"a"}


@pytest.mark.parametrize("name", ["a b", "a#b", "a?b", "100%", "Gesetze-ä"])
def test_a_file_address_is_one_folder_for_all_that_read_and_write_it(tmp_path, name):
    for uri in (f"file://{tmp_path}/{name}", (tmp_path / name).as_uri()):
        Remote(uri).write("x", b"1")
        assert (fetch(uri) / "x").read_bytes() == b"1"
        assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_damaged_there_is_named_and_nothing_is_left_here(uri, tmp_path):
    Mirror(fill(tmp_path / "one", a="1"), Remote(uri)).push()
    with pytest.raises(StorageError, match=rf"{uri}/a: .*SHA-256"):
        Mirror(tmp_path / "two", Remote(uri)).pull(sha256={"a": "0" * 64})
    assert list((tmp_path / "two").iterdir()) == []


def test_a_server_that_comes_back_is_waited_for(
    server, uri, tmp_path, caplog, monkeypatch
):
    mirror = Mirror(fill(tmp_path / "one", a="1"), Remote(uri, retry_s=60))
    server.stop()
    clock = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda seconds: server.start()
    )
    monkeypatch.setattr(
        "xmtc.storage.remote.time", clock
    )  # it comes back during the first pause
    with caplog.at_level(logging.WARNING, "xmtc"):
        mirror.push()
    assert names(uri) == {"a"}
    assert f"{uri}/a: writing failed" in caplog.text
    assert "trying again" in caplog.text


def test_a_server_that_stays_away_ends_with_what_to_do(server, uri, tmp_path):
    mirror = Mirror(fill(tmp_path / "one", a="1"), Remote(uri, retry_s=0.5))
    server.stop()
    try:
        with pytest.raises(StorageError, match=rf"{uri}/a: .*\d+ s"):
            mirror.push()
    finally:
        server.start()
    mirror.push()
    assert names(uri) == {"a"}


def test_permanent_errors_are_raised_without_retries(server, tmp_path):
    started = time.monotonic()
    with pytest.raises(StorageError, match="s3://no-such-bucket/x/a: "):
        Mirror(
            fill(tmp_path / "one", a="1"), Remote("s3://no-such-bucket/x", retry_s=60)
        ).push()
    assert time.monotonic() - started < 20
    with pytest.raises(ConfigError, match="nosuch://x/y: "):
        Remote("nosuch://x/y")


def test_a_web_server_that_takes_no_files_is_not_tried_again(tmp_path):
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    )
    Thread(target=server.serve_forever, daemon=True).start()
    remote, started = (
        Remote(f"http://127.0.0.1:{server.server_port}/x", retry_s=60),
        time.monotonic(),
    )
    for do, words in (
        (partial(remote.write, "a", b"x"), "writing failed .*501"),
        (partial(remote.remove, "a"), "deleting"),
    ):
        with pytest.raises(StorageError, match=f"{remote.uri}/a: {words}"):
            do()
    assert time.monotonic() - started < 20
    server.shutdown()
    server.server_close()


class Denies(SimpleHTTPRequestHandler):
    def do_GET(self):
        self.send_error(403)

    do_HEAD = do_GET


def test_a_web_server_that_denies_or_is_away_has_not_nothing_there():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Denies)
    Thread(target=server.serve_forever, daemon=True).start()
    remote, started = (
        Remote(f"http://127.0.0.1:{server.server_port}/x.csv", retry_s=60),
        time.monotonic(),
    )
    with pytest.raises(StorageError, match=r"looking at failed .*403"):
        remote.is_file()
    assert time.monotonic() - started < 20
    server.shutdown()
    server.server_close()
    with pytest.raises(StorageError, match=r"x\.csv: looking at failed for .*Connect"):
        Remote(remote.uri, retry_s=1).is_file()


@pytest.mark.parametrize(
    "uri", ["s3:", "gs:", "zip:///no.zip", "ftp://127.0.0.1:9/a.csv"]
)
def test_addresses_of_nothing_are_named(uri):
    with pytest.raises(StorageError, match=f"^'?{uri}[:']"):
        fetch(f"{uri}//")


def test_copies_are_told_apart_and_keep_their_names(tmp_path):
    storage = StorageConfig(cache=str(tmp_path))
    path = storage.path("runs", "s3://b/a/x/")
    assert path == storage.path("runs", "s3://b/a/x")
    assert path.name == "x"
    assert (
        path
        != storage.path("runs", "s3://b/a-/x")
        != storage.path("runs", "s3://b/A/x")
    )


def write_part(folder: Path) -> None:
    rank, _ = rank_and_world_size()
    (folder / f"part{rank}").write_text(f"of rank {rank}")


def credentials() -> dict[str, str]:
    """Of this process, for the ranks: what starts them was itself started before the server."""
    return {
        name: value for name, value in os.environ.items() if name.startswith("AWS_")
    }


def save_on_a_disk_of_its_own(
    folder: Path, uri: str, environment: dict[str, str]
) -> list[bool]:
    """Rank 0 and 1 on one disk, rank 2 on another, as on two nodes."""
    os.environ.update(environment)
    rank, _ = rank_and_world_size()
    local = folder / f"node{rank // 2}"
    store = CheckpointStore(
        local / "checkpoints", 1, Mirror(local, Remote(uri, retry_s=5))
    )
    for step in (10, 20):
        store.save(step, {"step": step}, write_part)
    return [is_leader(local)]


def resume_on_a_disk_of_its_own(
    folder: Path, uri: str, environment: dict[str, str]
) -> tuple[int, list[str]]:
    os.environ.update(environment)
    rank, _ = rank_and_world_size()
    local = folder / f"node{rank // 2}"
    store = CheckpointStore(
        local / "checkpoints", 1, Mirror(local, Remote(uri, retry_s=5))
    )
    found = store.latest()
    assert found is not None
    return found.state["step"], sorted(p.name for p in found.path.iterdir())


def test_checkpoints_of_nodes_without_a_common_disk(uri, tmp_path):
    led = run_gloo(
        save_on_a_disk_of_its_own,
        3,
        tmp_path / "save",
        tmp_path / "first",
        uri,
        credentials(),
    )
    assert led == [[True], [False], [True]]
    whole = {"manifest.json", "part0", "part1", "part2"}
    assert names(uri) == {f"checkpoints/step_00000020/{name}" for name in whole}
    assert {
        p.name for p in (tmp_path / "first/node1/checkpoints/step_00000020").iterdir()
    } == {
        "manifest.json",
        "part2",
    }
    resumed = run_gloo(
        resume_on_a_disk_of_its_own,
        3,
        tmp_path / "same",
        tmp_path / "first",
        uri,
        credentials(),
    )
    assert resumed == [(20, sorted(whole))] * 3
    elsewhere = run_gloo(
        resume_on_a_disk_of_its_own,
        3,
        tmp_path / "resume",
        tmp_path / "second",
        uri,
        credentials(),
    )
    assert elsewhere == [(20, sorted(whole))] * 3


def write_text(text: str):
    def write(folder: Path) -> None:
        (folder / "state").write_text(text)

    return write


def test_a_checkpoint_damaged_here_comes_back_from_there(uri, tmp_path):
    store = CheckpointStore(
        tmp_path / "run" / "checkpoints", 2, Mirror(tmp_path / "run", Remote(uri))
    )
    (store.save(10, {}, write_text("ten")) / "state").write_text("TEN")
    found = store.latest()
    assert found is not None
    assert (found.path / "state").read_text() == "ten"


def test_an_upload_that_was_cut_short_is_no_checkpoint(server, uri, tmp_path):
    local, remote = tmp_path / "run", Remote(uri, retry_s=0.5)
    store = CheckpointStore(local / "checkpoints", 2, Mirror(local, remote))
    store.save(10, {}, write_text("ten"))
    server.stop()
    try:
        with pytest.raises(StorageError, match="step_00000020/state: "):
            store.save(20, {}, write_text("twenty"))
    finally:
        server.start()
    remote.upload(
        local / "checkpoints" / "step_00000020" / "state",
        "checkpoints/step_00000020/state",
    )
    elsewhere = CheckpointStore(
        tmp_path / "new" / "checkpoints", 2, Mirror(tmp_path / "new", remote)
    ).latest()
    assert elsewhere is not None
    assert elsewhere.step == 10
    here = CheckpointStore(local / "checkpoints", 2, Mirror(local, remote)).latest()
    assert here is not None
    assert here.step == 20
    assert "checkpoints/step_00000020/manifest.json" in names(uri)


def test_both_copies_damaged_is_skipped(uri, tmp_path, caplog):
    store = CheckpointStore(
        tmp_path / "run" / "checkpoints", 2, Mirror(tmp_path / "run", Remote(uri))
    )
    store.save(10, {}, write_text("ten"))
    bad = store.save(20, {}, write_text("twenty")) / "state"
    bad.write_text("TWENTY")
    Remote(uri).upload(bad, "checkpoints/step_00000020/state")
    found = store.latest()
    assert found is not None
    assert found.step == 10
    assert "SHA-256" in caplog.text
