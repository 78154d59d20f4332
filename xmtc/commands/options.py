"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from xmtc.commands.arguments import local_model, new_page
from xmtc.data.readers.base import LONGEST_DOCUMENT, MOST_CHARACTERS

_MODEL = "Model or run (runs/quickstart), URI, or owner/name on the Hub."
ModelDir = Annotated[
    Path, typer.Argument(metavar="MODEL", parser=local_model, help=_MODEL)
]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]

ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="YAML file, such as configs/quickstart.yaml."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Overrides, such as finetune.batch_size=16 data.limit.train=2000.",
    ),
]
PrintConfig = Annotated[
    bool,
    typer.Option("--print-config", help="Print the resolved configuration and exit."),
]

TextColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--text-column",
        help="Column with text; repeat to join several \\[default: as in training].",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Column with identifiers \\[default: as in training, or file and row].",
    ),
]

LongestDocument = Annotated[
    int | None,
    typer.Option(
        "--longest-document",
        min=1,
        max=MOST_CHARACTERS,
        help=f"Maximum number of characters of a document in a file \\[default: {LONGEST_DOCUMENT:,}].",
    ),
]

_DATA = "Data"
"""Heading of the options by which `init` is told what it cannot infer."""
DataText = Annotated[
    list[str] | None,
    typer.Option(
        "--text", help="Text column; repeat to join several.", rich_help_panel=_DATA
    ),
]
DataLabels = Annotated[
    str | None,
    typer.Option("--labels", help="Column with the labels.", rich_help_panel=_DATA),
]
LabelSeparator = Annotated[
    str | None,
    typer.Option(
        help="Separator of the labels in a cell; '' if a cell holds one label.",
        rich_help_panel=_DATA,
    ),
]
Accept = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Read only documents with this value, such as answer=accept; or all.",
        rich_help_panel=_DATA,
    ),
]
DataId = Annotated[
    str | None,
    typer.Option("--id", help="Column with identifiers.", rich_help_panel=_DATA),
]
SplitColumn = Annotated[
    str | None,
    typer.Option(help="Column with train, dev or test.", rich_help_panel=_DATA),
]
TaskOption = Annotated[
    Literal["multi_label", "single_label"] | None,
    typer.Option("--task", help="multi_label or single_label.", rich_help_panel=_DATA),
]
AddedFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--add",
        metavar="FILE",
        help="More training documents, of any format, none of them for dev or test; repeatable.",
        rich_help_panel=_DATA,
    ),
]

Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
Precision = Annotated[
    Literal["auto", "bf16", "fp32"],
    typer.Option(
        help="auto (bf16 on GPUs, and on CPUs made for it), bf16, or fp32, as xmtc predict has on CPUs."
    ),
]

_LABELS = "a label, branch:LABEL with everything beneath it, or @FILE with one per line; repeatable"
Include = Annotated[
    list[str] | None,
    typer.Option("--include", metavar="LABEL", help=f"Only these: {_LABELS}."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="LABEL", help=f"Not these: {_LABELS}."),
]

PageFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        callback=new_page,
        help="HTML page to write, with its tables beside it.",
    ),
]
AtMost = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE", help="Exit with code 1 beyond this, such as 2% or 0.02."
    ),
]
