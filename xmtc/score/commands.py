"""`xmtc score`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from xmtc.commands.arguments import local_model, split_inputs
from xmtc.commands.family import command
from xmtc.commands.options import (
    Device,
    Exclude,
    IdColumn,
    Include,
    LongestDocument,
    ModelName,
    Precision,
    TextColumn,
)


@command(panel="Use")
def score(
    model: ModelName,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Files, globs, folders, URIs, or a configuration (its source).",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="Directory or URI to write Parquet files to."
        ),
    ],
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(help="local or ray (a cluster; same output)."),
    ] = "local",
    top_k: Annotated[
        int, typer.Option(min=1, help="Maximum number of labels per document.")
    ] = 10,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="tuned|RULE|X",
            help="Only predicted labels, those of another rule, or of probability X or more.",
        ),
    ] = None,
    include: Include = None,
    exclude: Exclude = None,
    shortlist: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Score only this many labels, found by an index \\[default: all].",
        ),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            metavar="BAR",
            help="Release documents of which this is expected, such as 'expected_recall>=0.8'.",
        ),
    ] = None,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Add what supports each label: words, its name, and training documents.",
        ),
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="Also write one CSV file with a row for each label of each document: doc_id, label, name, score, "
            "predicted.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace the output of a finished or another job."
        ),
    ] = False,
    max_rejected: Annotated[
        int | None, typer.Option(min=0, help="Stop after more than this many bad rows.")
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of threads (local) or actors (ray)."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Ray cluster \\[default: start Ray here]."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    block_rows: Annotated[
        int, typer.Option(min=1, help="Rows to read, score and write at a time.")
    ] = 2048,
) -> None:
    """Label a corpus of any size. After an interruption, the same command continues; no document is scored twice."""
    from xmtc.artefact.info import read_description
    from xmtc.predict.arguments import as_bar
    from xmtc.score.inputs import text_columns
    from xmtc.score.job import Settings
    from xmtc.score.shell import make_job, parse_threshold, read_labels, use_bfloat16

    if address is not None and engine != "ray":
        raise typer.BadParameter(
            "--address names a Ray cluster: add --engine ray, or leave it out"
        )
    folder = local_model(model)
    settings = Settings(
        top_k=top_k,
        threshold=parse_threshold(threshold),
        include=read_labels(include),
        exclude=read_labels(exclude) or (),
        shortlist=shortlist,
        release=None if release is None else as_bar(release),
        evidence=evidence,
        bfloat16=use_bfloat16(precision, device),
        block_rows=block_rows,
        columns=text_columns(
            text_column,
            id_column,
            read_description(folder).columns,
            longest_document,
        ),
    )
    files, sources = split_inputs(
        inputs,
        text_column=text_column,
        id=id_column,
        longest_document=longest_document,
    )
    job = make_job(folder, files, output, settings, sources, model)
    if engine == "ray":
        from xmtc.cluster.score_job import score_on_cluster

        manifest = score_on_cluster(
            job,
            address=address,
            device=device,
            workers=workers,
            max_rejected=max_rejected,
            overwrite=overwrite,
        )
    else:
        from xmtc.score.local import score_local

        manifest = score_local(
            job,
            device=device,
            workers=workers,
            max_rejected=max_rejected,
            overwrite=overwrite,
        )
    if table is not None:
        from xmtc.artefact.contract import LABELS
        from xmtc.data.labels import LabelTable
        from xmtc.score.flat import write_flat_csv

        write_flat_csv(table, job.output, manifest, LabelTable.load(folder / LABELS))
        print(f"written: {table}")
