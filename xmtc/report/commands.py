"""`xmtc evaluate` and `xmtc report`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.arguments import local_path
from xmtc.commands.family import command


@command(panel="Look")
def evaluate(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Run directory, such as runs/quickstart.")] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="A predictions.parquet of any system, or the output of xmtc score.")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help="Corpus directory with the correct labels.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the corpus to compare with \\[default: dev].")] = None,
    output: Annotated[Path | None, typer.Option(help="Directory to write metrics and report to.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Lowest score of a predicted label \\[default: tuned on these documents]."),
    ] = None,
) -> None:
    """Evaluate the predictions of a run again, or any predictions file against a corpus."""
    from xmtc.report.runs import evaluate_predictions, evaluate_run

    if (run is None) == (predictions is None):
        raise typer.BadParameter("give either RUN or --predictions with --gold")
    if run is not None and (gold, split, output, threshold) != (None, None, None, None):
        raise typer.BadParameter("--gold, --split, --output and --threshold work only with --predictions, not with RUN")
    if run is not None:
        evaluate_run(run)
    elif predictions is not None and gold is not None:
        folder = output or evaluation_folder(predictions)
        evaluate_predictions(predictions, gold, split or "dev", folder, threshold)
    else:
        raise typer.BadParameter("--predictions needs --gold CORPUS")


def evaluation_folder(predictions: Path) -> Path:
    """Return the folder for the evaluation of a predictions file: beside it, under its name without the ending."""
    if predictions.is_dir():
        return predictions.with_name(f"{predictions.name}_evaluation")
    return predictions.with_suffix("")


@command(panel="Look")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", parser=local_path, help="Run directories or URIs; give several to compare."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="HTML file to write.")] = Path("report.html"),
    split: Annotated[str | None, typer.Option(help="dev or test \\[default: test if the run has it].")] = None,
) -> None:
    """Write a self-contained HTML report of one or several runs."""
    from xmtc.report.runs import report_runs

    report_runs(runs, output, split)
    print(f"report: {output}")
