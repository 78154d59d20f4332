"""`xmtc init`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from xmtc.commands.family import command


@command(panel="Train")
def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Table (CSV, TSV, JSON lines or Parquet), folder of tables, or URI.",
        ),
    ],
    budget: Annotated[
        str, typer.Option(help="Time that training may take, such as 10m or 1h30m.")
    ] = "1h",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="YAML file to write \\[default: NAME.yaml]."
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Text column; repeat to join several.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Column with the labels.")] = None,
    label_separator: Annotated[
        str | None,
        typer.Option(
            help="Separator of the labels in a cell; '' if a cell holds one label."
        ),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Read only documents with this value, such as answer=accept; or all.",
        ),
    ] = None,
    doc_id: Annotated[
        str | None, typer.Option("--id", help="Column with identifiers.")
    ] = None,
    split_column: Annotated[
        str | None, typer.Option(help="Column with train, dev or test.")
    ] = None,
    task: Annotated[
        Literal["multi_label", "single_label"] | None,
        typer.Option(help="multi_label or single_label."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the run \\[default: that of the file].")
    ] = None,
) -> None:
    """Inspect data and machine, and write a configuration that fits a time budget."""
    from xmtc.init.command import write_config
    from xmtc.init.roles import Answers

    answers = Answers(
        text=text or (),
        labels=labels,
        id=doc_id,
        split_column=split_column,
        label_separator=label_separator,
        accept=accept,
        task=task,
    )
    write_config(data, answers, budget=budget, name=name, output=output)
