"""The commands that make runs and look after them: `xmtc train`, `prepare`, `mig`, `status`."""

from pathlib import Path
from typing import Annotated

import typer

from xmtc.commands.arguments import config_file, load_run, local_status
from xmtc.commands.family import command
from xmtc.commands.options import (
    Accept,
    AddedFiles,
    ConfigFile,
    DataId,
    DataLabels,
    DataText,
    LabelSeparator,
    Overrides,
    PrintConfig,
    SplitColumn,
    TaskOption,
)
from xmtc.errors import ConfigError
from xmtc.files import is_yaml


@command(panel="Train")
def train(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|DATA",
            help="YAML file, or data, for which init writes one (budget 1h).",
        ),
    ],
    overrides: Overrides = None,
    print_config: PrintConfig = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the memory, disk, steps and time that the run needs, and exit.",
        ),
    ] = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            min=0,
            help="With --dry-run: price of a GPU for an hour, for costs by card.",
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a finished run whose data or first weights have changed since.",
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time that training may take, such as 10m, where init writes the configuration."
        ),
    ] = None,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Make a model of the best epoch so far of an interrupted run.",
        ),
    ] = False,
    text: DataText = None,
    labels: DataLabels = None,
    label_separator: LabelSeparator = None,
    accept: Accept = None,
    doc_id: DataId = None,
    split_column: SplitColumn = None,
    task: TaskOption = None,
    add: AddedFiles = None,
) -> None:
    """Run the whole job: prepare, rank tokens, plant, fine-tune, export, evaluate, report. Skips finished stages."""
    from xmtc.init.answers import Answers, is_for_init, name_in

    overrides = overrides or []
    answers = Answers(
        text=text or (),
        labels=labels,
        id=doc_id,
        split_column=split_column,
        label_separator=label_separator,
        accept=accept,
        task=task,
        add=add or (),
        overrides=list(filter(is_for_init, overrides)),
    )
    path = config_file(config, answers, budget, name_in(overrides))
    if add and is_yaml(config):
        from xmtc.init.command import with_more_files

        overrides = [*overrides, *with_more_files(path, add)]
    run = load_run(path, overrides, print_config)
    if dry_run:
        from xmtc.preflight.configuration import check
        from xmtc.preflight.dry_run import dry_run as estimate_run

        check(run)
        estimate_run(run, price)
        return
    if price is not None:
        raise ConfigError(
            "--price is only of use with --dry-run; add it, or leave --price out"
        )
    from xmtc.run.directory import RunPaths
    from xmtc.run.state import check_free

    check_free(RunPaths.of(run).root)  # at once: what trains takes long to import
    from xmtc.pipeline import train_run

    train_run(run, overwrite=overwrite, finish=finish)


@command(panel="Train")
def prepare(
    config: ConfigFile, overrides: Overrides = None, print_config: PrintConfig = False
) -> None:
    """Read the source documents and tokenise them into a corpus."""
    run = load_run(config, overrides, print_config)
    from xmtc.pipeline import prepare_stage

    prepare_stage(run)


@command(panel="Train")
def mig(
    config: ConfigFile,
    overrides: Overrides = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            "--show", metavar="LABEL", help="Print this label's top tokens; repeatable."
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option("--top", min=1, help="How many tokens to print for each label."),
    ] = 20,
    print_config: PrintConfig = False,
) -> None:
    """Rank tokens by their mutual information gain with each label, on the train split."""
    run = load_run(config, overrides, print_config)
    from xmtc.pipeline import mig_stage
    from xmtc.planting.mig.show import show_labels

    corpus, ranking = mig_stage(run)
    show_labels(corpus, ranking, show or [], top)


@command(panel="Look")
def status(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            parser=local_status,
            help="Run directory or URI, such as runs/quickstart.",
        ),
    ],
) -> None:
    """Print which stages of a run are finished, and its latest metrics."""
    from xmtc.run.status import print_status

    print_status(run)
