"""`xmtc annotations`: what people decided, measured."""

from pathlib import Path
from typing import Annotated

import typer

annotations_app = typer.Typer(no_args_is_help=True, help="Measure what people decide about a model's suggestions.")
Page = Annotated[Path | None, typer.Option("--output", "-o", help="HTML page to write, with its tables beside it.")]


@annotations_app.command("report")
def annotations_report(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of xmtc serve --annotations.")],
    output: Page = None,
) -> None:
    """Print what people accepted, always refused and keep adding, and how well they agree."""
    from xmtc.watch.acceptance import acceptance_parts, read_annotations
    from xmtc.watch.show import show

    lines = read_annotations(files)
    people, documents = len({line.by for line in lines if line.by is not None}), len({line.document for line in lines})
    facts = f"{len(lines):,} annotations of {documents:,} documents by {people or 'unknown'} people."
    show("Annotations", facts, acceptance_parts(lines), output)
