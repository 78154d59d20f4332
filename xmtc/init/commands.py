"""`xmtc init`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.family import command
from xmtc.commands.options import (
    Accept,
    AddedFiles,
    DataId,
    DataLabels,
    DataText,
    LabelSeparator,
    SplitColumn,
    TaskOption,
)


@command(panel="Train")
def init(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="Table (CSV, TSV, JSON lines or Parquet), export of another tool, folder of such files, or URI.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="How the files are written, such as data.source.quoting=none.",
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Time that training may take, such as 10m or 1h30m.")
    ] = "1h",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="YAML file to write \\[default: NAME.yaml]."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the run \\[default: that of the YAML file]."),
    ] = None,
    text: DataText = None,
    labels: DataLabels = None,
    label_separator: LabelSeparator = None,
    accept: Accept = None,
    doc_id: DataId = None,
    split_column: SplitColumn = None,
    task: TaskOption = None,
    add: AddedFiles = None,
) -> None:
    """Inspect data and machine, and write a configuration that fits a time budget."""
    from xmtc.init.answers import Answers
    from xmtc.init.command import write_config

    answers = Answers(
        text=text or (),
        labels=labels,
        id=doc_id,
        split_column=split_column,
        label_separator=label_separator,
        accept=accept,
        task=task,
        add=add or (),
        overrides=overrides or (),
    )
    write_config(data, answers, budget=budget, name=name, output=output)
