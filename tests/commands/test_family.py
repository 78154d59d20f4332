"""Commands of folders and of installed packages join the command line by themselves."""

import importlib.metadata
import sys
import types

import pytest
import typer

from xmtc.cli import CommandGroup
from xmtc.commands.family import GROUP, PANELS, Command, builtin_commands, command
from xmtc.config import members
from xmtc.errors import ConfigError


@pytest.fixture
def install(monkeypatch):
    """Make an object the command of an installed package."""

    def install(installed_object):
        module = types.ModuleType("other_package")
        module.__dict__["member"] = installed_object
        monkeypatch.setitem(sys.modules, "other_package", module)
        point = importlib.metadata.EntryPoint("greet", "other_package:member", GROUP)
        monkeypatch.setattr(
            members, "entry_points", lambda group: (point,) if group == GROUP else ()
        )

    return install


@command(panel="Look")
def greet(name: str) -> None:
    """Greet somebody."""
    print(f"hello {name}")


@command(panel="Use")
def train() -> None:
    """Take a name that exists."""


def test_names_are_unique_and_sorted_by_panel():
    commands = builtin_commands()
    names = [offered.name for offered in commands]
    assert len(names) == len(set(names))
    assert {"train", "predict", "serve", "labels", "annotations"} <= set(names)
    panels = [PANELS.index(offered.panel) for offered in commands]
    assert panels == sorted(panels)
    assert set(panels) == set(range(len(PANELS)))


def call(arguments: list[str]) -> None:
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.callback()
    def options() -> None:
        """Stand for the options of xmtc."""

    for builtin in builtin_commands():
        builtin.join(app)
    app(arguments, standalone_mode=False)


def test_an_installed_command_runs_and_is_in_the_help(install, capsys):
    install(greet)
    call(["greet", "reader"])
    assert "hello reader" in capsys.readouterr().out
    call(["--help"])
    look = capsys.readouterr().out.partition("─ Look ")[2].partition("─ Use ")[0]
    assert "Greet somebody." in look


def test_a_group_of_commands_can_be_installed(install, capsys):
    app = typer.Typer()
    app.command("well")(greet.run)
    app.callback()(lambda: None)
    install(Command("greet", "Look", app))
    call(["greet", "well", "reader"])
    assert "hello reader" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("member", "words"),
    [(train, "'train'"), (print, "is no Command")],
    ids=["taken", "other"],
)
def test_a_wrong_member_is_refused_with_its_place(install, member, words):
    install(member)
    with pytest.raises(ConfigError, match=f"{GROUP}: greet.*{words}"):
        call(["greet"])


def test_a_broken_package_stops_no_other_command(install, capsys):
    install(print)
    call(["status", "--help"])
    assert "Print which stages" in capsys.readouterr().out
