"""The command line. Every command is a few lines over a function that Python callers can use as well.

Commands import what they need when they run, so that help and mistakes in a configuration take no time.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from xmtc.cli_annotations import annotations_app
from xmtc.cli_labels import labels_app
from xmtc.cli_options import (
    AtMost,
    CommandGroup,
    ConfigFile,
    Device,
    Exclude,
    IdColumn,
    Include,
    ModelDir,
    ModelName,
    Overrides,
    PageFile,
    Precision,
    PrintConfig,
    Release,
    TextColumn,
    Version,
    check_arguments,
    check_columns,
    config_file,
    load_run,
    local_model,
    local_path,
    local_status,
    next_to,
    read_documents,
    show_log,
    split_inputs,
)
from xmtc.errors import ConfigError, XmtcError
from xmtc.track.console import printable

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, evaluate and serve text classifiers with many, mostly rare labels. Begin with: xmtc train TABLE.csv",
)


@app.callback()
def options(version: Version = False) -> None:
    """Options of xmtc itself."""


app.add_typer(labels_app, name="labels")
app.add_typer(annotations_app, name="annotations")


@app.command()
def init(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Table (CSV, TSV, JSON lines or Parquet), folder of tables, or URI.")
    ],
    budget: Annotated[str, typer.Option(help="Time that training may take, such as 10m or 1h30m.")] = "1h",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="YAML file to write \\[default: NAME.yaml].")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Text column; repeat to join several.")] = None,
    labels: Annotated[str | None, typer.Option(help="Column with the labels.")] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Separator of the labels in a cell; '' if a cell holds one label.")
    ] = None,
    doc_id: Annotated[str | None, typer.Option("--id", help="Column with identifiers.")] = None,
    split_column: Annotated[str | None, typer.Option(help="Column with train, dev or test.")] = None,
    task: Annotated[
        Literal["multi_label", "single_label"] | None, typer.Option(help="multi_label or single_label.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run \\[default: that of the file].")] = None,
) -> None:
    """Inspect data and machine, and write a configuration that fits a time budget."""
    from xmtc.init.command import write_config
    from xmtc.init.roles import Answers

    answers = Answers(
        text=text or (), labels=labels, id=doc_id, split_column=split_column, label_separator=label_separator, task=task
    )
    write_config(data, answers, budget=budget, name=name, output=output)


@app.command()
def train(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG|DATA", help="YAML file, or data, for which init writes one (budget 1h).")
    ],
    overrides: Overrides = None,
    print_config: PrintConfig = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the memory, disk, steps and time that the run needs, and exit.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished run whose data or first weights have changed since.")
    ] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Make a model of the best epoch so far of an interrupted run.")
    ] = False,
) -> None:
    """Run the whole job: prepare, rank tokens, plant, fine-tune, export, evaluate, report. Skips finished stages."""
    run = load_run(config_file(config), overrides, print_config)
    if dry_run:
        from xmtc.estimate.estimate import dry_run as estimate_run
        from xmtc.preflight.configuration import check

        check(run)
        estimate_run(run)
        return
    from xmtc.pipeline import train_run

    train_run(run, overwrite=overwrite, finish=finish)


@app.command()
def prepare(config: ConfigFile, overrides: Overrides = None, print_config: PrintConfig = False) -> None:
    """Read the source documents and tokenise them into a corpus."""
    run = load_run(config, overrides, print_config)
    from xmtc.pipeline import prepare_stage

    prepare_stage(run)


@app.command()
def mig(
    config: ConfigFile,
    overrides: Overrides = None,
    show: Annotated[
        list[str] | None, typer.Option("--show", metavar="LABEL", help="Print this label's top tokens; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many tokens to print for each label.")] = 20,
    print_config: PrintConfig = False,
) -> None:
    """Rank tokens by their mutual information gain with each label, on the train split."""
    run = load_run(config, overrides, print_config)
    from xmtc.pipeline import mig_stage
    from xmtc.planting.mig.show import show_labels

    corpus, ranking = mig_stage(run)
    show_labels(corpus, ranking, show or [], top)


@app.command()
def sweep(
    config: ConfigFile,
    grid: Annotated[Path, typer.Argument(metavar="GRID", help="YAML file with grid, draws, seeds and metrics.")],
    overrides: Overrides = None,
) -> None:
    """Train a grid of configurations and seeds, and compare them. Skips finished runs."""
    from xmtc.pipeline import train_run
    from xmtc.sweep.sweep import sweep as sweep_grid

    raise typer.Exit(1 if sweep_grid(config, grid, overrides or [], train_run) else 0)


@app.command()
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
        evaluate_predictions(predictions, gold, split or "dev", output or next_to(predictions), threshold)
    else:
        raise typer.BadParameter("--predictions needs --gold CORPUS")


@app.command()
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


@app.command()
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
) -> None:
    """Label a few texts: print the best labels as JSON lines, and which of them are predicted."""
    from xmtc.artefact.info import read_description
    from xmtc.score.inputs import text_columns
    from xmtc.score.shell import is_table, predict_texts, read_labels, texts_to_predict

    if not text and input_file is None:
        raise typer.BadParameter("give --text or --input")
    check_columns(text_column, id_column, unread=None if input_file and is_table(input_file) else "no table is read")
    trained_on = read_description(model).columns
    columns = text_columns(text_column, id_column, trained_on)
    read = texts_to_predict(input_file, columns, trained_on) if input_file else []
    filters = {"include": read_labels(include), "exclude": read_labels(exclude) or ()}
    predict_texts(model, text or [], read, top_k=top_k, evidence=evidence, language=language, **filters)


@app.command()
def score(
    model: ModelName,
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT", help="Files, globs, folders, URIs, or a configuration (its source).")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="Directory or URI to write Parquet files to.")],
    engine: Annotated[Literal["local", "ray"], typer.Option(help="local or ray (a cluster; same output).")] = "local",
    top_k: Annotated[int, typer.Option(min=1, help="Maximum number of labels per document.")] = 10,
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="tuned|RULE|X", help="Only predicted labels, those of another rule, or of probability X or more."
        ),
    ] = None,
    include: Include = None,
    exclude: Exclude = None,
    shortlist: Annotated[
        int | None, typer.Option(min=1, help="Score only this many labels, found by an index \\[default: all].")
    ] = None,
    release: Release = None,
    evidence: Annotated[bool, typer.Option("--evidence", help="Add the words that support each label.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output of a finished or another job.")
    ] = False,
    max_rejected: Annotated[int | None, typer.Option(min=0, help="Stop after more than this many bad rows.")] = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of threads (local) or actors (ray).")] = None,
    address: Annotated[str | None, typer.Option(help="HOST:PORT of a Ray cluster \\[default: start Ray here].")] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    block_rows: Annotated[int, typer.Option(min=1, help="Rows to read, score and write at a time.")] = 2048,
) -> None:
    """Label a corpus of any size. After an interruption, the same command continues; no document is scored twice."""
    from xmtc.artefact.info import read_description
    from xmtc.predict.arguments import as_bar
    from xmtc.score.inputs import text_columns
    from xmtc.score.job import Settings
    from xmtc.score.shell import make_job, parse_threshold, read_labels, use_bfloat16

    if address is not None and engine != "ray":
        raise typer.BadParameter("--address names a Ray cluster: add --engine ray, or leave it out")
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
        columns=text_columns(text_column, id_column, read_description(folder).columns),
    )
    options: Any = {"device": device, "workers": workers, "max_rejected": max_rejected, "overwrite": overwrite}
    files, sources = split_inputs(inputs, text_column, id_column)
    job = make_job(folder, files, output, settings, sources, model)
    if engine == "ray":
        from xmtc.cluster.score_job import score_on_cluster

        score_on_cluster(job, address=address, **options)
    else:
        from xmtc.score.local import score_local

        score_local(job, **options)


@app.command()
def serve(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Model, unless there is --models.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings, such as limits.texts=128 or shortlist=500."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder or URI with models at NAME/VERSION and NAME/current.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; only loopback needs no token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the clients' token \\[default: environment variable XMTC_TOKEN].")
    ] = None,
    annotations: Annotated[Path | None, typer.Option(help="JSON lines file to append annotations to.")] = None,
    queue: Annotated[Path | None, typer.Option(help="File with documents to annotate (text, id).")] = None,
    order: Annotated[
        Literal["uncertain", "rare", "file"], typer.Option(help="Which documents come first: uncertain, rare or file.")
    ] = "uncertain",
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Serve a model or several over HTTP, with a page in the browser. SIGTERM or Ctrl-C stops it."""
    from xmtc.desk.config import ServeConfig, read_token, read_tuning

    given = [*filter(None, [model]), *(overrides or [])]
    if (models is None) == (not given or "=" in given[0]):
        raise typer.BadParameter("give either a model or --models DIR")
    tuning = read_tuning(given[models is None :])
    places: Any = {"host": host, "port": port, "annotations": annotations, "queue": queue}
    config = ServeConfig(token=read_token(token_file), order=order, **places, **vars(tuning))
    from xmtc.desk.serve import server

    server.serve(server.read_models(next(iter(given), None), models, config, device=device, precision=precision))


