"""Machines that share no disk score one job at a URI: each block once, whoever dies; see `xmtc.score.destination`."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(
    0, str(Path(__file__).parents[1] / "score")
)  # the local engine's tests have the model and the rows

from s3_server import BUCKET, names, s3
from score_jobs import FP32, contents, score, write_rows
from trial_model import TEXTS, export
from xmtc.cluster.score_job import ScoringActor, read_file_blocks, tokenise_block
from xmtc.errors import CheckpointError, DataError
from xmtc.run.copies import fetch_model
from xmtc.score.job import finish, open_job
from xmtc.score.local import score_local
from xmtc.score.shell import make_job
from xmtc.storage.remote import Remote

TOOL = Path(__file__).parents[2] / "tools/check/kill_scoring.py"
ROOT = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model, and its double in the bucket."""
    folder = export(tmp_path_factory.mktemp("run") / "model")
    with s3(tmp_path_factory.mktemp("home")):
        for path in folder.rglob("*"):
            if path.is_file():
                Remote(f"{ROOT}/model").upload(
                    path, path.relative_to(folder).as_posix()
                )
        yield folder


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Go to a machine with a disk of its own."""
    return lambda name: monkeypatch.setenv("HOME", str(tmp_path / name))


def job_at(place: str, source: str):
    return make_job(
        fetch_model(f"{ROOT}/model"),
        [source],
        f"{ROOT}/{place}",
        FP32,
        source=f"{ROOT}/model",
    )


def put_rows(folder: Path, place: str, rows: int = 14) -> tuple[Path, str]:
    path = write_rows(folder / "here" / "a.jsonl", rows)
    Remote(f"{ROOT}/{place}").upload(path, "a.jsonl")
    return path, f"{ROOT}/{place}"


def downloaded(place: str, folder: Path) -> Path:
    folder.mkdir()
    for name in names(f"{ROOT}/{place}"):
        Remote(f"{ROOT}/{place}").download(name, folder / name)
    return folder


def test_two_machines_share_nothing_but_the_uri(model, host, tmp_path):
    path, source = put_rows(tmp_path, "two-in")
    expected = score(model, path, tmp_path / "local")
    host("driver")
    job = job_at("two-out", source)
    assert open_job(job, overwrite=False) == []
    host("first")
    blocks = [
        tokenise_block(job, row)
        for row in read_file_blocks(job, frozenset(), {"file": 0})
    ]
    first = ScoringActor(job, "cpu")
    for row in blocks[:2]:
        first(row)
    host("second")
    second = ScoringActor(job, "cpu")
    for row in blocks[
        1:3
    ]:  # the second block twice: the first machine was taken for lost
        second(row)
    Remote(job.output.uri).remove(
        ".done/00000-00002.json"
    )  # killed between part and record
    host("driver after a kill")
    records = open_job(job_at("two-out", source), overwrite=False)
    assert [record.block for record in records] == ["00000-00000", "00000-00001"]
    done = frozenset(record.block for record in records)
    left = [row["raw"].block for row in read_file_blocks(job, done, {"file": 0})]
    assert left == [2, 3, 4]
    manifest = score_local(job_at("two-out", source), device="cpu")
    assert manifest["parts"] == expected["parts"]
    assert names(job.output.uri) == {
        path.name for path in (tmp_path / "local").iterdir()
    }
    assert contents(downloaded("two-out", tmp_path / "copy")) == contents(
        tmp_path / "local"
    )
    for machine in ("first", "second"):
        assert any(
            (tmp_path / machine / ".cache" / "xmtc" / "fetched").rglob("config.json")
        )
    assert finish(job, open_job(job, overwrite=False)) == manifest


def test_of_two_jobs_one_gets_the_place(model, host, tmp_path):
    _, source = put_rows(tmp_path, "race-in", 3)
    host("a")
    first = job_at("race-out", source)
    second = replace(first, settings=replace(first.settings, top_k=2))
    for job in (first, second):
        open_job(job, overwrite=False)
    with pytest.raises(DataError, match="taken by another job"):
        finish(first, [])
    assert finish(second, [])["settings"]["top_k"] == 2


def test_what_changes_while_it_is_scored_is_named(model, host, tmp_path):
    _, source = put_rows(tmp_path, "changed-in", 3)
    host("a")
    job = job_at("changed-out", source)
    put_rows(tmp_path, "changed-in", 4)
    with pytest.raises(DataError, match=r"changed-in/a\.jsonl: changed"):
        next(iter(read_file_blocks(job, frozenset(), {"file": 0})))
    path = tmp_path / "thresholds.json"
    path.write_text(json.dumps({"global": 0.25, "per_label": None}))
    before = Remote(f"{ROOT}/model").read("thresholds.json")
    Remote(f"{ROOT}/model").upload(path, "thresholds.json")
    host("b")
    with pytest.raises(CheckpointError, match="replaced by another model meanwhile"):
        ScoringActor(job, "cpu")
    path.write_bytes(before)
    Remote(f"{ROOT}/model").upload(path, "thresholds.json")


def test_inputs_at_uris(model, host, tmp_path):
    host("a")
    for folder in ("x", "x/_side", "y"):
        put_rows(tmp_path, f"inputs/{folder}", 2)
    job = make_job(model, [f"{ROOT}/inputs"], tmp_path / "out", FP32)
    assert [file.path.removeprefix(f"{ROOT}/inputs/") for file in job.files] == [
        "x/a.jsonl",
        "y/a.jsonl",
    ]
    assert len({file.name for file in job.files}) == 2
    (one,) = make_job(model, [f"{ROOT}/inputs/x/*.jsonl"], tmp_path / "out", FP32).files
    assert one.name == "a.jsonl"
    for absent in (f"{ROOT}/inputs/absent", f"{ROOT}/inputs/*.csv"):
        with pytest.raises(DataError, match="nothing there whose name ends in"):
            make_job(model, [absent], tmp_path / "out", FP32)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_killed_twenty_times_on_machines_that_share_no_disk(model, tmp_path):
    rows = {
        "id": [f"d{i}" for i in range(4000)],
        "text": [TEXTS[i % 4] for i in range(4000)],
    }
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    Remote(f"{ROOT}/kills").upload(tmp_path / "in.parquet", "in.parquet")
    tool = [
        sys.executable,
        str(TOOL),
        f"{ROOT}/model",
        f"{ROOT}/kills/in.parquet",
        "--output",
        f"{ROOT}/kills/out",
    ]
    options = [
        "--id",
        "id",
        "--block-rows",
        "4",
        "--seed",
        "18",
        "--disks",
        str(tmp_path / "disks"),
    ]
    kills = [("driver", 6), ("actor", 8), ("node", 6)]
    words = chain(["--kills"], (f"{kind}={number}" for kind, number in kills))
    done = subprocess.run(
        [*tool, *options, *words], capture_output=True, text=True, check=False
    )
    print(done.stdout)  # `pytest -rP` shows each kill
    assert done.returncode == 0, done.stdout + done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum("kill" in line for line in said) == 20
    assert said[-1]["holds"] is True
    assert len(list((tmp_path / "disks").iterdir())) == 7, (
        "every node copied model and input itself"
    )
