"""Checkpoints are whole or absent, damage is found and named, and the previous one survives every failure."""

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gloo import run_gloo
from xmtc.errors import CheckpointError, StorageError
from xmtc.storage.mirror import Mirror
from xmtc.storage.remote import Remote
from xmtc.training.checkpoint import CheckpointStore, verify
from xmtc.training.weights import load_into, write_weights


def write_payload(text: str):
    def write(folder: Path) -> None:
        (folder / "part").mkdir()
        (folder / "part" / "a.bin").write_text(text)

    return write


def newest_step(store: CheckpointStore) -> int:
    checkpoint = store.latest()
    assert checkpoint is not None
    return checkpoint.step


def test_round_trip_and_keep_last(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=2)
    assert store.latest() is None
    for step in (10, 20, 30):
        path = store.save(
            step, {"epoch": 1, "best": 0.1 + 0.2}, write_payload(str(step))
        )
    found = store.latest()
    assert found is not None
    assert (found.path, found.step, found.world_size) == (path, 30, 1)
    assert found.state == {"epoch": 1, "best": 0.1 + 0.2}
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "step_00000020",
        "step_00000030",
    ]


def truncate(path: Path) -> None:
    (path / "part" / "a.bin").write_text("")


def flip(path: Path) -> None:
    (path / "part" / "a.bin").write_text("21")


def remove_file(path: Path) -> None:
    (path / "part" / "a.bin").unlink()


def remove_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def halve_manifest(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text[: len(text) // 2])


def future_format(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "0 bytes instead of 2"),
        (flip, "SHA-256"),
        (remove_file, "cannot be read"),
        (remove_manifest, "no manifest.json"),
        (halve_manifest, "manifest.json: cannot be read"),
        (future_format, "format 99"),
    ],
)
def test_damaged_checkpoint_is_skipped_with_a_reason(tmp_path, caplog, damage, reason):
    store = CheckpointStore(tmp_path)
    store.save(10, {}, write_payload("10"))
    damaged = store.save(20, {}, write_payload("20"))
    damage(damaged)
    assert newest_step(store) == 10
    (line,) = caplog.messages
    assert line.startswith(f"skipping checkpoint {damaged}: ")
    assert reason in line


def test_resume_behind_a_damaged_checkpoint_replaces_it(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=3)
    store.save(10, {}, write_payload("10"))
    flip(store.save(20, {}, write_payload("20")))
    flip(store.save(30, {}, write_payload("30")))
    store = CheckpointStore(tmp_path, keep_last=2)
    store.save(15, {}, write_payload("15"))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step_00000010",
        "step_00000015",
    ]
    store.save(20, {}, write_payload("20"))
    store.save(20, {"again": True}, write_payload("20"))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "step_00000015",
        "step_00000020",
    ]
    found = store.latest()
    assert found is not None
    assert found.state == {"again": True}


def test_leftovers_of_a_killed_save_are_removed(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(10, {}, write_payload("10"))
    leftover = tmp_path / ".writing_00000020"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    assert newest_step(store) == 10
    assert not leftover.exists()


def test_full_disk_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path)
    store.save(10, {}, write_payload("10"))
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(5000, 3766, 1234))
    with pytest.raises(CheckpointError, match=r"1,234 .*5,678"):
        store.save(20, {}, write_payload("20"), bytes_needed=5678)
    monkeypatch.undo()
    assert newest_step(store) == 10
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000010"]


