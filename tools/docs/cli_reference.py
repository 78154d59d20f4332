"""The reference page of the command line: `python tools/docs/cli_reference.py docs/reference/cli.md`."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import typer.main

from xmtc.cli import app

INTRODUCTION = """# Command line

`make docs` writes this page from the commands.

MODEL is the folder of a run, such as runs/quickstart, or of a model, the URI of either, or `owner/name` on the Hugging
Face Hub. CONFIG is a YAML file, such as configs/quickstart.yaml. KEY=VALUE overrides any key of the
[configuration](configuration.md), such as finetune.batch_size=16. `--print-config` prints the resolved configuration
and exits.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | an [error](errors.md) that you can fix, on standard error |
| 2 | a wrong command or option |
| 130 | Ctrl-C; the same command continues |
| 141 | the output's reader has stopped |
"""


def page() -> str:
    """The whole page, in Markdown."""
    lines = [INTRODUCTION]
    for name, command in commands("xmtc", typer.main.get_command(app)):
        lines += [
            f"## {name}",
            "",
            cell(command.help or ""),
            "",
            "```text",
            usage(name, command),
            "```",
            "",
        ]
        for kind in ("argument", "option"):
            shown = [
                one
                for one in command.params
                if is_shown(one, kind) and not is_explained(one)
            ]
            lines += [*map(row, shown), ""] if shown else []
    return "\n".join(lines)


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command with what a user types for it, groups first."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from commands(f"{path} {name}", child)


def usage(name: str, command: Any) -> str:
    """The line after `Usage:`."""
    arguments = [
        metavar(parameter)
        for parameter in command.params
        if is_shown(parameter, "argument")
    ]
    options = any(is_shown(parameter, "option") for parameter in command.params)
    return " ".join([name, *(["[OPTIONS]"] if options else []), *arguments])


def is_explained(parameter: Any) -> bool:
    """Whether the introduction explains a parameter, which several commands share."""
    shared = (
        ("config", "overrides", "model")
        if parameter.param_type_name == "argument"
        else ("print_config",)
    )
    return parameter.name in shared and "|" not in (parameter.metavar or "")


def is_shown(parameter: Any, kind: str) -> bool:
    """Whether a parameter belongs in the table of arguments or of options."""
    return parameter.param_type_name == kind and not getattr(parameter, "hidden", False)


def metavar(parameter: Any) -> str:
    """What stands for the value of an argument: brackets if it is optional, dots if there can be several."""
    name = parameter.metavar or (parameter.name or "").upper()
    name = name if parameter.required else f"[{name}]"
    return f"{name}..." if parameter.nargs == -1 else name


def row(parameter: Any) -> str:
    """The line of one parameter."""
    given = f" {parameter.metavar}" if parameter.metavar else ""
    names = ", ".join(f"`{name}{given}`" for name in parameter.opts)
    if parameter.param_type_name == "argument":
        names = f"`{metavar(parameter)}`"
    help_text = getattr(parameter, "help", None) or ""
    default = parameter.default if not callable(parameter.default) else None
    shown = (
        "required"
        if parameter.required
        else ""
        if default in (None, False, [], ())
        else f"default `{default}`"
    )
    given = "; ".join(filter(None, (value(parameter), shown)))
    return f"- {names} ({given}): {cell(help_text)}"


def value(parameter: Any) -> str:
    """The values a parameter takes, in words."""
    if getattr(parameter, "is_flag", False):
        return "flag"
    annotation = parameter.type_descriptor.annotation
    kinds = {annotation, *get_args(annotation)}
    word = "whole number" if int in kinds else "number" if float in kinds else "text"
    bounds = (("≥", parameter.min), ("≤", parameter.max))
    limits = "".join(f" {side} {bound}" for side, bound in bounds if bound is not None)
    return f"{word}{limits}{'; repeatable' if parameter.multiple else ''}"


def cell(text: str) -> str:
    """Text as one line, without markup of the terminal."""
    return (
        " ".join(text.split())
        .replace("\\[", "[")
        .replace("[", "\\[")
        .replace("*", "\\*")
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="file to write")
    parser.parse_args().page.write_text(page(), encoding="utf-8")
