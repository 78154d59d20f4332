"""What a command is, and where the commands are.

    @command(panel="Look")
    def status(run: RunDirectory) -> None:
        '''Print which stages of a run are finished.'''

in the module `commands` of a folder of this package is all that makes `xmtc status`. A package that is installed adds a
command by an entry point, whose object is the same:

    [project.entry-points."xmtc.commands"]
    lengths = "my_package.lengths:lengths"

Every start imports the modules of commands, so what a command works with is imported inside its function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

import typer

from xmtc.commands.hinting import HintingCommand
from xmtc.config.members import installed_objects

GROUP = "xmtc.commands"
"""Entry points of installed commands."""
Panel = Literal["Train", "Look", "Use", "Change", "Serve and watch"]
"""Headings of `xmtc --help`, in its order."""
PANELS: tuple[Panel, ...] = get_args(Panel)
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Command:
    """A command, or several beneath one name.

    Attributes:
        name: what is typed behind `xmtc`.
        panel: heading in the help.
        run: function whose parameters are the arguments and options, or an application with commands of its own. The
            first line of the docstring is the help.
    """

    name: str
    panel: Panel
    run: Callable[..., None] | typer.Typer

    def join(self, app: typer.Typer) -> None:
        """Add the command to an application."""
        if isinstance(self.run, typer.Typer):
            for member in self.run.registered_commands:
                member.cls = HintingCommand
            app.add_typer(self.run, name=self.name, rich_help_panel=self.panel)
        else:
            app.command(self.name, cls=HintingCommand, rich_help_panel=self.panel)(
                self.run
            )


def command(*, panel: Panel) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function, under the name of the function.

    Args:
        panel: heading in the help.
    """

    def command_of(function: Callable[..., None]) -> Command:
        return Command(function.__name__, panel, function)

    return command_of


def builtin_commands() -> list[Command]:
    """Find the commands that folders of this package offer, in the order of the help's headings."""
    commands = []
    for path in sorted(_PACKAGE.glob("*/commands.py")):
        module = import_module(f"xmtc.{path.parent.name}.commands")
        commands += [
            value for value in vars(module).values() if isinstance(value, Command)
        ]
    return sorted(commands, key=lambda offered: PANELS.index(offered.panel))


def installed_commands() -> list[Command]:
    """Load the commands of installed packages.

    Raises:
        ConfigError: an entry point cannot be imported, is no command, or has the name of another command.
    """
    builtin_names = [offered.name for offered in builtin_commands()]
    return installed_objects(GROUP, Command, builtin_names)
