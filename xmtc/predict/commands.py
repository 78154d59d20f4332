"""`xmtc predict`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.arguments import check_unused, local_path
from xmtc.commands.family import command
from xmtc.commands.options import (
    Exclude,
    IdColumn,
    Include,
    LongestDocument,
    ModelDir,
    TextColumn,
)


@command(panel="Use")
def predict(
    model: ModelDir,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", "-t", help="A text to label; repeatable."),
    ] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            parser=local_path,
            help="JSON lines, CSV or Parquet, or one text per line; - for stdin.",
        ),
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            min=1,
            help="Labels to print \\[default: the predicted ones and the 5 best].",
        ),
    ] = None,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Print what supports each label: words, its name, and training documents.",
        ),
    ] = False,
    include: Include = None,
    exclude: Exclude = None,
    language: Annotated[
        str | None,
        typer.Option("--language", help="Language of the names, such as de."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="Write a CSV file instead, with a row for each label of each text; - for stdout.",
        ),
    ] = None,
) -> None:
    """Label a few texts: print the best labels as JSON lines, and which of them are predicted."""
    from xmtc.artefact.info import read_description
    from xmtc.score.inputs import text_columns
    from xmtc.score.shell import is_table, predict_texts, read_labels, texts_to_predict

    if not text and input_file is None:
        raise typer.BadParameter("give --text or --input")
    if table is not None and evidence:
        raise typer.BadParameter("--csv holds no evidence: leave out one of the two")
    check_unused(
        None if input_file and is_table(input_file) else "no table is read",
        text_column=text_column,
        id=id_column,
    )
    check_unused(
        None if input_file else "no file is read", longest_document=longest_document
    )
    trained_on = read_description(model).columns
    columns = text_columns(text_column, id_column, trained_on, longest_document)
    predict_texts(
        model,
        text or [],
        texts_to_predict(input_file, columns, trained_on) if input_file else [],
        longest_document=columns.longest_document,
        top_k=top_k,
        evidence=evidence,
        language=language,
        include=read_labels(include),
        exclude=read_labels(exclude) or (),
        table=table,
    )
