"""Evaluation and reports from files alone: runs, or any system's predictions."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from xmtc.config.load import load_config
from xmtc.config.run_state import CONFIG_FILE, read_run
from xmtc.config.schema import RunConfig
from xmtc.errors import DataError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.files import evaluate_files
from xmtc.evaluate.report.run_results import RunResults
from xmtc.evaluate.report.write import write_report
from xmtc.evaluate.summary import summary_table
from xmtc.orchestrate.paths import RunPaths
from xmtc.track.console import duration
from xmtc.track.tracker import METRICS_FILE, read_metrics


def print_status(run: Path) -> None:
    """Print where a run stands: its stages, the last metrics of each, and its checkpoints.

    Raises:
        DataError: there is no run in that directory.
    """
    record = read_run(run)
    if record is None:
        raise DataError(f"{run}: no run there (no run.json); give a directory such as runs/quickstart")
    console = Console()
    console.print(f"[bold]{run}[/] · started {len(record.sessions)} times · updated {record.updated_at}")
    last = {entry["stage"]: entry for entry in read_metrics(run / METRICS_FILE)}
    for name, stage in record.stages.items():
        seconds = f" in {duration(stage.seconds)}" if stage.seconds is not None else ""
        console.print(f"  {name:9} {stage.state}{seconds}{f': {stage.error}' if stage.error else ''}")
        if name in last:
            facts = {k: v for k, v in last[name].items() if isinstance(v, float) and k != "time_s"}
            shown = ", ".join(f"{key} {value:.4g}" for key, value in list(facts.items())[:6])
            console.print(f"            step {last[name]['step']}: {shown}")
    for directory in (run / "plant" / "checkpoints", run / "checkpoints"):
        saved = sorted(directory.glob("step_*")) if directory.is_dir() else []
        if saved:
            console.print(f"  last checkpoint: {saved[-1]}")


def report_runs(runs: Sequence[Path], output: Path, split: str | None = None) -> None:
    """Write one self-contained page about runs (or folders that `xmtc evaluate` wrote); several are compared.

    Args:
        runs: run directories.
        output: HTML file.
        split: dev or test; test where a run has it when absent.

    Raises:
        DataError: a run has no evaluation yet.
    """
    write_report([RunResults.load(run, split) for run in runs], output)


def evaluate_predictions(predictions: Path, gold: Path, split: str, output: Path) -> None:
    """Measure any system's predictions file against a corpus; print the table, write metrics and report."""
    evaluation = evaluate_files(predictions, gold, split, output, EvaluateConfig())
    report_runs([output], output / "report.html")
    Console().print(summary_table(evaluation.metrics, f"{predictions}: {split}"))
    print(f"report: {output / 'report.html'}")


def evaluate_run(run: Path) -> None:
    """Measure a run's saved predictions again, as after a change of its `evaluate` section, at its tuned threshold.

    Areas under the curve need every score and are not in the new metrics: they come with training alone.

    Raises:
        DataError: there are no predictions in the run.
    """
    config = load_config(RunConfig, run / CONFIG_FILE, [])
    found = sorted(path.parent for path in run.glob("eval/*/predictions.parquet"))
    if not found:
        raise DataError(f"{run}: no predictions there (eval/*/predictions.parquet); train first")
    for folder in found:
        before = RunResults.load(run, folder.name)
        threshold = before.metrics.get("threshold")
        corpus = RunPaths.of(config).corpus
        evaluation = evaluate_files(
            folder / "predictions.parquet", corpus, folder.name, folder, config.evaluate, threshold
        )
        report_runs([run], folder / "report.html", folder.name)
        Console().print(summary_table(evaluation.metrics, f"{run.name}: {folder.name}"))
