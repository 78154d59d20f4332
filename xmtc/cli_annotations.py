"""`xmtc annotations`: what people decided, measured."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli_options import IdColumn, PageFile, TextColumn, check_columns, local_model, read_documents, split_inputs

annotations_app = typer.Typer(no_args_is_help=True, help="Measure what people decide about a model's suggestions.")


@annotations_app.command("report")
def annotations_report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations.")],
    output: PageFile = None,
) -> None:
    """Print what people accepted, always refused and keep adding, and how well they agree."""
    from xmtc.desk.watch.acceptance import acceptance_parts, read_annotations
    from xmtc.desk.watch.show import show

    lines = read_annotations(files)
    people, documents = len({line.by for line in lines if line.by is not None}), len({line.document for line in lines})
    facts = f"{len(lines):,} annotations of {documents:,} documents by {people or 'unknown'} people."
    show("Annotations", facts, acceptance_parts(lines), output)


@annotations_app.command("sample")
def annotations_sample(
    scored: Annotated[Path, typer.Argument(metavar="SCORED", help="Output of xmtc score --threshold tuned.")],
    model: Annotated[Path, typer.Option(parser=local_model, metavar="MODEL", help="The model that scored.")],
    size: Annotated[int, typer.Option(min=1, help="Number of documents.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON lines file to write.")],
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="Files that were scored; adds texts, for xmtc serve --queue.")
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Draw a sample to audit, stratified by expected quality and by the bin of the rarest label."""
    from xmtc.artefact.export import LABELS
    from xmtc.artefact.info import read_description
    from xmtc.data.labels import LabelTable
    from xmtc.data.readers import Document
    from xmtc.desk.watch.audit import check_inputs, draw, read_scores, write_sample
    from xmtc.score.inputs import input_files

    check_columns(text_column, id_column, unread=None if inputs else "no --input is given")
    sample = draw(read_scores(scored), size, seed, LabelTable.load(model / LABELS))
    cells = None
    if inputs:
        check_inputs(scored, input_files(*split_inputs(inputs)))
        info, rows = read_description(model), read_documents(model, inputs, text_column, id_column)
        columns = info.columns or info.named
        cells = {row.doc_id: columns.cells(row.text) for row in rows if isinstance(row, Document)}
    write_sample(output, sample, cells)
    print(f"{output}: {len(sample):,} documents in {len({row['stratum'] for row in sample})} strata")


@annotations_app.command("audit")
def annotations_audit(
    sample: Annotated[Path, typer.Argument(metavar="SAMPLE", help="File of xmtc annotations sample.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations.")],
    output: PageFile = None,
) -> None:
    """Estimate precision and recall of all scored documents from the annotations of a sample."""
    from xmtc.desk.watch.acceptance import read_annotations
    from xmtc.desk.watch.audit import audit
    from xmtc.desk.watch.show import show

    found = audit(sample, read_annotations(files))
    show("Audit", f"Estimates for all documents from those of {sample}.", [found], output)
