"""`xmtc labels`: change the labels of an exported model."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli_options import ModelDir
from xmtc.track.console import print_line

if TYPE_CHECKING:
    from xmtc.labels.vocabulary import Change

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
    from xmtc.labels.extend import add_labels

    with _written(output) as folder:
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
    from xmtc.labels.relabel import remove_labels
    from xmtc.score.shell import read_labels

    with _written(output) as folder:
        done = remove_labels(model, read_labels(labels) or (), folder)
    _print_result(output, f"labels removed: {done.changed:,}, left: {done.labels:,}", done.notes)


@labels_app.command("rename")
def labels_rename(
    model: ModelDir,
    pairs: Annotated[
        list[str], typer.Argument(metavar="OLD=NEW", help="Pairs, or @FILE with OLD, a tab and NEW on each line.")
    ],
    output: Output,
) -> None:
    """Change the identifiers of labels; their scores stay the same."""
    from xmtc.labels.relabel import read_renames, rename_labels

    with _written(output) as folder:
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
    from xmtc.labels.relabel import merge_labels, read_groups

    with _written(output) as folder:
        done = merge_labels(model, read_groups(groups), folder)
    _print_result(output, f"labels merged into others: {done.changed:,}, left: {done.labels:,}", done.notes)


@contextmanager
def _written(output: str) -> Iterator[Path]:
    """Yield a directory for the new model, add the answers that it must repeat, and publish it."""
    from xmtc.predict.smoke import write_answers
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        yield folder
        write_answers(folder)


Column = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with it \\[default: as in training].")]
Parents = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with broader labels.")]


@labels_app.command("diff")
def labels_diff(
    model: ModelDir,
    vocabulary: Annotated[Path, typer.Argument(help="New version of the label file, such as vocabulary.ttl.")],
    label: Column = None,
    name: Column = None,
    parents: Parents = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File for all changes, as JSON lines.")] = None,
) -> None:
    """Say what a new version of the vocabulary changes, and what each change needs."""
    from xmtc.labels.vocabulary import summary, write_changes

    changes = _changes(model, vocabulary, label=label, name=name, parents=parents)
    for line in summary(changes):
        print_line(line)
    if output is not None:
        write_changes(changes, output)


@labels_app.command("apply")
def labels_apply(
    model: ModelDir,
    changes: Annotated[Path, typer.Argument(help="Output of `labels diff`, or the new version of the label file.")],
    output: Output,
    label: Column = None,
    name: Column = None,
    parents: Parents = None,
) -> None:
    """Rename, merge, remove and move labels as a new version of the vocabulary does, without training."""
    from xmtc.labels.vocabulary import apply_changes, read_changes

    found = read_changes(changes) or _changes(model, changes, label=label, name=name, parents=parents)
    with _written(output) as folder:
        notes = apply_changes(model, found, folder)
    left = sum(one.kind in ("new", "split") for one in found)
    _print_result(output, f"labels changed as in {changes}; {left:,} changes need training", notes)


def _changes(model: Path, vocabulary: Path, **columns: str | None) -> "list[Change]":
    from xmtc.artefact.export import LABELS
    from xmtc.data.labels import LabelTable
    from xmtc.labels.vocabulary import changes_of, read_vocabulary

    given = {key: column for key, column in columns.items() if column is not None}
    return changes_of(LabelTable.load(model / LABELS), read_vocabulary(model, vocabulary, given))


def _print_result(output: str, done: str, notes: tuple[str, ...]) -> None:
    print_line(f"{output}: {done}")
    for note in notes:
        print_line(f"  note: {note}")