def test_disk_that_fills_up_leaves_the_earlier_checkpoint(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(10, {}, write_payload("10"))

    def write(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointError, match="No space left"):
        store.save(20, {}, write)
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000010"]


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from xmtc.distributed.strategies.config import SingleConfig
from xmtc.distributed.strategy import ParameterGroup
from xmtc.errors import CheckpointError, StorageError
from xmtc.storage.mirror import Mirror
from xmtc.storage.remote import Remote
from xmtc.training.checkpoint import CheckpointStore

model = torch.nn.Linear(256, 256)
strategy = SingleConfig().build("fp32", torch.device("cpu"))
strategy.prepare(model, [ParameterGroup("all", list(model.parameters()), 0.1, 0.0)])
store = CheckpointStore(Path(sys.argv[1]))
store.save(10, {}, strategy.save)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.save(20, {}, strategy.save, strategy.checkpoint_bytes())
except CheckpointError as error:
    print(error)
"""


def test_operating_system_refuses_the_bytes(tmp_path):
    """A real failure in the middle of a file: a limit on file size, since no test can fill the disk."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "trainable-00000-of-00001.safetensors" in done.stdout
    assert "about 789,504 are needed" in done.stdout
    assert verify(tmp_path / "step_00000010").step == 10
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000010"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_weights_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "plant" / "best.safetensors"
    write_weights(path, {"w": torch.ones(3)}, here=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(
            CheckpointError,
            match=r"best\.safetensors could not be written \(rank 0: .*free disk space",
        ):
            write_weights(path, {"w": torch.ones(100_000)}, here=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [p.name for p in path.parent.iterdir()] == ["best.safetensors"]
    assert load_file(path)["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-2])]
)
def test_lost_weights_are_named(tmp_path, damage):
    path = tmp_path / "best.safetensors"
    write_weights(path, {"w": torch.ones(3)}, here=True)
    damage(path)
    with pytest.raises(CheckpointError, match=r"best\.safetensors"):
        load_into(torch.nn.ParameterDict({"w": torch.ones(3)}), path)


def test_state_that_json_cannot_hold_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        CheckpointStore(tmp_path).save(10, {"rng": object()}, write_payload("10"))
    assert list(tmp_path.iterdir()) == []


def two_ranks(folder: Path) -> list[str]:
    """Both ranks write; then one fails, and both must say so."""
    from xmtc.distributed.collectives import rank_and_world_size

    rank, _ = rank_and_world_size()
    store = CheckpointStore(folder)
    store.save(
        10,
        {"consumed": 640},
        lambda path: (path / f"rank{rank}").write_text("x" * rank) and None,
    )
    heard = ""

    def write(path: Path) -> None:
        (path / f"rank{rank}").write_text("x")
        if rank == 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    try:
        store.save(20, {}, write)
    except CheckpointError as error:
        heard = str(error)
    found = store.latest()
    assert found is not None
    return [heard, found.path.name, str(found.world_size), str(found.state["consumed"])]


def test_failure_of_one_rank_reaches_all(tmp_path):
    results = run_gloo(two_ranks, 2, tmp_path / "gloo", tmp_path / "checkpoints")
    assert results[0] == results[1]
    heard, name, world_size, consumed = results[0]
    assert "rank 1: [Errno 28] No space left on device" in heard
    assert (name, world_size, consumed) == ("step_00000010", "2", "640")
    assert sorted(p.name for p in (tmp_path / "checkpoints" / name).iterdir()) == [
        "manifest.json",
        "rank0",
        "rank1",
    ]


class SlowMirror(Mirror):
    """A remote directory whose uploads wait until they may go on; it remembers what was pushed."""

    def __init__(self, local: Path) -> None:
        super().__init__(local, Remote("memory://slow"))
        self.may_go_on = threading.Event()
        self.pushed: list[str] = []
        self.failure: StorageError | None = None

    def push(self, folder: str = "", choose=lambda name: True) -> None:
        assert self.may_go_on.wait(20)
        if self.failure is not None:
            raise self.failure
        self.pushed.append(folder)

    def remove(self, folder: str) -> None:
        self.pushed.append(f"removed {folder}")

    def folders(self, folder: str) -> list[str]:
        return []


def test_the_copy_to_a_uri_runs_beside_what_follows(tmp_path):
    mirror = SlowMirror(tmp_path)
    store = CheckpointStore(tmp_path / "checkpoints", 1, mirror)
    path = store.save(
        1, {}, lambda folder: (folder / "a").write_text("a"), copy_later=True
    )
    assert path.is_dir()
    assert store.is_copying
    assert mirror.pushed == []
    mirror.may_go_on.set()
    seconds = store.finish_copy()
    assert seconds is not None
    assert mirror.pushed == [
        "checkpoints/step_00000001",
        "",
        "checkpoints/step_00000001",
    ], "the manifest comes last"
    assert not store.is_copying
    assert store.finish_copy() is None


def test_a_copy_that_failed_is_an_error_of_the_next_save(tmp_path):
    mirror = SlowMirror(tmp_path)
    mirror.failure = StorageError("the bucket is gone")
    store = CheckpointStore(tmp_path / "checkpoints", 1, mirror)
    mirror.may_go_on.set()
    store.save(1, {}, lambda folder: (folder / "a").write_text("a"), copy_later=True)
    with pytest.raises(StorageError, match="the bucket is gone"):
        store.save(
            2, {}, lambda folder: (folder / "a").write_text("a"), copy_later=True
        )
    saved = sorted(path.name for path in (tmp_path / "checkpoints").glob("step_*"))
    assert saved == ["step_00000001", "step_00000002"], "they are here"
