"""The metrics of a run: metrics.jsonl, step line and bar on the console, and the sinks. Only rank 0 writes."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from typing_extensions import override

from xmtc.config.plain import redacted
from xmtc.errors import ConfigError, DataError
from xmtc.files import read_file, reading, write_text
from xmtc.track.config import METRICS_LOG, TrackConfig
from xmtc.track.console import print_line, step_line
from xmtc.track.progress import ConsoleTask, Progress
from xmtc.track.sinks import RunInfo, Sink


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line, flushed line by line, so a kill loses at most the line in writing."""

    def __init__(self, path: Path):
        self.path = path
        self.last_time_s = max(
            (float(record["time_s"]) for record in read_metrics(path)), default=0.0
        )
        self._rewrite(lambda record: True)
        self._file = path.open("a", encoding="utf-8")

    def drop(self, stage: str, beyond_step: int) -> None:
        """Take out the records of `stage` with a greater step (with `beyond_step` 0, all of them)."""

        def stays(record: dict[str, Any]) -> bool:
            if record["stage"] != stage:
                return True
            return beyond_step > 0 and record["step"] <= beyond_step

        self._file.close()
        self._rewrite(stays)
        self._file = self.path.open("a", encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record."""
        self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rewrite(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Keep the records that `keep` accepts, and no torn last line; the file is replaced whole."""
        lines = [
            json.dumps(record) + "\n"
            for record in read_metrics(self.path)
            if keep(record)
        ]
        write_text(self.path, "".join(lines))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the records of a metrics.jsonl, in order, without a last line torn by a kill; empty if it is absent.

    Raises:
        DataError: a line other than the last is not a record; names the line.
    """
    if not os.path.lexists(path):
        return []
    with reading(path, fix="copy it again, or move it away"):
        lines = read_file(path).decode().split("\n")
    records = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
            is_record = _is_record(record)
        except (ValueError, RecursionError, OverflowError) as error:
            raise DataError(
                f"{path}:{number}: not a JSON record; take the line out"
            ) from error
        if not is_record:
            raise DataError(
                f"{path}:{number}: a record needs stage, step and time_s, and finite numbers; take the line out"
            )
        records.append(record)
    return records


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or not {"step", "time_s"} <= record.keys():
        return False
    numbers = [
        value
        for key, value in record.items()
        if key != "stage" and value is not None  # null: was not finite
    ]
    return (
        isinstance(record.get("stage"), str)
        and isinstance(record["step"], int)
        and all(isinstance(value, int | float) for value in numbers)
        and all(map(math.isfinite, numbers))
    )


def check_sinks(
    run_dir: Path, config: TrackConfig, settings: Mapping[str, Any]
) -> None:
    """Open every sink and close it, while nothing is lost if one cannot be opened.

    Raises:
        ConfigError: one cannot.
    """
    run = RunInfo(run_dir, redacted(dict(settings)))
    for sink in config.sinks:
        print_line(f"track.sinks: trying {sink.kind}")
        failure = _failure(sink.kind, lambda sink=sink: sink.open(run).close())
        if failure is not None:
            raise ConfigError(f"{failure}; correct it, or take the sink out")


def _failure(kind: str, call: Callable[[], object]) -> str | None:
    """Call a sink. Return what failed, if anything."""
    try:
        call()
    except Exception as error:  # the library has no error class: each has its own, and those of its transport
        words = " ".join(str(error).split())
        return redacted(f"track.sinks: {kind}: {type(error).__name__}: {words}")
    return None


@dataclass(frozen=True)
class _StageProgress:
    """A stage that this process works at.

    Attributes:
        total_steps: how many steps it has, if that is known.
        first_step: the step after which this process began.
        started_s: when it began, by the clock of the tracker.
    """

    total_steps: int | None
    first_step: int
    started_s: float


class Tracker(AbstractContextManager["Tracker"]):
    """Takes the metrics of a run. Make one in every process; on ranks other than 0 it does nothing.

    Args:
        run_dir: the run directory; created if it does not exist.
        config: the `track` section.
        rank: this process's rank.
        settings: the resolved configuration as plain data, for the sinks.
        console: for the step line and, on a terminal, a bar; the shared console on stderr by default.
        clock: seconds, monotonic; for tests.
    """

    def __init__(
        self,
        run_dir: Path,
        config: TrackConfig,
        rank: int = 0,
        *,
        settings: Mapping[str, Any] | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.config = config
        self._active = rank == 0
        self._console = console
        self._clock = clock
        self._progress = Progress(console=console)
        self._bar: ConsoleTask | None = None
        self._stages: dict[str, _StageProgress] = {}
        if not self._active:
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        run = RunInfo(run_dir, redacted(dict(settings or {})))
        self._sinks: list[tuple[str, Sink]] = []
        for sink in config.sinks:
            self._works(
                sink.kind,
                lambda sink=sink: self._sinks.append((sink.kind, sink.open(run))),
            )
        self._log = MetricsLog(run_dir / METRICS_LOG)
        self._zero_s = clock() - self._log.last_time_s

    def start_stage(
        self, stage: str, total_steps: int | None = None, resumed_step: int = 0
    ) -> None:
        """Begin a stage (`resumed_step` 0), or continue it and drop what was logged after `resumed_step`."""
        if not self._active:
            return
        self._stages[stage] = _StageProgress(total_steps, resumed_step, self._clock())
        self._close_bar()
        # Only on a terminal; in a log, step lines show the progress.
        self._bar = self._progress.task(
            stage, total_steps, "steps", done=resumed_step, lines=False
        )
        self._log.drop(stage, resumed_step)
        self._tell(lambda sink: sink.start_stage(stage, resumed_step))

    def due(self, step: int) -> bool:
        """Whether `step` (from 1) is one to log: every `log_every_steps`-th, and the first."""
        return step == 1 or step % self.config.log_every_steps == 0

    def log(
        self, stage: str, step: int, metrics: Mapping[str, float], *, line: bool = True
    ) -> None:
        """Record the metrics of a step, named `group/name`; `line=False` leaves the console out.

        A value that is not finite is written as null, which JSON can hold, and does not go to the sinks.
        """
        if not self._active:
            return
        if stage not in self._stages:
            self.start_stage(stage)
        finite = {
            name: float(value)
            for name, value in metrics.items()
            if math.isfinite(value)
        }
        record = {
            "stage": stage,
            "step": step,
            "time_s": round(self._clock() - self._zero_s, 3),
        }
        self._log.append({**record, **{name: finite.get(name) for name in metrics}})
        self._tell(lambda sink: sink.log(stage, step, finite))
        if self._bar is not None:
            self._bar.reach(step)
        if line:
            progress = self._stages[stage]
            text = step_line(
                stage, step, progress.total_steps, metrics, self._eta_s(progress, step)
            )
            print_line(text, self._console)

    def _eta_s(self, progress: _StageProgress, step: int) -> float | None:
        """Estimate the seconds until the end of a stage; None if nobody can know."""
        if progress.total_steps is None or step <= progress.first_step:
            return None
        seconds_per_step = (self._clock() - progress.started_s) / (
            step - progress.first_step
        )
        return seconds_per_step * (progress.total_steps - step)

    def _tell(self, call: Callable[[Sink], object]) -> None:
        """Call every sink. One that fails gets nothing more: a server that is away must not end hours of training."""
        working: list[tuple[str, Sink]] = []
        for kind, sink in self._sinks:
            if self._works(kind, lambda sink=sink: call(sink)):
                working.append((kind, sink))
        self._sinks = working

    def _works(self, kind: str, call: Callable[[], object]) -> bool:
        """Call a sink, and say it if that fails."""
        failure = _failure(kind, call)
        if failure is None:
            return True
        print_line(
            f"warning: {failure}; the run goes on without it, and {METRICS_LOG} has all metrics",
            self._console,
        )
        return False

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def close(self) -> None:
        """Close the log and every sink, whatever one of them raises."""
        if not self._active:
            return
        with ExitStack() as stack:
            stack.callback(self._close_bar)
            stack.callback(self._log.close)
            stack.callback(self._tell, lambda sink: sink.close())

    @override
    def __exit__(self, *error: object) -> None:
        self.close()
