"""The commands of the desk: `xmtc serve`, `annotations`, `diff`, `drift`."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from xmtc.commands.arguments import (
    check_unused,
    local_model,
    read_documents,
    split_inputs,
)
from xmtc.commands.family import Command, command
from xmtc.commands.options import (
    AtMost,
    Device,
    IdColumn,
    LongestDocument,
    ModelDir,
    PageFile,
    Precision,
    TextColumn,
)
from xmtc.track.console import counted


@command(panel="Serve and watch")
def serve(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="Model, unless there is --models."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Settings, such as limits.texts=128 or shortlist=500.",
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder or URI with models at NAME/VERSION and NAME/current.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; only loopback needs no token.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one."),
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the clients' token \\[default: environment variable XMTC_TOKEN]."
        ),
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="JSON lines file to append annotations to.")
    ] = None,
    queue: Annotated[
        Path | None, typer.Option(help="File with documents to annotate (text, id).")
    ] = None,
    order: Annotated[
        Literal["uncertain", "rare", "file"],
        typer.Option(help="Which documents come first: uncertain, rare or file."),
    ] = "uncertain",
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Serve a model or several over HTTP, with a page in the browser. SIGTERM or Ctrl-C stops it."""
    from xmtc.desk.config import ServeConfig, read_token, read_tuning

    words = [] if model is None else [model, *(overrides or [])]
    names_model = bool(words) and "=" not in words[0]
    if names_model == (models is not None):
        raise typer.BadParameter("give either a model or --models DIR")
    settings = words[1:] if names_model else words
    config = ServeConfig(
        token=read_token(token_file),
        host=host,
        port=port,
        annotations=annotations,
        queue=queue,
        order=order,
        **vars(read_tuning(settings)),
    )
    from xmtc.desk.serve import server

    place = words[0] if names_model else None
    server.serve(
        server.read_models(place, models, config, device=device, precision=precision)
    )


annotations_app = typer.Typer(
    no_args_is_help=True,
    help="Measure what people decide about a model's suggestions; take their work to other tools, and back.",
)
annotations_command = Command("annotations", "Serve and watch", annotations_app)


@annotations_app.command("report")
def annotations_report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations."),
    ],
    output: PageFile = None,
) -> None:
    """Print what people accepted, always refused and keep adding, and how well they agree."""
    from xmtc.desk.watch.acceptance import acceptance_parts, read_annotations
    from xmtc.desk.watch.show import show_results

    annotations = read_annotations(files)
    people = {annotation.by for annotation in annotations if annotation.by is not None}
    documents = {annotation.document for annotation in annotations}
    by = counted(len(people), "person", "people") if people else "unknown people"
    facts = f"{counted(len(annotations), 'annotation')} of {counted(len(documents), 'document')} by {by}."
    show_results("Annotations", facts, acceptance_parts(annotations), output)


