"""`xmtc labels`: change the labels of an exported model."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli_options import ModelDir
from xmtc.track.console import print_line

labels_app = typer.Typer(no_args_is_help=True, help="Change the labels of an exported model, without training.")
Output = Annotated[
    str, typer.Option("--output", "-o", help="Directory or URI of the new model; replaces a model there.")
]


@labels_app.command("add")
def labels_add(
    model: ModelDir,
    file: Annotated[Path, typer.Argument(metavar="LABELS", help="JSON lines: label, name and optionally description.")],
    output: Output,
) -> None:
    """Add labels to a model, from their names alone."""
    from xmtc.artefact.extend import add_labels
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        added = add_labels(model, file, folder)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in added.explained.items())
    print_line(
        f"{output}: labels added: {added.labels:,}; share of the trained rows' variance that names explain: {shares}"
    )


@labels_app.command("remove")
def labels_remove(
    model: ModelDir,
    labels: Annotated[list[str], typer.Argument(metavar="LABEL", help="Labels, or @FILE with one per line.")],
    output: Output,
) -> None:
    """Remove labels; the other labels keep their scores."""
    from xmtc.artefact.relabel import remove_labels
    from xmtc.run.copies import published_model
    from xmtc.score.shell import read_labels

    with published_model(output) as folder:
        done = remove_labels(model, read_labels(labels) or (), folder)
    _print_result(output, f"labels removed: {done.changed:,}, left: {done.labels:,}", done.notes)


@labels_app.command("rename")
def labels_rename(
    model: ModelDir,
    pairs: Annotated[
        list[str],
        typer.Argument(metavar="OLD=NEW", help="Pairs, or @FILE with OLD, a tab and NEW on each line."),
    ],
    output: Output,
) -> None:
    """Change the identifiers of labels; their scores stay the same."""
    from xmtc.artefact.relabel import read_renames, rename_labels
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        done = rename_labels(model, read_renames(pairs), folder)
    _print_result(output, f"labels renamed: {done.changed:,}", done.notes)


@labels_app.command("merge")
def labels_merge(
    model: ModelDir,
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="KEPT=OTHER[,OTHER...]",
            help="Groups, or @FILE with KEPT and the others, separated by tabs, on each line.",
        ),
    ],
    output: Output,
) -> None:
    """Merge labels into others, and print which parts of the result are approximate."""
    from xmtc.artefact.relabel import merge_labels, read_groups
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        done = merge_labels(model, read_groups(groups), folder)
    _print_result(output, f"labels merged into others: {done.changed:,}, left: {done.labels:,}", done.notes)


def _print_result(output: str, done: str, notes: tuple[str, ...]) -> None:
    print_line(f"{output}: {done}")
    for note in notes:
        print_line(f"  note: {note}")
