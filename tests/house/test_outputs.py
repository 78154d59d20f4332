"""What commands write: only where they were asked to, and never over what xmtc did not write."""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import tiny_runs
from bad_input_cases.refused_writes import refused_call
from xmtc.errors import StorageError, XmtcError
from xmtc.files import (
    check_page,
    flush,
    recover_directory,
    replacing_directory,
    replacing_file,
    write_text,
)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(params=[0o022, 0o027, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_files_have_the_rights_that_the_umask_gives(tmp_path, umask):
    tensors = {"x": np.zeros(3, np.float32)}
    with replacing_file(tmp_path / "a.safetensors") as partial:
        save_file(tensors, partial)
    with replacing_directory(tmp_path / "model") as partial:
        (partial / "inner").mkdir()
        save_file(tensors, partial / "inner" / "b.safetensors")
    for path in (
        tmp_path / "a.safetensors",
        tmp_path / "model" / "inner" / "b.safetensors",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_what_a_killed_process_leaves_beside_a_folder_goes_with_the_next_one(
    tmp_path, monkeypatch
):
    def write(name: str) -> None:
        with replacing_directory(tmp_path / name) as partial:
            (partial / "x").touch()

    write("model")
    write("model.de")
    with monkeypatch.context() as patch:
        patch.setattr(
            "xmtc.files.shutil.rmtree", lambda *_, **__: None
        )  # killed before it
        write("model")
        write("model.de")
    assert len(list(tmp_path.iterdir())) == 4
    write("model")
    assert [path.name[:10] for path in tmp_path.glob(".*")] == [".model.de."]
    write("model.de")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.de"]


KILLED = """
import os, signal, sys
from pathlib import Path
from xmtc import files
place = Path(sys.argv[1])
with files.replacing_directory(place / "model") as model, files.replacing_file(place / "table") as table:
    (model / "x").write_text("half")
    table.write_text("half")
    print(flush=True)
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_files_are_removed_once_their_writer_is_dead(tmp_path):
    def write() -> list[str]:
        with replacing_directory(tmp_path / "model") as partial:
            (partial / "x").write_text("whole")
        write_text(tmp_path / "table", "whole")
        assert (tmp_path / "model" / "x").read_text() == "whole"
        assert (tmp_path / "table").read_text() == "whole"
        return sorted(path.name.split(".")[1] for path in tmp_path.glob(".*.tmp"))

    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline()
    assert write() == ["model", "table"]
    writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    assert write() == []


def test_a_file_of_which_a_library_made_another_is_still_locked(tmp_path, monkeypatch):
    def flush_while_another_writes(path: Path) -> None:
        monkeypatch.undo()
        write_text(tmp_path / "x.safetensors", "of another process")
        flush(path)

    with replacing_file(tmp_path / "x.safetensors") as partial:
        save_file({"x": np.zeros(3, np.float32)}, partial)
        monkeypatch.setattr("xmtc.files.flush", flush_while_another_writes)
    assert load_file(tmp_path / "x.safetensors")["x"].shape == (3,)


def test_every_file_of_an_exported_model_may_be_read_by_others(whole):
    modes = {
        stat.S_IMODE(path.stat().st_mode)
        for path in (whole.run / "model").rglob("*")
        if path.is_file()
    }
    before = os.umask(0)
    os.umask(before)
    assert modes == {0o666 & ~before}


def irregular(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.html"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/full")
    return path


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
@pytest.mark.parametrize("command", ["report", "explain"])
def test_only_regular_files_are_written(whole, xmtc, tmp_path, kind, command):
    path = irregular(tmp_path, kind)
    before = stat.S_IFMT(path.stat().st_mode)
    arguments = (
        [whole.run]
        if command == "report"
        else [whole.run / "model", "--text", "lawery"]
    )
    outcome = xmtc(command, *arguments, "-o", path)
    assert outcome.code == 1
    assert f"StorageError: {path}" in outcome.err
    assert stat.S_IFMT(path.stat().st_mode) == before
    assert sorted(one.name for one in tmp_path.iterdir()) == [path.name]
    with pytest.raises(StorageError, match=r"not a file|directory"):
        write_text(path, "x")


MINE = [
    "report.html",
    "report.md",
    "data.csv",
    "report_tables/frequency.csv",
    "report_tables/mine.txt",
]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=5,
    deadline=None,
)
@given(st.sets(st.sampled_from(MINE), min_size=1))
def test_reports_and_pages_never_change_what_was_there(
    whole, xmtc, tmp_path_factory, there
):
    folder = tmp_path_factory.mktemp("mine")
    for name in there:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("a,b\n1,2\n")
    mine = contents(folder)
    for name in ("report.html", "data.csv"):
        xmtc("report", whole.run, "-o", folder / name)
        xmtc(
            "explain",
            whole.run / "model",
            "--text",
            "lawery",
            "--top-k",
            1,
            "-o",
            folder / name,
        )
    assert contents(folder).items() >= mine.items()
    assert (
        len(
            there
            & {"report.html", "report_tables/frequency.csv", "report_tables/mine.txt"}
        )
        == 0
        or not (folder / "report_tables" / ".xmtc").exists()
    )


def test_what_xmtc_wrote_it_replaces(whole, xmtc, tmp_path):
    for _ in range(2):
        assert xmtc("report", whole.run, "-o", tmp_path / "report.html").code == 0
    (tmp_path / "report_tables" / "notes.txt").write_text("mine")
    outcome = xmtc("report", whole.run, "-o", tmp_path / "report.html")
    assert (outcome.code, "xmtc did not write" in outcome.err) == (1, True)
    assert (tmp_path / "report_tables" / "notes.txt").read_text() == "mine"
    for _ in range(2):
        assert (
            xmtc(
                "explain",
                whole.run / "model",
                "-t",
                "lawery",
                "-o",
                tmp_path / "page.html",
            ).code
            == 0
        )


def test_an_evaluation_has_a_separate_folder(whole, xmtc, tmp_path):
    predictions = whole.run / "eval" / "test" / "predictions.parquet"
    shutil.copy(predictions, tmp_path)
    arguments = (
        "--predictions",
        tmp_path / predictions.name,
        "--gold",
        whole.folder / "corpus",
        "--split",
        "test",
    )
    for name in ("data", "table.csv"):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / "metrics.csv").write_text("mine")
        (tmp_path / "table.csv").write_text("mine")
        before = contents(tmp_path)
        outcome = xmtc("evaluate", *arguments, "--output", tmp_path / name)
        assert (outcome.code, "something else than an evaluation" in outcome.err) == (
            1,
            True,
        )
        assert contents(tmp_path) == before
    for _ in range(2):
        assert xmtc("evaluate", *arguments, "--output", tmp_path / "mine").code == 0
    assert not (tmp_path / "predictions").exists()


@pytest.mark.parametrize("turn", [0, 2, 4, 6])
def test_an_evaluation_that_was_interrupted_is_done_again(whole, xmtc, tmp_path, turn):
    predictions = whole.run / "eval" / "test" / "predictions.parquet"
    words = (
        "evaluate",
        "--predictions",
        predictions,
        "--gold",
        whole.folder / "corpus",
        "--split",
        "test",
    )
    with refused_call("replace", turn, errno.ENOSPC, tmp_path):
        assert xmtc(*words, "--output", tmp_path / "out").code == 1
    assert xmtc(*words, "--output", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize("name", ["page.HTML", "page.htm", "page.html"])
def test_a_page_is_known_by_its_name_and_generator(tmp_path, name):
    check_page(tmp_path / name)
    (tmp_path / name).write_text("<html><title>mine</title></html>")
    with pytest.raises(StorageError, match="not a page of xmtc"):
        check_page(tmp_path / name)


def test_a_finished_run_is_replaced_on_request_alone(tmp_path, xmtc, monkeypatch):
    torch.set_num_threads(1)
    settings = {
        "plant": {"parts": []},
        "finetune": {"batch_size": 12, "phases": [{"epochs": 1}]},
    }
    config = tiny_runs.write_config(tmp_path, **settings)
    assert xmtc("train", config).code == 0
    run = tmp_path / "runs" / "tiny"
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write(
            json.dumps({"id": "new", "text": "lawery of fish", "labels": ["law"]})
            + "\n"
        )
    before = {
        name: content for name, content in contents(run).items() if name != ".lock"
    }
    corpus = contents(tmp_path / "corpus")
    outcome = xmtc("train", config)
    assert outcome.code == 1
    assert "this run is finished, and its corpus has changed" in outcome.err
    assert {
        name: content for name, content in contents(run).items() if name != ".lock"
    } == before
    assert contents(tmp_path / "corpus") == corpus
    assert xmtc("train", config, "--overwrite").code == 0
    assert contents(run)["model/labels.arrow"] != before["model/labels.arrow"]


def test_a_run_that_failed_before_training_does_not_block_its_name(tmp_path, xmtc):
    config = tiny_runs.write_config(tmp_path)
    outcome = xmtc("train", config, "mig.min_documents=1000")
    assert outcome.code == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "xmtc.pipeline.run_workers",
            lambda *_: (_ for _ in ()).throw(XmtcError("far enough")),
        )
        assert "far enough" in xmtc("train", config).err


def test_a_table_in_the_report_is_one_of_pandas(whole, xmtc, tmp_path):
    assert xmtc("report", whole.run, "-o", tmp_path / "report.html").code == 0
    names = (tmp_path / "report_tables" / ".xmtc").read_text().splitlines()
    assert {path.name for path in (tmp_path / "report_tables").iterdir()} == {
        *names,
        ".xmtc",
    }
    for name in names:
        if name.endswith(".csv"):
            assert len(pd.read_csv(tmp_path / "report_tables" / name))


def test_a_folder_is_replaced_in_one_step(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "x").write_text("0")
    missing = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if not (tmp_path / "model").is_dir():
                missing.append(time.monotonic())

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for number in range(200):
            with replacing_directory(tmp_path / "model") as partial:
                (partial / "x").write_text(str(number))
        done.set()
        looking.result()
    assert not missing
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_where_names_cannot_be_exchanged_a_killed_process_loses_nothing(
    tmp_path, monkeypatch
):
    def write(number: int) -> None:
        with replacing_directory(tmp_path / "model") as partial:
            (partial / "x").write_text(str(number))

    monkeypatch.setattr("xmtc.files.exchange", lambda *_: False)
    write(1)
    write(2)
    assert (tmp_path / "model" / "x").read_text() == "2"
    (tmp_path / "model").rename(
        tmp_path / ".model.0123456789ab.old.tmp"
    )  # and then the process was killed
    recover_directory(tmp_path / "model")
    assert (tmp_path / "model" / "x").read_text() == "2"
    (tmp_path / "model").rename(tmp_path / ".model.0123456789ab.old.tmp")
    write(3)
    assert (tmp_path / "model" / "x").read_text() == "3"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
