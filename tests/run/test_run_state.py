"""run.json and the snapshot: what is skipped on a resume, what is refused, what survives a kill."""

import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from xmtc.config.base import config
from xmtc.config.load import load_config
from xmtc.config.plain import changed_settings, config_hash, dump_yaml
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.files import lock_of, locked, write_text
from xmtc.run.state import (
    RunState,
    StageRecord,
    check_free,
    git_state,
    read_run,
    versions,
)
from xmtc.track.config import TrackConfig
from xmtc.track.sinks import TensorBoardConfig

CONFIG = TrackConfig(sinks=(TensorBoardConfig(),), checkpoint_every_minutes=1e-5)


@config
class Whole:
    track: TrackConfig
    seed: int = 1


def test_resolved_yaml_loads_to_an_equal_config(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(CONFIG))
    assert load_config(TrackConfig, path) == CONFIG
    assert "keep_last: 2" in path.read_text()


def test_hash_depends_on_every_part() -> None:
    assert config_hash(CONFIG) == config_hash(
        TrackConfig(sinks=(TensorBoardConfig(),), checkpoint_every_minutes=1e-5)
    )
    other = replace(CONFIG, keep_last=3)
    assert (
        len(
            {
                config_hash(CONFIG),
                config_hash(other),
                config_hash(CONFIG, "a"),
                config_hash(CONFIG, {"a": 1}),
            }
        )
        == 4
    )


def test_differences_name_the_nested_key() -> None:
    before = {"a": 1, "b": {"c": [1], "d": 2}, "gone": 0}
    after = {"a": 1, "b": {"c": [1, 2], "d": 2}, "new": "x"}
    assert list(changed_settings(before, after)) == [
        "b.c: [1] -> [1, 2]",
        "gone: 0 -> null",
        'new: null -> "x"',
    ]


