"""What is said where a model is not there, or is not the last one of its run."""

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from xmtc.artefact.info import read_description
from xmtc.artefact.output import model_of_run
from xmtc.errors import CheckpointError
from xmtc.files import write_json
from xmtc.predict.predictor import Model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_run(name: str, stages: Mapping[str, str], *, model: bool = False) -> Path:
    run = Path("runs") / name
    record = {stage: {"state": state, "error": None} for stage, state in stages.items()}
    run.mkdir(parents=True)
    write_json(run / "run.json", {"stages": record})
    if model:
        (run / "model").mkdir()
        (run / "model/config.json").write_text("{}")
    return run


def refused(place: str) -> str:
    with pytest.raises(CheckpointError) as error:
        Model.from_pretrained(place)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_mistyped_run_is_suggested() -> None:
    write_run("titles", {"evaluate": "done"})
    for mistyped in ("runs/titels", "titles", "runs/titels/"):
        said = refused(mistyped)
        assert "no such folder; did you mean 'runs/titles'?" in said
    assert "did you mean" not in refused("runs/nowhere")


def test_files_and_other_folders_are_told_apart(tmp_path: Path) -> None:
    Path("titles.csv").write_text("text,labels\n")
    assert refused("titles.csv").startswith("titles.csv: is a file; give a run or a ")
    assert "config.json: missing, so no model is there, and no run" in refused(".")


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (("running", "pending"), "its stage prepare is running; xmtc status runs/x"),
        (("done", "pending"), "its stage evaluate is pending; xmtc status runs/x"),
        (("failed", "pending"), r"its stage prepare has failed (unknown); start it"),
        (("done", "done"), "has no model any more: start it again"),
        ((), "has no model any more"),
    ],
)
def test_a_run_without_a_model_says_where_it_is(
    states: tuple[str, ...], words: str
) -> None:
    run = write_run("x", dict(zip(("prepare", "evaluate"), states, strict=False)))
    assert refused(str(run)).startswith("runs/x: this run has no model ")
    assert words in refused(str(run))
    with pytest.raises(CheckpointError, match=r"runs/x: this run has no model"):
        read_description(run / "model")


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (("done", "running"), "evaluate is running: this model is the run's first "),
        (("done", "failed"), "evaluate is failed: this model is the run's first "),
        (("running", "pending"), "evaluate is pending: this model is of an earlier"),
        (("done", "done"), ""),
        ((), ""),
    ],
)
def test_a_model_that_is_not_the_last_one_is_announced(
    states: tuple[str, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    stages = dict(zip(("scorers", "evaluate"), states, strict=False))
    run = write_run(f"run-{'-'.join(states)}", stages, model=True)
    with caplog.at_level(logging.WARNING, logger="xmtc"):
        for place in (run, run / "model", run):
            assert model_of_run(place) == run / "model"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (1 if words else 0)  # once
    assert all(words in line for line in said)


def test_a_damaged_record_hides_no_model(caplog: pytest.LogCaptureFixture) -> None:
    run = write_run("x", {}, model=True)
    for record in ("", "[]", '{"stages": 3}', '{"stages": {"evaluate": 3}}'):
        (run / "run.json").write_text(record)
        assert model_of_run(run) == run / "model"
    assert not caplog.records