@annotations_app.command("sample")
def annotations_sample(
    scored: Annotated[
        Path,
        typer.Argument(
            metavar="SCORED", help="Output of xmtc score --threshold tuned."
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(
            parser=local_model, metavar="MODEL", help="The model that scored."
        ),
    ],
    size: Annotated[int, typer.Option(min=1, help="Number of documents.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="JSON lines file to write.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Files that were scored; adds texts, for xmtc serve --queue.",
        ),
    ] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Draw a sample to audit, stratified by expected quality and by the bin of the rarest label."""
    from xmtc.artefact.contract import LABELS
    from xmtc.artefact.info import read_description
    from xmtc.data.labels import LabelTable
    from xmtc.data.readers import Document
    from xmtc.desk.watch.audit import check_inputs, draw, read_scores, write_sample
    from xmtc.score.inputs import input_files

    check_unused(
        None if inputs else "no --input is given",
        text_column=text_column,
        id=id_column,
        longest_document=longest_document,
    )
    sample = draw(read_scores(scored), size, seed, LabelTable.load(model / LABELS))
    cells_by_document, first_bad = None, None
    if inputs:
        check_inputs(scored, input_files(*split_inputs(inputs)))
        info = read_description(model)
        columns = info.columns or info.named
        rows = read_documents(model, inputs, text_column, id_column, longest_document)
        cells_by_document = {}
        for row in rows:
            if isinstance(row, Document):
                cells_by_document[row.doc_id] = columns.cells(row.text)
            else:
                first_bad = first_bad or row
    write_sample(output, sample, cells_by_document, first_bad)
    strata = {row["stratum"] for row in sample}
    print(f"{output}: {len(sample):,} documents in {len(strata)} strata")


@annotations_app.command("audit")
def annotations_audit(
    sample: Annotated[
        Path, typer.Argument(metavar="SAMPLE", help="File of xmtc annotations sample.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations."),
    ],
    output: PageFile = None,
) -> None:
    """Estimate precision and recall of all scored documents from the annotations of a sample."""
    from xmtc.desk.watch.acceptance import read_annotations
    from xmtc.desk.watch.audit import audit
    from xmtc.desk.watch.show import show_results

    estimates = audit(sample, read_annotations(files))
    show_results(
        "Audit",
        f"Estimates for all documents from those of {sample}.",
        [estimates],
        output,
    )


@annotations_app.command("export")
def annotations_export(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON file to write.")],
    format_name: Annotated[
        Literal["label-studio", "argilla"],
        typer.Option("--format", help="label-studio or argilla."),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            parser=local_model,
            help="With label-studio: offer all labels of this model, not only those in the annotations.",
        ),
    ] = None,
) -> None:
    """Write annotations for another tool, with what the model suggested."""
    from xmtc.artefact.contract import LABELS
    from xmtc.data.labels import LabelTable
    from xmtc.desk.annotate.exporting import export_annotations

    check_unused(
        None if format_name == "label-studio" else f"{format_name} needs no labels",
        model=model,
    )
    names = {}
    if model is not None:
        table = LabelTable.load(model / LABELS)
        names = dict(zip(table.labels, table.names, strict=True))
    exported = export_annotations(files, format_name, output, names)
    print(f"{output}: {counted(exported.documents, 'judged document')}")
    if exported.unjudged:
        print(
            f"warning: {counted(exported.unjudged, 'annotation')} with predicted labels that nobody judged, which "
            f"{format_name} takes for rejected"
        )
    if format_name == "label-studio":
        known = (
            "of the model and the annotations"
            if model is not None
            else "that occur in the annotations"
        )
        more = "" if model is not None else "; --model MODEL offers all of a model"
        print(
            f"{output.with_suffix('.xml')}: the labelling interface, with {counted(exported.labels, 'label')} {known}"
            f"{more}; paste it into the project's settings"
        )


@annotations_app.command("import")
def annotations_import(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE", help="JSON exports of Label Studio, or Argilla's records."
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="File to write, for xmtc serve --annotations."
        ),
    ],
    queue: Annotated[
        Path | None,
        typer.Option(
            help="File to write with the documents that nobody has judged, for xmtc serve --queue."
        ),
    ] = None,
) -> None:
    """Go on with annotations of another tool: write them as xmtc serve --annotations does."""
    from xmtc.desk.annotate.importing import import_annotations

    imported = import_annotations(files, output, queue)
    print(
        f"{output}: {counted(imported.lines, 'annotation')} of {counted(imported.documents, 'document')}"
    )
    if queue is not None:
        print(
            f"{queue}: {counted(imported.unjudged, 'document')} that nobody has judged"
        )
    elif imported.unjudged:
        print(
            f"left out: {counted(imported.unjudged, 'document')} that nobody has judged; --queue FILE keeps them"
        )


@command(panel="Serve and watch")
def diff(
    old: ModelDir,
    new: Annotated[
        Path, typer.Argument(metavar="NEW", parser=local_model, help="The other model.")
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE", help="Files with documents, as for xmtc score."
        ),
    ],
    annotations: Annotated[
        list[Path] | None,
        typer.Option(help="Annotations of some of the documents; repeatable."),
    ] = None,
    at_most: AtMost = None,
    output: PageFile = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
) -> None:
    """Compare the decisions of two models on the same documents. Exit code 1 if more flip than allowed."""
    from xmtc.desk.watch.acceptance import read_annotations
    from xmtc.desk.watch.diff import as_share, compare_models
    from xmtc.desk.watch.show import show_results
    from xmtc.score.inputs import texts_of

    bound = None if at_most is None else as_share(at_most)
    decisions = read_annotations(annotations) if annotations else []
    documents = read_documents(new, inputs, text_column, id_column, longest_document)
    comparison = compare_models(old, new, texts_of(documents), decisions)
    show_results("Old against new", comparison.facts, comparison.parts, output)
    print(f"flipped: {comparison.share:.2%} of the labels that either model gives")
    if bound is not None and comparison.share > bound:
        print(f"more than --at-most {at_most}", file=sys.stderr)
        raise typer.Exit(1)


@command(panel="Serve and watch")
def drift(
    model: ModelDir,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="NEW", help="Files with new documents, as for xmtc score."
        ),
    ],
    at_most: AtMost = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="JSON file with the distances, for machines."),
    ] = None,
    output: PageFile = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    longest_document: LongestDocument = None,
) -> None:
    """Measure how far new documents are from those that a model knows. Exit code 1 if further than allowed."""
    from xmtc.desk.watch.diff import as_share
    from xmtc.desk.watch.drift import (
        BOUND,
        compare_with_profile,
        drift_parts,
        measure,
        profile_of,
        write_distances,
    )
    from xmtc.desk.watch.show import show_results
    from xmtc.predict.predictor import Model
    from xmtc.score.inputs import texts_of

    bound = BOUND if at_most is None else as_share(at_most)
    loaded = Model.from_pretrained(model)
    profile = profile_of(loaded)
    documents = texts_of(
        read_documents(model, inputs, text_column, id_column, longest_document)
    )
    new = measure(loaded, profile, (text for _, text in documents))
    drifts = compare_with_profile(profile, new, loaded)
    facts = f"{new.documents:,} documents{f', and {new.skipped:,} without tokens' if new.skipped else ''}."
    if json_file is not None:
        write_distances(json_file, drifts, new, bound)
    show_results(
        "Drift", facts, drift_parts(profile, new, drifts, bound, loaded), output
    )
    beyond = [drift.name for drift in drifts if drift.is_beyond(bound)]
    print(f"drift: {', '.join(beyond) or 'none'}")
    if at_most is not None and beyond:
        raise typer.Exit(1)
