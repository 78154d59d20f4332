"""`xmtc init` as a person meets it: questions on a terminal, a file, and a few lines that say what is in it."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.prompt import Confirm, IntPrompt

from xmtc.errors import ConfigError
from xmtc.init.command import make_plan, name_of, seconds_of, summary, write_plan
from xmtc.init.roles import Answers
from xmtc.run.config import RUN_NAME
from xmtc.track.console import print_line, shared_console

DEFAULT_BUDGET = "1h"


def write_config(
    data: str, answers: Answers, *, budget: str = DEFAULT_BUDGET, name: str | None = None, output: Path | None = None
) -> Path:
    """Look, choose, write and say so; asks only on a terminal.

    Args:
        data: a file, a folder, or a URI of either.
        answers: what the user said by options.
        budget: such as `10m`.
        name: of the run; that of the data when absent.
        output: file to write; `<name>.yaml` when absent.

    Raises:
        ConfigError: the file is there already, or the budget is none.
        DataError: see `make_plan`.
    """
    seconds, name = seconds_of(budget), name or name_of(data)
    if not re.fullmatch(RUN_NAME, name):
        raise ConfigError(
            f"--name {name}: a run's name has letters, digits, '_', '-', and '.' after the first; change it"
        )
    output = output or Path(f"{name}.yaml")
    here = _on_terminal()
    if output.exists() and not (here and Confirm.ask(f"{output} exists. Replace it?", console=shared_console())):
        raise ConfigError(f"{output} exists already: give another name by -o, or delete it")
    plan = make_plan(data, answers, seconds, name, _choose_one if here else None)
    write_plan(plan, output)
    print("\n".join(summary(plan)))
    print(f"written: {output}; next: xmtc train {output}")
    return output


def config_for(data: str) -> Path:
    """The configuration that `xmtc init` wrote for some data, or writes now."""
    config = Path(f"{name_of(data)}.yaml")
    if config.exists():
        print_line(f"{config} is there already: used as it is")
        return config
    return write_config(data, Answers(), output=config)


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _choose_one(question: str, choices: Sequence[str]) -> str:
    print_line(question)
    for number, choice in enumerate(choices, start=1):
        print_line(f"  {number}  {choice}")
    numbers = [str(number) for number in range(1, len(choices) + 1)]
    return choices[IntPrompt.ask("number", choices=numbers, console=shared_console()) - 1]
