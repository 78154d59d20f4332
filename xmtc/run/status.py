"""`xmtc status`: where a run stands, from its small files alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from xmtc.artefact.unfinished import similar_run
from xmtc.errors import DataError
from xmtc.evaluate.metrics import summary_metrics, task_of
from xmtc.evaluate.summary import in_words, percent
from xmtc.files import read_json, reading
from xmtc.run.directory import RunDirectory, Stage
from xmtc.run.state import RunRecord, read_run, writer_of
from xmtc.track.console import duration, print_line, printable
from xmtc.track.tracker import read_metrics

_MAX_METRICS = 6
_MEASURED = {
    str(Stage.PLANT): "attention alone",
    str(Stage.FINETUNE): "head alone, without the other scorers",
}
"""What the metrics are of that a stage logs on its way."""


def print_status(run: Path) -> None:
    """Print where a run stands: its stages, the last metrics of each, its checkpoints, and how good the model is.

    Raises:
        DataError: the directory holds no run.
    """
    record = read_run(run)
    if record is None:
        raise DataError(
            f"{run}: no run there (no run.json, which a run writes once its data and configuration are looked at); "
            f"{similar_run(run)}give a directory such as runs/quickstart"
        )
    console, files = Console(), RunDirectory(run)
    started = "once" if len(record.sessions) == 1 else f"{len(record.sessions)} times"
    heading = f" · started {started} · updated {record.updated_at}"
    console.print(Text.assemble((printable(str(run)), "bold"), heading), soft_wrap=True)
    if not record.finished:
        print_line(f"  {_writer(run)}", console)
    log = read_metrics(files.metrics_log)
    for name in record.stages:
        for line in _stage_lines(name, record, log):
            print_line(line, console)
    for directory in map(files.checkpoints_of, (Stage.PLANT, Stage.FINETUNE)):
        if saved := sorted(directory.glob("step_*")):
            print_line(f"  last checkpoint: {saved[-1]}", console)
    evaluation = record.stages.get(Stage.EVALUATE)
    if evaluation is not None and evaluation.state == "done":
        for split in files.evaluated():
            with reading(files.metrics(split), fix="evaluate the run again"):
                line = _final_line(split, read_json(files.metrics(split)))
            print_line(line, console)


def _final_line(split: str, metrics: Mapping[str, Any]) -> str:
    """Describe how good the finished model is on a split."""
    shown = ", ".join(
        f"{metric.title} {percent(metrics[metric.name])} %"
        for metric in summary_metrics(task_of(metrics))[:_MAX_METRICS]
    )
    return f"  the finished model on {split}: {shown}"


def _writer(run: Path) -> str:
    """Say whether a process writes an unfinished run."""
    if not (writer := writer_of(run)):
        return "no process on this machine writes it now; start it again to continue"
    return f"{writer} writes it"


def seconds_of(
    name: str, record: RunRecord | None, log: Sequence[Mapping[str, Any]]
) -> float | None:
    """Return the seconds of a stage, over its interruptions; None before it ended.

    The stage's record covers only the last session. The clock of `metrics.jsonl` (`log`) continues from session to
    session, but leaves out what comes before the first step.
    """
    stage = record.stages.get(name) if record else None
    if stage is None or stage.seconds is None:
        return None
    ends_s = {entry["stage"]: float(entry["time_s"]) for entry in log}
    end_s = ends_s.get(name, 0.0)
    return max(
        stage.seconds,
        end_s - max((one for one in ends_s.values() if one < end_s), default=0.0),
    )


def _stage_lines(
    name: str, record: RunRecord, log: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Describe the state of a stage, and its last metrics if it logs any."""
    stage, seconds = record.stages[name], seconds_of(name, record, log)
    time = "" if seconds is None else f" in {duration(seconds)}"
    yield f"  {name:9} {stage.state}{time}{f': {stage.error}' if stage.error else ''}"
    if last := next((entry for entry in reversed(log) if entry["stage"] == name), None):
        facts = {
            key: value
            for key, value in last.items()
            if isinstance(value, float) and key != "time_s"
        }
        shown = ", ".join(
            in_words(key.removeprefix("dev/"), value)
            for key, value in list(facts.items())[:_MAX_METRICS]
        )
        measured = f", {_MEASURED[name]}" if name in _MEASURED else ""
        yield f"            step {last['step']}{measured}: {shown}"
