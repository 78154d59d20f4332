"""Callbacks around the training loop: the profiler, and one from another package."""

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from xmtc.config import members
from xmtc.config.base import config as config_class
from xmtc.config.members import FAMILIES
from xmtc.config.shape import Shape, adapter
from xmtc.errors import ConfigError
from xmtc.pipeline import mig_stage
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.run_stage import run_stage
from xmtc.training.callbacks.base import Callback, StageContext
from xmtc.training.callbacks.config import CallbackSettings
from xmtc.training.callbacks.profiler import RECORDED_STEPS, SKIPPED_STEPS, Profiler
from xmtc.training.objective import Position


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("callbacks")
    settings = {
        "batch_size": 12,
        "tokens_per_micro_batch": 300,
        "optimizer": {"learning_rate": 5e-3},
        "patience": 0,
    }
    phases = [
        {"epochs": 1},
        {"epochs": 1, "encoder_layers": 1, "encoder_learning_rate": 1e-3},
    ]
    return tiny_runs.write_config(
        folder,
        plant={"parts": []},
        finetune=settings | {"phases": phases, "dev_documents": 8},
        track={
            "directory": str(folder / "runs"),
            "log_every_steps": 1,
            "checkpoint_every_steps": 3,
        },
    )


def train(
    path: Path,
    name: str,
    *overrides: str,
    stage: Literal["plant", "finetune"] = "finetune",
) -> Path:
    """One stage, without the bookkeeping of a whole run."""
    return train_stage(tiny_runs.load(path, f"name={name}", *overrides), stage)


def train_stage(
    config: RunConfig, stage: Literal["plant", "finetune"] = "finetune"
) -> Path:
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    mig_stage(config)
    run_stage(stage, config, paths)
    return paths.root


def best(root: Path) -> dict[str, torch.Tensor]:
    return load_file(root / "checkpoints" / "best.safetensors")


def context(tmp_path: Path, rank: int = 0) -> StageContext:
    return StageContext("finetune", tmp_path, rank, torch.device("cpu"))


def test_a_callback_twice_is_refused(path) -> None:
    with pytest.raises(ConfigError, match="callbacks: profiler"):
        tiny_runs.load(path, "finetune.callbacks=[{kind: profiler}, {kind: profiler}]")
    with pytest.raises(
        ConfigError, match=r"plant\.callbacks\.0\.kind: 'profile'.*'profiler'"
    ):
        tiny_runs.load(path, "plant.callbacks=[{kind: profile}]")


def test_the_profiler_writes_a_trace(path) -> None:
    profiler = "callbacks=[{kind: profiler}]"
    root = train(
        path, "profiled", f"finetune.{profiler}", "finetune.phases=[{epochs: 3}]"
    )
    (trace,) = (root / "profile").iterdir()
    assert trace.name == "finetune_steps_11-13.json"
    assert any(
        "aten::" in event.get("name", "")
        for event in json.loads(trace.read_text())["traceEvents"]
    )


def test_a_stage_that_ends_early_leaves_the_trace_of_what_there_was(tmp_path) -> None:
    profiler = Profiler(context(tmp_path))
    for step in range(SKIPPED_STEPS + 1):
        profiler.before_step(Position(step=20 + step))
        torch.ones(3).sum()
        profiler.after_step(Position(step=21 + step))
    assert not (tmp_path / "profile").exists()
    profiler.end()
    profiler.end()
    assert [file.name for file in (tmp_path / "profile").iterdir()] == [
        "finetune_steps_31-31.json"
    ]


def test_other_ranks_do_not_profile(tmp_path) -> None:
    profiler = Profiler(context(tmp_path, rank=1))
    for step in range(SKIPPED_STEPS + RECORDED_STEPS):
        profiler.before_step(Position(step=step))
        profiler.after_step(Position(step=step + 1))
    profiler.end()
    assert list(tmp_path.iterdir()) == []


class Recorder(Callback):
    calls: list[str]

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def begin_phase(self, trained) -> None:
        self.calls.append(f"phase of {len(trained)}")

    def after_step(self, position) -> None:
        self.calls.append(f"step {position.step}")

    def save(self, directory) -> None:
        (directory / "recorder.txt").write_text(str(len(self.calls)))

    def end(self) -> None:
        self.calls.append("end")


CALLS: list[str] = []


@config_class
class RecorderConfig(CallbackSettings):
    """Writes down what happens."""

    kind: Literal["recorder"] = "recorder"

    def build(self, context: StageContext) -> Callback:
        return Recorder(CALLS)


@pytest.fixture
def installed(monkeypatch) -> Iterator[None]:
    """A package that adds a callback, from its entry point on."""
    point = importlib.metadata.EntryPoint(
        "recorder", f"{__name__}:RecorderConfig", "xmtc.callbacks"
    )
    monkeypatch.setattr(
        members, "entry_points", lambda group: (point,) if group == point.group else ()
    )
    monkeypatch.setattr(
        importlib.metadata.EntryPoint, "load", lambda self: RecorderConfig
    )
    caches = (adapter.cache_clear, Shape.of.cache_clear)
    for clear in caches:
        clear()
    FAMILIES["xmtc.callbacks"].__dict__.pop("installed", None)
    yield
    FAMILIES["xmtc.callbacks"].__dict__.pop("installed", None)
    for clear in caches:
        clear()


@pytest.mark.usefixtures("installed")
def test_a_callback_of_another_package_follows_the_loop(path) -> None:
    CALLS.clear()
    config = tiny_runs.load(path, "name=recorded", "finetune.phases=[{epochs: 1}]")
    config = replace(
        config, finetune=replace(config.finetune, callbacks=(RecorderConfig(),))
    )
    loaded = tiny_runs.load(path, "finetune.callbacks=[{kind: recorder}]")
    assert loaded.finetune.callbacks == config.finetune.callbacks
    root = train_stage(config)
    assert [call.split(" of")[0] for call in CALLS] == [
        "phase",
        *(f"step {i}" for i in range(1, 6)),
        "end",
    ]
    assert (root / "checkpoints" / "step_00000005" / "recorder.txt").read_text() == "6"
