"""Callbacks around the training loop: the moving average, the profiler, and one from another package."""

import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tiny_runs
from gloo import run_gloo
from xmtc.config import members
from xmtc.config.base import config as config_class
from xmtc.config.members import FAMILIES
from xmtc.config.shape import Shape, adapter
from xmtc.distributed.row_shards import RowShard
from xmtc.errors import CheckpointError, ConfigError
from xmtc.pipeline import mig_stage
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths
from xmtc.stages.run_stage import run_stage
from xmtc.training.callbacks.base import Callback, StageContext
from xmtc.training.callbacks.config import CallbackSettings, EmaConfig
from xmtc.training.callbacks.ema import Ema
from xmtc.training.callbacks.profiler import RECORDED_STEPS, SKIPPED_STEPS, Profiler
from xmtc.training.loop import Loop
from xmtc.training.objective import Position

EMA = "finetune.callbacks=[{kind: ema, decay: 0.6}]"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("callbacks")
    settings = {"batch_size": 12, "tokens_per_micro_batch": 300, "optimizer": {"learning_rate": 5e-3}, "patience": 0}
    phases = [{"epochs": 1}, {"epochs": 1, "encoder_layers": 1, "encoder_learning_rate": 1e-3}]
    return tiny_runs.write_config(
        folder,
        plant={"parts": []},
        finetune=settings | {"phases": phases, "dev_documents": 8},
        track={"directory": str(folder / "runs"), "log_every_steps": 1, "checkpoint_every_steps": 3},
    )


@pytest.fixture(autouse=True)
def one_cpu(monkeypatch) -> None:
    monkeypatch.setattr("xmtc.data.parallel.cpu_count", lambda: 1)


def train(path: Path, name: str, *overrides: str, stage: Literal["plant", "finetune"] = "finetune") -> Path:
    """One stage, without the bookkeeping of a whole run."""
    return train_stage(tiny_runs.load(path, f"name={name}", *overrides), stage)


def train_stage(config: RunConfig, stage: Literal["plant", "finetune"] = "finetune") -> Path:
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    mig_stage(config)
    run_stage(stage, config, paths)
    return paths.root


def best(root: Path) -> dict[str, torch.Tensor]:
    return load_file(root / "checkpoints" / "best.safetensors")


