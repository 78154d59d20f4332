"""metrics.jsonl, the step line and the sinks."""

import io
import json
import re
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event

from xmtc.config.load import load_config
from xmtc.errors import ConfigError, DataError
from xmtc.track.config import TrackConfig
from xmtc.track.sinks import MlflowConfig, TensorBoardConfig, WandbConfig
from xmtc.track.tracker import Tracker, check_sinks, read_metrics


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=60)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def records(run_dir: Path) -> list[tuple[str, int]]:
    return [
        (record["stage"], record["step"])
        for record in read_metrics(run_dir / "metrics.jsonl")
    ]


def test_records_are_flushed_and_time_continues_after_a_resume(
    tmp_path: Path, console: Console
) -> None:
    clock = Clock()
    tracker = Tracker(tmp_path, TrackConfig(), console=console, clock=clock)
    tracker.start_stage("plant", 10)
    clock.now += 5
    tracker.log("plant", 1, {"train/loss": 0.5, "train/lr": 1e-3})
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {
            "stage": "plant",
            "step": 1,
            "time_s": 5.0,
            "train/loss": 0.5,
            "train/lr": 1e-3,
        }
    ]
    tracker.close()
    with Tracker(tmp_path, TrackConfig(), console=console, clock=clock) as again:
        again.start_stage("plant", 10, resumed_step=1)
        clock.now += 2
        again.log("plant", 2, {"train/loss": 0.4})
    assert [
        record["time_s"] for record in read_metrics(tmp_path / "metrics.jsonl")
    ] == [5.0, 7.0]


