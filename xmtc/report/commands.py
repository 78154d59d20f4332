"""`xmtc evaluate`, `xmtc report`, `xmtc ablate` and `xmtc explain`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from xmtc.commands.arguments import check_unused, local_path, read_documents
from xmtc.commands.family import command
from xmtc.commands.options import IdColumn, LongestDocument, ModelDir, TextColumn
from xmtc.evaluate.layout import REPORT
from xmtc.storage.config import is_remote


@command(panel="Look")
def evaluate(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="Run directory, such as runs/quickstart."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="A predictions.parquet of any system, or the output of xmtc score."
        ),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Corpus directory with the correct labels.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Split of the corpus to compare with \\[default: dev]."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Directory to write metrics and report to.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Lowest score of a predicted label \\[default: tuned on these documents].",
        ),
    ] = None,
) -> None:
    """Evaluate the predictions of a run again, or any predictions file against a corpus."""
    from xmtc.report.runs import evaluate_predictions, evaluate_run

    if (run is None) == (predictions is None):
        raise typer.BadParameter("give either RUN or --predictions with --gold")
    if run is not None and (gold, split, output, threshold) != (None, None, None, None):
        raise typer.BadParameter(
            "--gold, --split, --output and --threshold work only with --predictions, not with RUN"
        )
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
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Run directories or URIs; give several to compare.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="HTML file to write \\[default: that of the run; for several runs, or a URI, report.html here].",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="dev or test \\[default: test if the run has it]."),
    ] = None,
) -> None:
    """Write a self-contained HTML report of one or several runs."""
    from xmtc.report.run_results import evaluation_folder_of
    from xmtc.report.runs import report_runs

    folders = [local_path(run) for run in runs]
    if output is None and len(runs) == 1 and not is_remote(runs[0]):
        output = evaluation_folder_of(folders[0], split) / REPORT
    output = output or Path(REPORT).absolute()
    report_runs(folders, output, split)
    print(f"report: {output}")


@command(panel="Use")
def explain(
    model: ModelDir,
    text: Annotated[
        str | None, typer.Option("--text", "-t", help="The text to explain.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Files that contain the document."),
    ] = None,
    doc_id: Annotated[
        str | None, typer.Option(help="Identifier of the document to explain.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="Also explain this label; repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="HTML page to write, with the text."),
    ] = None,
    top_k: Annotated[
        int, typer.Option(min=0, help="How many predicted labels to explain.")
    ] = 5,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
) -> None:
    """Show exactly what each word adds to the logit of a label, and where the attention looks."""
    from xmtc.predict.predictor import Model
    from xmtc.report.evidence import explain_text, print_sections, write_page
    from xmtc.score.inputs import find_document

    is_text = text is not None and not inputs and doc_id is None
    is_document = text is None and bool(inputs) and doc_id is not None
    if not is_text and not is_document:
        raise typer.BadParameter("give either --text, or --input with --doc-id")
    check_unused(
        None if inputs else "no file is read",
        text_column=text_column,
        id=id_column,
        longest_document=longest_document,
    )
    if not top_k and not label:
        raise typer.BadParameter(
            "--top-k 0 leaves nothing to explain: name labels by --label"
        )
    if text is None:
        text = find_document(
            read_documents(
                model, inputs or [], text_column, id_column, longest_document
            ),
            doc_id or "",
        )
    loaded = Model.from_pretrained(model)
    loaded.scorer.longest_document = max(len(text), loaded.scorer.longest_document)
    sections = explain_text(loaded, text, label or [], top_k)
    if output is not None:
        write_page(output, sections, title=doc_id or "a text", model=str(model))
    print_sections(sections, Console())


@command(panel="Look")
def ablate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            parser=local_path,
            help="Run directory or URI of a run with scorers.",
        ),
    ],
) -> None:
    """Print what each scorer of a run adds and costs, and the configuration without those that add nothing."""
    from xmtc.run.directory import RunPaths
    from xmtc.stages.ablate import ablate as ablate_run
    from xmtc.stages.ablate import configuration_of
    from xmtc.stages.ablate_table import print_ablation

    config = configuration_of(run)
    print_ablation(config, ablate_run(config, RunPaths.of(config)))
