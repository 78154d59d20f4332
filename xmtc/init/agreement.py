"""Whether a configuration that is there says what the options of a command ask for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from xmtc.config.load import load_config
from xmtc.data.config import DataConfig
from xmtc.data.readers.base import shown_column
from xmtc.data.readers.table_config import document_files, table_columns
from xmtc.files import read_file, resolve_links
from xmtc.init.answers import Answers
from xmtc.init.budget import mentioned_budget, seconds_of
from xmtc.run.config import RunConfig

_ROUNDING_S = 1.0
"""Seconds by which two budgets differ that are written alike."""


def disagreements(config: Path, answers: Answers, budget: str | None) -> list[str]:
    """List the options that ask for something else than a configuration says, with what it says.

    Args:
        config: file of the configuration.
        answers: options about the data.
        budget: budget of the user, such as `10m`; None if there is none.

    Raises:
        ConfigError: the configuration or the budget is invalid.
    """
    data = load_config(RunConfig, config).data
    options = [*_about_columns(data, answers), *_about_files(data, answers)]
    if answers.task not in (None, data.task):
        options.append(f"--task {answers.task} (there: {data.task})")
    if budget is not None:
        options += _about_budget(config, budget)
    return options


def _about_columns(data: DataConfig, answers: Answers) -> Iterator[str]:
    """Compare the columns that the user names, and what is in them."""
    columns = table_columns(data.source)
    if columns is None:
        for option in answers.options():
            if option != "--task":
                yield f"{option} (there: a source of the kind {data.source.kind}, whose columns are fixed)"
        return
    wanted_and_there = {
        "--text": (tuple(answers.text), columns.text_columns()),
        "--labels": (_listed(answers.labels), columns.label_columns()),
        "--id": (_listed(answers.id), _listed(columns.id)),
        "--split-column": (_listed(answers.split_column), _listed(columns.split)),
    }
    for option, (wanted, there) in wanted_and_there.items():
        if wanted and wanted != there:
            yield f"{option} {_shown(wanted)} (there: {_shown(there)})"
    separator = answers.label_separator
    if separator is not None and (separator or None) != columns.label_separator:
        yield f"--label-separator {separator!r} (there: {columns.label_separator or ''!r})"
    accepted = (
        "all"
        if columns.status is None
        else f"{columns.status}={','.join(columns.accepted)}"
    )
    if answers.accept is not None and _without_blanks(answers.accept) != accepted:
        yield f"--accept {answers.accept} (there: {accepted})"


def _about_files(data: DataConfig, answers: Answers) -> Iterator[str]:
    """Name the added files that the configuration does not read."""
    files_read = {resolve_links(path) for _, path in document_files(data.source)}
    for name in answers.add:
        if resolve_links(Path(name)) not in files_read:
            yield f"--add {name} (not read there)"


def _about_budget(config: Path, budget: str) -> Iterator[str]:
    wanted_s = seconds_of(budget)
    there_s = mentioned_budget(read_file(config).decode())
    if there_s is None:
        yield f"--budget {budget} (there: none is mentioned)"
    elif abs(wanted_s - there_s) >= _ROUNDING_S:
        yield f"--budget {budget} (there: {there_s / 60:g}m)"


def _listed(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def _shown(columns: Sequence[str]) -> str:
    return " + ".join(map(shown_column, columns)) or "none"


def _without_blanks(accepted: str) -> str:
    """Write the values of `--accept COLUMN=VALUE, VALUE` as they are compared."""
    name, equals, values = accepted.partition("=")
    return name + equals + ",".join(value.strip() for value in values.split(","))
