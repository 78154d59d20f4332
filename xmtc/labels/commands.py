"""`xmtc labels`: change the labels of an exported model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.commands.family import Command
from xmtc.commands.options import ModelDir
from xmtc.track.console import print_line

if TYPE_CHECKING:
    from xmtc.labels.vocabulary import VocabularyChange

labels_app = typer.Typer(
    no_args_is_help=True,
    help="Change the labels of an exported model, without training.",
)
labels = Command("labels", "Change", labels_app)

Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        help="Directory or URI of the new model; replaces a model there.",
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column with the label \\[default: as in training]."
    ),
]
NameColumn = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column with its name \\[default: as in training]."
    ),
]
Parents = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with broader labels.")
]


@labels_app.command("add")
def labels_add(
    model: ModelDir,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS", help="JSON lines: label, name and optionally description."
        ),
    ],
    output: Output,
) -> None:
    """Add labels to a model, from their names alone."""
    from xmtc.labels.extend import add_labels
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
    labels: Annotated[
        list[str],
        typer.Argument(metavar="LABEL", help="Labels, or @FILE with one per line."),
    ],
    output: Output,
) -> None:
    """Remove labels; the other labels keep their scores."""
    from xmtc.labels.relabel import remove_labels
    from xmtc.run.copies import published_model
    from xmtc.score.shell import read_labels

    with published_model(output) as folder:
        result = remove_labels(model, read_labels(labels) or (), folder)
    _print_result(
        output,
        f"labels removed: {result.changed:,}, left: {result.labels:,}",
        result.notes,
    )


@labels_app.command("rename")
def labels_rename(
    model: ModelDir,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="OLD=NEW",
            help="Pairs, or @FILE with OLD, a tab and NEW on each line.",
        ),
    ],
    output: Output,
) -> None:
    """Change the identifiers of labels; their scores stay the same."""
    from xmtc.labels.relabel import read_renames, rename_labels
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        result = rename_labels(model, read_renames(pairs), folder)
    _print_result(output, f"labels renamed: {result.changed:,}", result.notes)


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
    from xmtc.run.copies import published_model

    with published_model(output) as folder:
        result = merge_labels(model, read_groups(groups), folder)
    _print_result(
        output,
        f"labels merged into others: {result.changed:,}, left: {result.labels:,}",
        result.notes,
    )


@labels_app.command("diff")
def labels_diff(
    model: ModelDir,
    vocabulary: Annotated[
        Path,
        typer.Argument(help="New version of the label file, such as vocabulary.ttl."),
    ],
    label: LabelColumn = None,
    name: NameColumn = None,
    parents: Parents = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for all changes, as JSON lines."),
    ] = None,
) -> None:
    """Say what a new version of the vocabulary changes, and what each change needs."""
    from xmtc.labels.vocabulary import changes_in_words, write_changes

    changes = _vocabulary_changes(
        model, vocabulary, label=label, name=name, parents=parents
    )
    for line in changes_in_words(changes):
        print_line(line)
    if output is not None:
        write_changes(changes, output)


@labels_app.command("apply")
def labels_apply(
    model: ModelDir,
    changes: Annotated[
        Path,
        typer.Argument(
            help="Output of `labels diff`, or the new version of the label file."
        ),
    ],
    output: Output,
    label: LabelColumn = None,
    name: NameColumn = None,
    parents: Parents = None,
) -> None:
    """Rename, merge, remove and move labels as a new version of the vocabulary does, without training."""
    from xmtc.labels.vocabulary import apply_changes, read_changes
    from xmtc.run.copies import published_model

    vocabulary_changes = read_changes(changes)
    if vocabulary_changes is None:
        vocabulary_changes = _vocabulary_changes(
            model, changes, label=label, name=name, parents=parents
        )
    with published_model(output) as folder:
        notes = apply_changes(model, vocabulary_changes, folder)
    unapplied = sum(change.kind in ("new", "split") for change in vocabulary_changes)
    _print_result(
        output,
        f"labels changed as in {changes}; {unapplied:,} changes need training",
        notes,
    )


def _vocabulary_changes(
    model: Path, vocabulary: Path, **columns: str | None
) -> "list[VocabularyChange]":
    """Compare the labels of a model with a label file.

    Args:
        model: model directory.
        vocabulary: label file.
        columns: column of `label`, `name` and `parents`; None: as in training.
    """
    from xmtc.artefact.contract import LABELS
    from xmtc.data.labels import LabelTable
    from xmtc.labels.vocabulary import changes_of, read_vocabulary

    named_columns = {
        key: column for key, column in columns.items() if column is not None
    }
    return changes_of(
        LabelTable.load(model / LABELS),
        read_vocabulary(model, vocabulary, named_columns),
    )


def _print_result(output: str, result: str, notes: Sequence[str]) -> None:
    print_line(f"{output}: {result}")
    for note in notes:
        print_line(f"  note: {note}")
