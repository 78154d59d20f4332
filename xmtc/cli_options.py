"""What commands share: their group, their log, and the types of their arguments and options."""

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from xmtc.errors import StorageError
from xmtc.files import check_page, is_yaml
from xmtc.track.console import print_line

if TYPE_CHECKING:
    from xmtc.data.readers import Document, ReaderConfig, Rejected
    from xmtc.run.config import RunConfig


class CommandGroup(TyperGroup):
    """Lists components of installed packages in the help, and says how to continue after an interrupt."""

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:
        """Write the help."""
        from xmtc.config.members import installed_components

        self.epilog = "\n\n".join(
            f"{package} adds {', '.join(names)}." for package, names in installed_components().items()
        )
        super().format_help(ctx, formatter)

    def invoke(self, ctx: typer.Context) -> Any:
        """Run the command. SIGTERM and SIGHUP end it like Ctrl-C, so that it removes what is not for others."""
        ended_by = signal.SIGINT

        def end(number: int, _frame: FrameType | None) -> None:
            nonlocal ended_by
            ended_by = signal.Signals(number)
            signal.signal(number, signal.SIG_IGN)  # a second one does not disturb the cleaning
            raise KeyboardInterrupt

        noticed = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
        try:
            for number in noticed:
                signal.signal(number, end)
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            message = str(interrupt) or "run the same command again to continue"
            print(f"interrupted: {message}", file=sys.stderr)
            raise typer.Exit(128 + ended_by) from interrupt
        finally:
            for number in noticed:
                signal.signal(number, signal.SIG_DFL)


def local_path(path: str) -> Path:
    """Return a local path unchanged, or the local copy of a URI."""
    from xmtc.storage.fetch import fetch

    return fetch(path)


def config_file(config_or_data: str) -> Path:
    """Return the given configuration, or write one for the given data."""
    if is_yaml(config_or_data):
        return Path(config_or_data)
    from xmtc.init.command import config_for

    return config_for(config_or_data)


def next_to(predictions: Path) -> Path:
    """Return the folder for the evaluation of a predictions file."""
    folder = predictions.with_name(f"{predictions.name}_evaluation")
    return folder if predictions.is_dir() else predictions.with_suffix("")


def local_model(path: str) -> Path:
    """Return a local model unchanged, or the local copy of a model at a URI or on the Hugging Face Hub."""
    from xmtc.artefact.info import read_description
    from xmtc.run.copies import fetch_model

    read_description(model := fetch_model(path))
    return model


def new_page(path: Path | None) -> Path | None:
    """Refuse a place where no page may be written, before hours of work for it."""
    if path is not None:
        check_page(path)
    return path


def local_status(path: str) -> Path:
    """Return a local run directory unchanged, or local copies of the small files of a run at a URI."""
    from xmtc.run.copies import fetch_status

    return fetch_status(path)


def load_run(config: Path, overrides: list[str] | None, print_config: bool) -> "RunConfig":
    """Read a configuration with its overrides; print it and exit if that is requested."""
    from xmtc.config.load import load_config
    from xmtc.config.plain import dump_yaml
    from xmtc.run.config import RunConfig

    run = load_config(RunConfig, config, overrides or [])
    if print_config:
        print(dump_yaml(run), end="")
        raise typer.Exit()
    return run


def split_inputs(inputs: Sequence[str], *columns: object) -> tuple[list[str], dict[str, "ReaderConfig"]]:
    """Separate files from configurations, and return the files and the source of each configuration, with local copies.

    Args:
        inputs: files and configurations.
        columns: values of --text-column and --id, which are refused where only configurations name columns.
    """
    from xmtc.storage.fetch import fetch_parts

    configurations = [given for given in inputs if is_yaml(given)]
    files = [given for given in inputs if given not in configurations]
    check_columns(*columns, unread=None if files else f"{', '.join(configurations)} names the columns")
    runs = {given: load_run(Path(given), None, print_config=False) for given in configurations}
    return files, {given: fetch_parts(run.data.source, run.storage) for given, run in runs.items()}


def check_columns(*columns: object, unread: str | None) -> None:
    """Refuse --text-column and --id where no table is read by them.

    Args:
        columns: their values.
        unread: why they have no effect; None if they have one.
    """
    if unread is not None and any(columns):
        raise typer.BadParameter(f"--text-column and --id have no effect here: {unread}; leave them out")


def read_documents(
    model: Path, inputs: Sequence[str], text_column: Sequence[str] | None, id_column: str | None
) -> "Iterator[Document | Rejected]":
    """Read documents by the given columns, or by those that the model was trained on."""
    from xmtc.artefact.info import read_description
    from xmtc.score.inputs import read_inputs, text_columns

    trained_on = read_description(model).columns
    files, sources = split_inputs(inputs, text_column, id_column)
    return read_inputs(files, text_columns(text_column, id_column, trained_on), trained_on, sources)


def show_version(requested: bool) -> None:
    """Print the version, if requested, and exit."""
    if requested:
        print(f"xmtc {version('xmtc')}")
        raise typer.Exit()


def check_arguments() -> None:
    """Refuse names that are not UTF-8, because libraries for data files accept no others.

    Raises:
        StorageError: an argument is not UTF-8.
    """
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise StorageError(f"{argument}: not UTF-8; rename the file or folder") from None


_MODEL = "Model directory (runs/quickstart/model), URI, or owner/name on the Hub."
ModelDir = Annotated[Path, typer.Argument(metavar="MODEL", parser=local_model, help=_MODEL)]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file, such as configs/quickstart.yaml.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Overrides, such as finetune.batch_size=16 data.limit.train=2000."),
]
TextColumn = Annotated[
    list[str] | None,
    typer.Option("--text-column", help="Column with text; repeat to join several \\[default: as in training]."),
]
IdColumn = Annotated[
    str | None, typer.Option("--id", help="Column with identifiers \\[default: as in training, or file and row].")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")]
Precision = Annotated[Literal["auto", "bf16", "fp32"], typer.Option(help="auto, bf16 or fp32.")]
_LABELS = "a label, branch:LABEL with everything beneath it, or @FILE with one per line; repeatable"
Include = Annotated[list[str] | None, typer.Option("--include", metavar="LABEL", help=f"Only these: {_LABELS}.")]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", metavar="LABEL", help=f"Not these: {_LABELS}.")]
Release = Annotated[
    str | None,
    typer.Option(metavar="BAR", help="Release documents of which this is expected, such as 'expected_recall>=0.8'."),
]
PageFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", callback=new_page, help="HTML page to write, with its tables beside it."),
]
AtMost = Annotated[str | None, typer.Option(metavar="SHARE", help="Exit with code 1 beyond this, such as 2% or 0.02.")]
Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the resolved configuration and exit.")]


class ConsoleHandler(logging.Handler):
    """Prints log records as plain lines above a live progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        print_line(record.getMessage() if record.levelno < logging.WARNING else f"warning: {record.getMessage()}")


def show_log() -> None:
    """Print the log of the package as plain lines."""
    logger = logging.getLogger("xmtc")
    if not any(isinstance(handler, ConsoleHandler) for handler in logger.handlers):
        logger.addHandler(ConsoleHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
