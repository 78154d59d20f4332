"""The dialogue of `xmtc init`: questions on a terminal, the file, and a summary."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.prompt import Confirm, IntPrompt

from xmtc.errors import ConfigError
from xmtc.files import write_text
from xmtc.init.command import make_plan, name_of, seconds_of, summary
from xmtc.init.roles import Answers
from xmtc.run.config import RUN_NAME
from xmtc.track.console import print_line, shared_console

DEFAULT_BUDGET = "1h"


def write_config(
    data: str, answers: Answers, *, budget: str = DEFAULT_BUDGET, name: str | None = None, output: Path | None = None
) -> Path:
    """Choose and write a configuration, and print a summary; ask questions only on a terminal.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.
        budget: budget, such as `10m`.
        name: name of the run. Default: the name of the data.
        output: file to write. Default: `<name>.yaml`.

    Raises:
        ConfigError: the file already exists, or the budget is invalid.
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
        raise ConfigError(f"{output} already exists: give another name with -o, or delete it")
    plan = make_plan(data, answers, seconds, name, _choose_one if here else None)
    write_text(output, plan.text())
    print("\n".join(summary(plan)))
    print(f"written: {output}; next: xmtc train {output}")
    return output


def config_for(data: str) -> Path:
    """Find the configuration that `xmtc init` wrote for some data, or write it now."""
    config = Path(f"{name_of(data)}.yaml")
    if config.exists():
        print_line(f"using the existing configuration {config}")
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
