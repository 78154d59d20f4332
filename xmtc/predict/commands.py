"""`xmtc predict` and `xmtc explain`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from xmtc.commands.arguments import check_columns, local_path, read_documents
from xmtc.commands.family import command
from xmtc.commands.options import Exclude, IdColumn, Include, ModelDir, TextColumn


@command(panel="Use")
def predict(
    model: ModelDir,
    text: Annotated[list[str] | None, typer.Option("--text", "-t", help="A text to label; repeatable.")] = None,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input", parser=local_path, help="JSON lines, CSV or Parquet, or one text per line; - for stdin."
        ),
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=1, help="Labels to print \\[default: the predicted ones and the 5 best]."),
    ] = None,
    evidence: Annotated[bool, typer.Option("--evidence", help="Print the words that support each label.")] = False,
    include: Include = None,
    exclude: Exclude = None,
    language: Annotated[str | None, typer.Option("--language", help="Language of the names, such as de.")] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", help="Write a CSV file instead, with a row for each label of each text.")
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
    check_columns(text_column, id_column, unread=None if input_file and is_table(input_file) else "no table is read")
    trained_on = read_description(model).columns
    columns = text_columns(text_column, id_column, trained_on)
    predict_texts(
        model,
        text or [],
        texts_to_predict(input_file, columns, trained_on) if input_file else [],
        top_k=top_k,
        evidence=evidence,
        language=language,
        include=read_labels(include),
        exclude=read_labels(exclude) or (),
        table=table,
    )


@command(panel="Use")
def explain(
    model: ModelDir,
    text: Annotated[str | None, typer.Option("--text", "-t", help="The text to explain.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="Files that contain the document.")] = None,
    doc_id: Annotated[str | None, typer.Option(help="Identifier of the document to explain.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="Also explain this label; repeatable.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="HTML page to write, with the text.")] = None,
    top_k: Annotated[int, typer.Option(min=0, help="How many predicted labels to explain.")] = 5,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Show exactly what each word adds to the logit of a label, and where the attention looks."""
    from xmtc.predict.evidence_page import explain_text, print_sections, write_page
    from xmtc.predict.predictor import Model
    from xmtc.score.inputs import find_document

    is_text = text is not None and not inputs and doc_id is None
    is_document = text is None and bool(inputs) and doc_id is not None
    if not is_text and not is_document:
        raise typer.BadParameter("give either --text, or --input with --doc-id")
    check_columns(text_column, id_column, unread=None if inputs else "no table is read")
    if not top_k and not label:
        raise typer.BadParameter("--top-k 0 leaves nothing to explain: name labels by --label")
    if text is None:
        text = find_document(read_documents(model, inputs or [], text_column, id_column), doc_id or "")
    sections = explain_text(Model.from_pretrained(model), text, label or [], top_k)
    if output is not None:
        write_page(output, sections, title=doc_id or "a text", model=str(model))
    print_sections(sections, Console())
