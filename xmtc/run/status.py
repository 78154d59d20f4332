"""`xmtc status`: where a run stands, from its small files alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from xmtc.errors import DataError
from xmtc.run.directory import RunDirectory, Stage
from xmtc.run.state import StageRecord, read_run
from xmtc.track.console import duration, printable
from xmtc.track.tracker import read_metrics

_MAX_METRICS = 6


def print_status(run: Path) -> None:
    """Print where a run stands: its stages, the last metrics of each, and its checkpoints.

    Raises:
        DataError: the directory holds no run.
    """
    record = read_run(run)
    if record is None:
        raise DataError(f"{run}: no run there (no run.json); give a directory such as runs/quickstart")
    console, files = Console(), RunDirectory(run)
    started = "once" if len(record.sessions) == 1 else f"{len(record.sessions)} times"
    console.print(f"[bold]{run}[/] · started {started} · updated {record.updated_at}")
    last = {entry["stage"]: entry for entry in read_metrics(files.metrics_log)}
    for name, stage in record.stages.items():
        for line in _stage_lines(name, stage, last.get(name)):
            console.print(printable(line), markup=False)
    for directory in map(files.checkpoints_of, (Stage.PLANT, Stage.FINETUNE)):
        saved = sorted(directory.glob("step_*")) if directory.is_dir() else []
        if saved:
            console.print(f"  last checkpoint: {saved[-1]}")


def _stage_lines(name: str, stage: StageRecord, last: Mapping[str, Any] | None) -> Iterator[str]:
    """Describe the state of a stage, and its last metrics if it logs any."""
    seconds = f" in {duration(stage.seconds)}" if stage.seconds is not None else ""
    yield f"  {name:9} {stage.state}{seconds}{f': {stage.error}' if stage.error else ''}"
    if last is not None:
        facts = {key: value for key, value in last.items() if isinstance(value, float) and key != "time_s"}
        shown = ", ".join(f"{key} {value:.4g}" for key, value in list(facts.items())[:_MAX_METRICS])
        yield f"            step {last['step']}: {shown}"