def test_resume_drops_what_was_logged_beyond_the_checkpoint(
    tmp_path: Path, console: Console
) -> None:
    with Tracker(tmp_path, TrackConfig(), console=console) as tracker:
        for stage, step in [
            ("plant", 1),
            ("plant", 2),
            ("finetune", 1),
            ("finetune", 2),
            ("finetune", 3),
        ]:
            tracker.log(stage, step, {"train/loss": 1.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "finetune", "st')  # a kill in the middle of a line
    with Tracker(tmp_path, TrackConfig(), console=console) as tracker:
        assert records(tmp_path) == [
            ("plant", 1),
            ("plant", 2),
            ("finetune", 1),
            ("finetune", 2),
            ("finetune", 3),
        ]
        tracker.start_stage("finetune", 4, resumed_step=2)
        tracker.log("finetune", 3, {"train/loss": 0.9})
        assert records(tmp_path) == [
            ("plant", 1),
            ("plant", 2),
            ("finetune", 1),
            ("finetune", 2),
            ("finetune", 3),
        ]
        tracker.start_stage("finetune", 4)
        assert records(tmp_path) == [("plant", 1), ("plant", 2)]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_damaged_records_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    good = '{"stage": "a", "step": 1, "time_s": 0}\n'
    path.write_text(good + "oops\n" + good)
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: "):
        read_metrics(path)
    path.write_text(good + "[]\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2: .*stage, step and time_s"):
        read_metrics(path)
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_a_value_that_is_not_finite_becomes_null(
    tmp_path: Path, console: Console
) -> None:
    with Tracker(tmp_path, TrackConfig(), console=console) as tracker:
        tracker.log(
            "plant",
            1,
            {
                "train/loss": float("nan"),
                "train/grad_norm": float("inf"),
                "train/lr": 0.1,
            },
        )
    record = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (record["train/loss"], record["train/grad_norm"], record["train/lr"]) == (
        None,
        None,
        0.1,
    )
    assert "loss nan" in printed(console)[0]


def test_only_rank_0_writes(tmp_path: Path, console: Console) -> None:
    with Tracker(
        tmp_path / "run",
        TrackConfig(sinks=(TensorBoardConfig(),)),
        rank=1,
        console=console,
    ) as tracker:
        tracker.start_stage("plant", 3)
        tracker.log("plant", 1, {"train/loss": 1.0})
    assert not (tmp_path / "run").exists()
    assert printed(console) == []


def test_step_line_says_step_loss_rate_speed_and_eta(
    tmp_path: Path, console: Console
) -> None:
    clock = Clock()
    with Tracker(tmp_path, TrackConfig(), console=console, clock=clock) as tracker:
        tracker.start_stage("finetune", 500, resumed_step=100)
        clock.now += 20
        metrics = {
            "perf/tokens_per_s": 3100.2,
            "perf/docs_per_s": 12.34,
            "train/lr": 1e-4,
            "train/loss": 0.12345,
        }
        tracker.log(
            "finetune", 120, {**metrics, "mem/peak_gib": 2.04, "train/other": 3.0}
        )
        tracker.log("finetune", 120, {"dev/ndcg@5": 0.41234, "dev/micro_f1": 0.5})
        tracker.log("finetune", 130, metrics, line=False)
    assert printed(console) == [
        "finetune 120/500 (24%) | loss 0.1235 | lr 1.00e-04 | 12.3 docs/s | 3,100 tokens/s | 2.0 GiB | ETA 6:20",
        "finetune 120/500 (24%) | dev/ndcg@5 0.4123 | dev/micro_f1 0.5000 | ETA 6:20",
    ]


def test_a_terminal_gets_a_bar_a_stage_with_the_lines_above(tmp_path: Path) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Tracker(tmp_path, TrackConfig(), console=terminal) as tracker:
        tracker.start_stage("plant", 20)
        tracker.log("plant", 10, {"train/loss": 0.5})
        tracker.start_stage("finetune", 30, resumed_step=15)
        tracker.log("finetune", 30, {"train/loss": 0.25})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "\n".join(printed(terminal)))
    for words in (
        "10/20 steps",
        "15/30 steps",
        "30/30 steps",
        "plant 10/20 (50%) | loss 0.5000",
    ):
        assert words in shown
    assert printed(terminal)[-1].endswith("\x1b[?25h")


def test_due_steps() -> None:
    tracker = Tracker(Path("unused"), TrackConfig(log_every_steps=4), rank=1)
    assert [step for step in range(1, 13) if tracker.due(step)] == [1, 4, 8, 12]


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """The scalars in the event files of a folder, in the order written; steps that a resume hid are left out."""
    found: list[tuple[str, int, float]] = []
    for path in sorted(folder.glob("events.*")):
        for event in events(path.read_bytes()):
            if event.session_log.status == event.session_log.START:
                found = [scalar for scalar in found if scalar[1] < event.step]
            found += [
                (value.tag, event.step, value.simple_value)
                for value in event.summary.value
            ]
    return found


def events(data: bytes) -> Iterator[Any]:
    """TFRecord: length (8 bytes), its CRC (4), the record, its CRC (4)."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


def test_tensorboard_holds_the_metrics_and_hides_what_a_resume_repeats(
    tmp_path: Path, console: Console
) -> None:
    config = TrackConfig(sinks=(TensorBoardConfig(),))
    with Tracker(tmp_path, config, console=console) as tracker:
        tracker.start_stage("plant", 2)
        tracker.log(
            "plant",
            1,
            {"train/loss": 0.5, "dev/ndcg@5": 0.25, "train/bad": float("nan")},
        )
        tracker.start_stage("finetune", 3)
        for step in (1, 2, 3):
            tracker.log("finetune", step, {"train/loss": 1.0 / step})
    assert scalars(tmp_path / "tensorboard/plant") == [
        ("train/loss", 1, 0.5),
        ("dev/ndcg_at_5", 1, 0.25),
    ]
    first = [("train/loss", 1, 1.0), ("train/loss", 2, 0.5)]
    assert scalars(tmp_path / "tensorboard/finetune")[:2] == first
    # Event files are named by the second: a later start must sort after this one.
    for path in (tmp_path / "tensorboard/finetune").iterdir():
        path.rename(path.with_name("events.out.0"))
    with Tracker(tmp_path, config, console=console) as tracker:
        tracker.start_stage("finetune", 3, resumed_step=2)
        tracker.log("finetune", 3, {"train/loss": 0.125})
    assert scalars(tmp_path / "tensorboard/finetune") == [
        *first,
        ("train/loss", 3, 0.125),
    ]


class Recorder:
    """Takes any call; remembers its name and arguments."""

    def __init__(
        self, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]
    ) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments, keywords))
            if name == "get_experiment_by_name":
                return None
            if name == "create_run":
                return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
            return self

        return call


def fake(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    recorder = Recorder(calls)
    monkeypatch.setitem(
        sys.modules,
        module,
        types.SimpleNamespace(init=recorder.init, MlflowClient=recorder.client),
    )
    return calls


def test_wandb_gets_one_axis_a_stage(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake("wandb", monkeypatch)
    config = TrackConfig(sinks=(WandbConfig(mode="offline"),))
    with Tracker(
        tmp_path / "name", config, console=console, settings={"seed": 1}
    ) as tracker:
        tracker.log("plant", 3, {"train/loss": 0.5})
    assert [name for name, _, _ in calls] == [
        "init",
        "define_metric",
        "define_metric",
        "log",
        "finish",
    ]
    assert calls[0][2] | {"dir": ""} == {
        "project": "xmtc",
        "mode": "offline",
        "dir": "",
        "name": "name",
        "id": "name",
        "resume": "allow",
        "config": {"seed": 1},
    }
    assert calls[3][1] == ({"plant/step": 3, "plant/train/loss": 0.5},)


def test_a_sink_that_fails_ends_no_training(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ConnectionError("https://me:secret@there is away")

    run = types.SimpleNamespace(
        define_metric=lambda *_, **__: None, log=away, finish=away
    )
    module = types.SimpleNamespace(init=lambda **_: run)
    monkeypatch.setitem(sys.modules, "wandb", module)
    config = TrackConfig(sinks=(WandbConfig(), TensorBoardConfig()))
    with Tracker(tmp_path, config, console=console) as tracker:
        tracker.log("plant", 1, {"train/loss": 0.5})
        tracker.log("plant", 2, {"train/loss": 0.25})
    assert records(tmp_path) == [("plant", 1), ("plant", 2)]
    assert len(scalars(tmp_path / "tensorboard/plant")) == 2
    said = " ".join(printed(console))
    assert (
        said.count(
            "warning: track.sinks: wandb: ConnectionError: https://***@there is away"
        )
        == 1
    )
    monkeypatch.setattr(module, "init", away)
    with Tracker(tmp_path, config, console=console):
        pass
    with pytest.raises(
        ConfigError,
        match=r"track\.sinks: wandb: ConnectionError: https://\*\*\*@there is away",
    ):
        check_sinks(tmp_path, config, {})


def test_a_place_where_tensorboard_cannot_write_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tensorboard").touch()
    with pytest.raises(
        ConfigError, match=r"track\.sinks: tensorboard: FileExistsError: .*/tensorboard"
    ):
        check_sinks(tmp_path, TrackConfig(sinks=(TensorBoardConfig(),)), {})
    assert "track.sinks: trying tensorboard" in capsys.readouterr().err


def test_mlflow_resumes_the_same_run(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake("mlflow", monkeypatch)
    entities = types.SimpleNamespace(
        Metric=lambda key, value, _, step: (key, value, step)
    )
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    config = TrackConfig(sinks=(MlflowConfig(tracking_uri="sqlite:///x.db"),))
    for _ in range(2):
        with Tracker(
            tmp_path / "name",
            config,
            console=console,
            settings={"data": {"limit": None}},
        ) as tracker:
            tracker.log("plant", 3, {"dev/p@5": 0.5, "dev/r@5": 0.25})
    names = [name for name, _, _ in calls]
    assert names.count("create_run") == 1
    assert names.count("update_run") == 1
    assert ("log_param", ("r1", "data.limit", "None"), {}) in calls
    sent = [keywords for name, _, keywords in calls if name == "log_batch"]
    assert (
        sent
        == [{"metrics": [("plant/dev/p_at_5", 0.5, 3), ("plant/dev/r_at_5", 0.25, 3)]}]
        * 2
    )


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
def test_mlflow_for_real_where_it_is_installed(
    tmp_path: Path, console: Console
) -> None:
    mlflow = pytest.importorskip("mlflow", exc_type=ImportError)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    config = TrackConfig(sinks=(MlflowConfig(tracking_uri=uri),))
    for step in (1, 2):
        with Tracker(
            tmp_path / "name", config, console=console, settings={"seed": 1}
        ) as tracker:
            tracker.start_stage("plant", 2, resumed_step=step - 1)
            tracker.log("plant", step, {"train/loss": 1 / step})
    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("xmtc").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params) == (
        "name",
        "FINISHED",
        {"seed": "1"},
    )
    history = client.get_metric_history(run.info.run_id, "plant/train/loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5)]


def test_the_section_loads_with_its_sinks(tmp_path: Path) -> None:
    path = tmp_path / "track.yaml"
    path.write_text(
        "sinks: [{kind: tensorboard}, {kind: wandb, project: p}]\nresume: must\n"
    )
    config = load_config(TrackConfig, path)
    assert config.sinks == (TensorBoardConfig(), WandbConfig(project="p"))
    with pytest.raises(
        ConfigError, match=r"resume: .perhaps.: must be .auto., .never. or .must."
    ):
        load_config(TrackConfig, path, ["resume=perhaps"])
