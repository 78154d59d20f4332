"""The command line: `xmtc`. Folders of the package and installed packages offer its commands, see `commands.family`.

Every command is a few lines over a function that Python callers can use as well.
"""

import io
import logging
import os
import signal
import sys
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from xmtc.commands.arguments import show_version
from xmtc.commands.family import builtin_commands, installed_commands
from xmtc.errors import Interrupted, StorageError, XmtcError
from xmtc.track.again import TEXT_OPTIONS, how_to_continue
from xmtc.track.console import print_line, printable

_INTERRUPTED = 128
"""Exit code of a command that a signal ended, without the number of the signal."""


class CommandGroup(TyperGroup):
    """The group of all commands: it finds those of installed packages, and ends a command that a signal interrupts."""

    @cached_property
    def installed(self) -> Mapping[str, Any]:
        """Commands of installed packages, by name. They are imported only for the help, or for a name that is none of
        this package's.
        """
        commands = installed_commands()
        if not commands:
            return {}
        app = typer.Typer()
        app.callback()(_no_options)  # so that a single command keeps its name
        for offered in commands:
            offered.join(app)
        return typer.main.get_group(app).commands

    def list_commands(self, ctx: Any) -> list[str]:
        """List the names of all commands."""
        return [*super().list_commands(ctx), *self.installed]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Find a command; None if there is none of this name."""
        return super().get_command(ctx, cmd_name) or self.installed.get(cmd_name)

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:
        """Write the help, and which components installed packages add."""
        from xmtc.config.members import installed_components

        additions = [
            f"{package} adds {', '.join(names)}."
            for package, names in installed_components().items()
        ]
        self.epilog = "\n\n".join(additions)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: typer.Context) -> Any:
        """Run the command. SIGTERM and SIGHUP end it like Ctrl-C, so that it removes what is not for others.

        A signal that the parent process has told this one to ignore, as `nohup` does, stays ignored.
        """
        ended_by = signal.SIGINT

        def end(number: int, _frame: FrameType | None) -> None:
            nonlocal ended_by
            ended_by = signal.Signals(number)
            signal.signal(
                number, signal.SIG_IGN
            )  # a second one does not disturb the cleaning
            raise KeyboardInterrupt

        candidates = (signal.SIGTERM, signal.SIGHUP)
        handled = [
            number
            for number in candidates
            if signal.getsignal(number) is signal.SIG_DFL
        ]
        try:
            for number in handled:
                signal.signal(number, end)
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            where = ""
            if isinstance(interrupt, Interrupted):
                ended_by = signal.Signals(interrupt.number)
                where = f"{interrupt}; "
            print(f"interrupted: {where}{how_to_continue()}", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED + ended_by) from interrupt
        finally:
            for number in handled:
                signal.signal(number, signal.SIG_DFL)


def _no_options() -> None:
    """Stand for the options that a group has."""


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, evaluate and serve text classifiers with many, mostly rare labels. Begin with: xmtc train TABLE.csv",
)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=show_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Options of xmtc itself."""


for builtin in builtin_commands():
    builtin.join(app)


class ConsoleHandler(logging.Handler):
    """Prints log records as plain lines above a live progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        message = record.getMessage()
        print_line(
            message if record.levelno < logging.WARNING else f"warning: {message}"
        )


def show_log() -> None:
    """Print the log of the package as plain lines."""
    logger = logging.getLogger("xmtc")
    if not any(isinstance(handler, ConsoleHandler) for handler in logger.handlers):
        logger.addHandler(ConsoleHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False


def check_arguments() -> None:
    """Refuse names that are not UTF-8, because libraries for data files accept no others.

    Raises:
        StorageError: an argument is not UTF-8.
    """
    for before, argument in pairwise(sys.argv):
        try:
            argument.encode()
        except UnicodeEncodeError:
            if before in TEXT_OPTIONS or argument.startswith(
                TEXT_OPTIONS
            ):  # a text is not shown
                raise StorageError(
                    f"the text of {TEXT_OPTIONS[0]} is not UTF-8; convert it, or give it in a file by --input"
                ) from None
            raise StorageError(f"{argument}: {_why_not_text(argument)}") from None


def _why_not_text(argument: str) -> str:
    """Say why an argument has bytes that Python has not decoded."""
    try:
        os.fsencode(argument).decode()
    except UnicodeDecodeError:
        return "not UTF-8; rename the file or folder"
    return f"Python reads names as {sys.getfilesystemencoding()} here; set PYTHONUTF8=1"


def main() -> None:
    """Run the command line. A user's mistake ends with a message and exit code 1, never with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal may not know the letters of the texts
    show_log()
    # OpenMP reads this when PyTorch is imported. By default, threads that wait for others spin on a core. If another
    # program takes one, training is then several times slower than on a single thread, see tools/bench/busy_cores.py.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        check_arguments()
        app()
    except BrokenPipeError:  # the reader of the output has stopped reading
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        message = (
            f"{place}{error.strerror or error}; check permissions and free disk space"
        )
        print(printable(f"StorageError: {message}"), file=sys.stderr)
        sys.exit(1)
    except XmtcError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]{type(error).__name__}:[/] ", end=""
        )
        print(printable(str(error)), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # before the command began
        sys.exit(130)