def test_stages_go_from_pending_to_done_and_are_skipped_then(tmp_path: Path) -> None:
    with RunState.open(
        tmp_path / "run",
        CONFIG,
        stages=("mig", "plant"),
        seeds={"seed": 13},
        world_size=2,
    ) as run:
        assert len(run.record.sessions) == 1
        with run.stage("mig", "aa"):
            assert (
                json.loads((tmp_path / "run/run.json").read_text())["stages"]["mig"][
                    "state"
                ]
                == "running"
            )
        run.set_fingerprint("corpus", "cc")
    with RunState.open(tmp_path / "run", CONFIG, stages=("mig", "plant")) as run:
        assert len(run.record.sessions) == 2
        assert run.is_done("mig", "aa")
        assert not run.is_done("mig", "bb")
        assert not run.is_done("plant", "aa")
        assert not run.is_done("unknown", "aa")
    record = read_run(tmp_path / "run")
    assert record is not None
    assert [stage.state for stage in record.stages.values()] == ["done", "pending"]
    assert record.stages["mig"].seconds is not None
    assert record.fingerprints == {"corpus": "cc"}
    assert [session.world_size for session in record.sessions] == [2, 1]
    assert record.versions["python"] == sys.version.split()[0]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DataError("row 3: no text"), "DataError: row 3: no text"),
        (ValueError("the patient said"), "ValueError"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_failed_stage_is_written_down_without_foreign_text(
    tmp_path: Path, error: BaseException, words: str
) -> None:
    with RunState.open(tmp_path, CONFIG) as run:
        with pytest.raises(type(error)), run.stage("plant", "aa"):
            raise error
        assert run.record.stages["plant"].state == "failed"
        assert run.record.stages["plant"].error == words
        assert not run.is_done("plant", "aa")


def test_resume_never_must_and_another_configuration(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with pytest.raises(ConfigError, match="resume=auto"):
        RunState.open(run_dir, CONFIG, resume="must")
    assert not run_dir.exists()
    RunState.open(run_dir, CONFIG, resume="never").close()
    (run_dir / "checkpoints" / "step_00000001").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds a run already"):
        RunState.open(run_dir, CONFIG, resume="never")
    changed = replace(CONFIG, keep_last=5, log_every_steps=1)
    with pytest.raises(ConfigError, match="keep_last: 2 -> 5"):
        RunState.open(run_dir, changed)


def test_tracking_may_change_in_a_run_that_continues(tmp_path: Path) -> None:
    RunState.open(tmp_path, Whole(track=CONFIG)).close()
    (tmp_path / "checkpoints" / "step_00000001").mkdir(parents=True)
    changed = Whole(track=replace(CONFIG, keep_last=5, log_every_steps=1))
    RunState.open(tmp_path, changed, resume="must").close()
    with pytest.raises(ConfigError, match=r"another configuration[^*]*seed: 1 -> 2"):
        RunState.open(tmp_path, replace(changed, seed=2))


def test_a_run_that_trained_nothing_leaves_its_name_to_another_configuration(
    tmp_path: Path,
) -> None:
    changed = replace(CONFIG, keep_last=5)
    with RunState.open(tmp_path, CONFIG, stages=("prepare", "mig", "finetune")) as run:
        for name, state in (
            ("prepare", "done"),
            ("mig", "done"),
            ("finetune", "failed"),
        ):
            run.set_stage(name, StageRecord(state=state, fingerprint="a"))
    with RunState.open(tmp_path, changed, stages=("prepare", "mig", "finetune")) as run:
        assert [stage.state for stage in run.record.stages.values()] == ["pending"] * 3
        assert len(run.record.sessions) == 1
        with run.stage("finetune", "a"):
            pass
    with pytest.raises(ConfigError, match="another configuration"):
        RunState.open(tmp_path, CONFIG)


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    check_free(run)
    assert not run.exists()
    holder = rf"run: process {os.getpid()} on {re.escape(socket.gethostname())} writes this run; .*name=OTHER"
    with RunState.open(run, CONFIG):
        with pytest.raises(ConfigError, match=holder):
            RunState.open(run, CONFIG)
        with pytest.raises(ConfigError, match=holder):
            check_free(run)
        (run / ".lock").write_text("")  # of a version that wrote nothing into it
        with pytest.raises(ConfigError, match="another process writes this run"):
            check_free(run)
    check_free(run)
    RunState.open(run, CONFIG).close()


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_what_lies_in_the_place_of_a_lock_is_not_written_to(
    tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / "run").mkdir()
    make(other, tmp_path / "run" / ".lock")
    make(other, lock_of(tmp_path / "corpus"))
    with pytest.raises(StorageError, match="lies in the place of this file: remove it"):
        RunState.open(tmp_path / "run", CONFIG)
    with (
        pytest.raises(StorageError, match="lies in the place of this file: remove it"),
        locked(tmp_path / "corpus"),
    ):
        pass
    assert other.read_text() == "kept"


def test_a_place_where_no_run_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written: "):
        RunState.open(tmp_path / "file" / "run", CONFIG)


def test_a_killed_run_leaves_a_readable_record_and_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from xmtc.run.state import RunState; from xmtc.track.config import TrackConfig\n"
        "run = RunState.open(Path(sys.argv[1]), TrackConfig(), stages=('plant',))\n"
        "with run.stage('plant', 'aa'): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    with RunState.open(tmp_path, TrackConfig()) as run:
        assert run.record.stages["plant"].state == "running"
        assert not run.is_done("plant", "aa")


@pytest.mark.parametrize("text", ["", "{", '{"format": 1}', "[]"])
def test_a_damaged_record_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match=r"run\.json: .*; move"):
        RunState.open(tmp_path, CONFIG)


def test_atomic_write_keeps_the_old_file_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_text(target, "old")

    def fail(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text.encode(encoding)[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(StorageError, match="No space left on device"):
        write_text(target, "new" * 100_000)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_versions_and_commit() -> None:
    assert {"python", "xmtc", "torch", "pydantic"} <= versions().keys()
    state = git_state()
    assert state is None or len(state.commit) == 40


@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_is_removed_meanwhile_is_not_brought_back(
    tmp_path: Path, again: bool
) -> None:
    with RunState.open(tmp_path / "run", CONFIG, stages=("mig",)) as run:
        shutil.rmtree(tmp_path / "run")
        other = RunState.open(tmp_path / "run", CONFIG) if again else None
        with pytest.raises(
            StorageError, match="removed or replaced while this run worked"
        ):
            run.set_fingerprint("corpus", "cc")
    if other is None:
        assert not (tmp_path / "run").exists()
    else:
        other.close()
        record = read_run(tmp_path / "run")
        assert record is not None
        assert record.fingerprints == {}