@app.command()
def decide(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory, which changes.")],
    rule: Annotated[
        str, typer.Option("--rule", help="micro, macro, samples, precision=0.9, budget=5 (per document) or top_k=5.")
    ],
) -> None:
    """Choose another rule for which labels a finished model predicts, tuned on dev, without training."""
    from xmtc.artefact.decide import decide as decide_by
    from xmtc.predict.arguments import as_rule

    decide_by(model, as_rule(rule))
    print(f"{model / 'thresholds.json'}: decides by {rule}")
    if (model.parent / "eval").is_dir():
        print(f"its report shows the former rule until 'xmtc evaluate {model.parent}'")


@app.command()
def diff(
    old: ModelDir,
    new: Annotated[Path, typer.Argument(metavar="NEW", parser=local_model, help="The other model.")],
    inputs: Annotated[list[str], typer.Argument(metavar="TABLE", help="Files with documents, as for xmtc score.")],
    annotations: Annotated[
        list[Path] | None, typer.Option(help="Annotations of some of the documents; repeatable.")
    ] = None,
    at_most: AtMost = None,
    output: PageFile = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Compare the decisions of two models on the same documents. Exit code 1 if more flip than allowed."""
    from xmtc.desk.watch.acceptance import read_annotations
    from xmtc.desk.watch.diff import as_share, differences
    from xmtc.desk.watch.show import show
    from xmtc.score.inputs import texts_of

    bound = None if at_most is None else as_share(at_most)
    given = read_annotations(annotations) if annotations else []
    documents = read_documents(new, inputs, text_column, id_column)
    found = differences(old, new, texts_of(documents), given)
    show("Old against new", found.facts, found.parts, output)
    print(f"flipped: {found.share:.2%} of the labels that either model gives")
    if bound is not None and found.share > bound:
        print(f"more than --at-most {at_most}", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def drift(
    model: ModelDir,
    inputs: Annotated[list[str], typer.Argument(metavar="NEW", help="Files with new documents, as for xmtc score.")],
    at_most: AtMost = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="JSON file with the distances, for machines.")
    ] = None,
    output: PageFile = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
) -> None:
    """Measure how far new documents are from those that a model knows. Exit code 1 if further than allowed."""
    from xmtc.desk.watch import drift as watched
    from xmtc.desk.watch.diff import as_share
    from xmtc.desk.watch.show import show
    from xmtc.predict.predictor import Model
    from xmtc.score.inputs import texts_of

    bound, loaded = watched.BOUND if at_most is None else as_share(at_most), Model.from_pretrained(model)
    profile = watched.profile_of(loaded)
    documents = texts_of(read_documents(model, inputs, text_column, id_column))
    new = watched.measure(loaded, profile, (text for _, text in documents))
    rows = watched.changes(profile, new, loaded)
    facts = f"{len(new.found['tokens']):,} documents{f', and {new.skipped:,} without tokens' if new.skipped else ''}."
    if json_file is not None:
        watched.write_numbers(json_file, rows, new, bound)
    show("Drift", facts, watched.drift_parts(profile, new, rows, bound, loaded), output)
    drifting = [row.name for row in rows if row.drifts(bound)]
    print(f"drift: {', '.join(drifting) or 'none'}")
    if at_most is not None and drifting:
        raise typer.Exit(1)


@app.command()
def push(
    model: ModelDir,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository; created if it does not exist.")],
    public: Annotated[bool, typer.Option("--public", help="Let everyone read a new repository.")] = False,
) -> None:
    """Upload a model to the Hugging Face Hub. Every command then accepts `owner/name` as MODEL."""
    from xmtc.artefact.hub import push as push_model

    print(push_model(model, repository, public=public))


@app.command()
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

    if [text is None, not inputs, doc_id is None] not in ([False, True, True], [True, False, False]):
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


@app.command()
def status(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", parser=local_status, help="Run directory or URI, such as runs/quickstart.")
    ],
) -> None:
    """Print which stages of a run are finished, and its latest metrics."""
    from xmtc.run.status import print_status

    print_status(run)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="Check what this configuration needs.")] = None,
    overrides: Overrides = None,
) -> None:
    """Check this machine: print what works, and what a configuration needs that is missing."""
    from xmtc.preflight.doctor import run_doctor

    if overrides and not config:
        raise ConfigError(f"{overrides[0]}: this changes a configuration; name its file with --config")
    raise typer.Exit(run_doctor(load_run(config, overrides, print_config=False) if config else None))


def main() -> None:
    """Run the command line. A user's mistake ends with a message and exit code 1, never with a traceback."""
    show_log()
    try:
        check_arguments()
        app()
    except BrokenPipeError:  # the reader of the output has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        message = f"{place}{error.strerror or error}; check permissions and free disk space"
        print(printable(f"StorageError: {message}"), file=sys.stderr)
        sys.exit(1)
    except XmtcError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]{type(error).__name__}:[/] ", end="")
        print(printable(str(error)), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # before the command began
        sys.exit(130)