@pytest.fixture(scope="module")
def averaged(path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmtc.data.parallel.cpu_count", lambda: 1)
        return train(path, "averaged", EMA)


def dev(root: Path) -> list[dict[str, float]]:
    lines = [m for m in tiny_runs.metrics(root) if "dev/p@1" in m]
    return [{k: v for k, v in m.items() if k.startswith("dev/") and k != "dev/seconds"} for m in lines]


def context(tmp_path: Path, rank: int = 0) -> StageContext:
    return StageContext("finetune", tmp_path, rank, torch.device("cpu"))


def test_the_average_is_the_plain_formula(tmp_path) -> None:
    torch.manual_seed(0)
    model, late = nn.Linear(3, 2), nn.Parameter(torch.randn(4, dtype=torch.bfloat16))
    ema = Ema(EmaConfig(decay=0.5), context(tmp_path))
    ema.begin_phase(dict(model.named_parameters()))
    expected = {name: p.detach().double() for name, p in model.named_parameters()}
    for step in range(12):
        if step == 4:  # a parameter that a later phase trains
            ema.begin_phase({**dict(model.named_parameters()), "late": late})
            expected["late"] = late.detach().double()
        with torch.no_grad():
            for parameter in (*model.parameters(), late):
                parameter.add_(torch.randn(parameter.shape))
        skipped = step == 7
        ema.after_step(Position(step=step + 1, skipped=int(skipped)))
        updates = step - (step > 7)
        decay = min(0.5, (1 + updates) / (10 + updates))
        now = dict(model.named_parameters()) | {"late": late}
        if not skipped:
            expected = {n: decay * mean + (1 - decay) * now[n].detach().double() for n, mean in expected.items()}
    before = {name: p.detach().clone() for name, p in now.items()}
    with ema.evaluating():
        for name, mean in expected.items():
            torch.testing.assert_close(now[name].detach(), mean.to(now[name].dtype))
    assert all(torch.equal(before[name], now[name]) for name in now)


def test_the_weights_train_as_without_it_and_the_average_is_evaluated_and_kept(path, averaged) -> None:
    plain = train(path, "plain")
    assert tiny_runs.losses(plain, "finetune") == tiny_runs.losses(averaged, "finetune")
    assert dev(plain) != dev(averaged)
    assert best(plain).keys() == best(averaged).keys()
    assert any(not torch.equal(best(plain)[name], tensor) for name, tensor in best(averaged).items())


class BoomError(RuntimeError):
    pass


@pytest.mark.parametrize("step", [5, 9])  # in the middle of an epoch of the first and of the second phase
def test_killed_and_resumed_it_is_the_same_average(path, averaged, monkeypatch, step) -> None:
    original = Loop._step

    def faulty(self, module, planned, batches, position, meter):
        if position.step + 1 == step:
            raise BoomError
        return original(self, module, planned, batches, position, meter)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_step", faulty)
        with pytest.raises(BoomError):
            train(path, f"killed_{step}", EMA)
    resumed = train(path, f"killed_{step}", EMA)
    assert dev(resumed) == dev(averaged)
    assert best(resumed).keys() == best(averaged).keys()
    assert all(torch.equal(best(resumed)[name], tensor) for name, tensor in best(averaged).items())


def test_a_checkpoint_without_the_average_or_of_other_parameters_is_refused(tmp_path) -> None:
    ema = Ema(EmaConfig(), context(tmp_path))
    ema.begin_phase({"weight": nn.Parameter(torch.ones(2))})
    with pytest.raises(CheckpointError, match=r"finetune\.callbacks: ema"):
        ema.load(tmp_path)
    ema.save(tmp_path)
    other = Ema(EmaConfig(), context(tmp_path))
    other.begin_phase({"bias": nn.Parameter(torch.ones(2))})
    with pytest.raises(CheckpointError, match="averages other parameters"):
        other.load(tmp_path)
    (tmp_path / "ema.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ema.load(tmp_path)


def shards(folder: Path, world_size: int) -> list[float]:
    """Averages a table of 5 rows, of which each rank has some; resumes where there is a checkpoint."""
    table = RowShard.of(torch.arange(10.0).reshape(5, 2))
    rank = 0 if table.first == 0 else 1
    ema = Ema(EmaConfig(decay=0.0), context(folder, rank))
    ema.begin_phase({"table": table})
    if (folder / "ema.safetensors").exists():
        ema.load(folder)
    else:
        with torch.no_grad():
            table.mul_(2)
        ema.after_step(Position(step=1))
        ema.save(folder)
    with ema.evaluating():
        return table.whole(table.detach()).flatten().tolist()


def test_rows_that_are_split_are_averaged_and_resume_at_another_world_size(tmp_path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    expected = [2.0 * i for i in range(10)]
    assert run_gloo(shards, 2, tmp_path / "two", folder, 2) == [expected] * 2
    assert shards(folder, 1) == expected


def test_partitioned_parameters_are_refused(path) -> None:
    zero_3 = "distributed={workers: 2, strategy: {kind: deepspeed, stage: 3}}"
    with pytest.raises(ConfigError, match=r"finetune\.callbacks: ema .*distributed\.strategy\.stage: 3"):
        tiny_runs.load(path, EMA, zero_3)
    tiny_runs.load(path, EMA, zero_3.replace("3}", "2}"))


def test_a_callback_twice_is_refused(path) -> None:
    with pytest.raises(ConfigError, match="callbacks: ema"):
        tiny_runs.load(path, "finetune.callbacks=[{kind: ema}, {kind: ema, decay: 0.9}]")
    with pytest.raises(ConfigError, match=r"plant\.callbacks\.0\.kind: 'emma'.*'ema'"):
        tiny_runs.load(path, "plant.callbacks=[{kind: emma}]")


def test_the_profiler_writes_a_trace(path) -> None:
    profiler = "callbacks=[{kind: profiler}]"
    root = train(path, "profiled", f"finetune.{profiler}", "finetune.phases=[{epochs: 3}]")
    (trace,) = (root / "profile").iterdir()
    assert trace.name == "finetune_steps_11-13.json"
    assert any("aten::" in event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"])


def test_a_stage_that_ends_early_leaves_the_trace_of_what_there_was(tmp_path) -> None:
    profiler = Profiler(context(tmp_path))
    for step in range(SKIPPED_STEPS + 1):
        profiler.before_step(Position(step=20 + step))
        torch.ones(3).sum()
        profiler.after_step(Position(step=21 + step))
    assert not (tmp_path / "profile").exists()
    profiler.end()
    profiler.end()
    assert [file.name for file in (tmp_path / "profile").iterdir()] == ["finetune_steps_31-31.json"]


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
    point = importlib.metadata.EntryPoint("recorder", f"{__name__}:RecorderConfig", "xmtc.callbacks")
    monkeypatch.setattr(members, "entry_points", lambda group: (point,) if group == point.group else ())
    monkeypatch.setattr(importlib.metadata.EntryPoint, "load", lambda self: RecorderConfig)
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
    config = replace(config, finetune=replace(config.finetune, callbacks=(RecorderConfig(),)))
    loaded = tiny_runs.load(path, "finetune.callbacks=[{kind: recorder}]")
    assert loaded.finetune.callbacks == config.finetune.callbacks
    root = train_stage(config)
    assert [call.split(" of")[0] for call in CALLS] == ["phase", *(f"step {i}" for i in range(1, 6)), "end"]
    assert (root / "checkpoints" / "step_00000005" / "recorder.txt").read_text() == "6"
